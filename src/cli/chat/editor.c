/* Messages that are typed: see editor.h.
 *
 * libedit asks read_character() for input, which waits for signals as well. Pasted text comes between two marks
 * ("bracketed paste"), the first of which is bound to a function like a key: that reads up to the second past libedit,
 * whose lines are redrawn with every character. */
#include "cli/chat/editor.h"

#include "base/memory.h"
#include "cli/chat/input_history.h"
#include "cli/chat/lines.h"
#include "cli/chat/pastes.h"
#include "cli/chat/signals.h"
#include "cli/terminal.h"

#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#define PASTES_ON   "\033[?2004h"
#define PASTES_OFF  "\033[?2004l"
#define PASTE_ENDS  "\033[201~"

#define REPLACEMENT 0xFFFD

struct editor {
    EditLine *libedit;
    FILE *screen;
    FILE *nowhere; /* for libedit's complaints about unknown terminals */
    int signals;
    struct history_file history;
    struct termios terminal; /* its former settings */
    char block[4096];        /* read and not yet given to libedit: block[at..len) */
    size_t at, len;
    bool ended;   /* nothing more can be read */
    bool stopped; /* Ctrl-C */
    bool goes_on; /* the message has lines before this one */
    struct pastes pastes;
};

static struct editor *editor_of(EditLine *libedit)
{
    struct editor *editor = NULL;
    el_get(libedit, EL_CLIENTDATA, &editor);
    return editor;
}

/* ---- Bytes and characters ---- */

static void show(struct editor *editor, const char *control)
{
    fputs(control, editor->screen);
    fflush(editor->screen);
}

/* The terminal has another size, or another program has used it meanwhile: shells take pastes like typed lines while
 * they run a program. */
static void redraw(struct editor *editor)
{
    el_set(editor->libedit, EL_PREP_TERM, 0);
    el_set(editor->libedit, EL_PREP_TERM, 1);
    show(editor, PASTES_ON);
    el_resize(editor->libedit);
    fputs("\r\033[J", editor->screen);
    el_set(editor->libedit, EL_REFRESH);
}

/* False at the end of the input, or after a signal. */
static bool read_block(struct editor *editor)
{
    while (!editor->ended && !editor->stopped) {
        const enum signal_kind signal = signals_wait(editor->signals, STDIN_FILENO);
        editor->stopped = signal == SIGNAL_STOP;
        editor->ended = signal == SIGNAL_END;
        if (signal == SIGNAL_REDRAW) redraw(editor);
        if (signal != SIGNAL_NONE) continue;
        const ssize_t n = read(STDIN_FILENO, editor->block, sizeof editor->block);
        editor->ended = n == 0 || (n < 0 && errno != EINTR);
        if (n <= 0) continue;
        editor->at = 0;
        editor->len = (size_t)n;
        return true;
    }
    return false;
}

static bool next_byte(struct editor *editor, char *byte)
{
    if (editor->at == editor->len && !read_block(editor)) return false;
    *byte = editor->block[editor->at++];
    return true;
}

/* libedit's EL_GETCFN: 1 with a character, 0 at the end, -1 after Ctrl-C. */
static int read_character(EditLine *libedit, wchar_t *character)
{
    struct editor *editor = editor_of(libedit);
    mbstate_t state = {0};
    size_t used = (size_t)-2; /* the character is not complete */
    char byte;
    while (used == (size_t)-2) {
        if (!next_byte(editor, &byte)) return editor->stopped ? -1 : 0;
        used = mbrtowc(character, &byte, 1, &state);
    }
    if (used == (size_t)-1) *character = REPLACEMENT;
    return 1;
}

/* ---- Keys of our own ---- */

/* Reads up to the mark that ends a paste. */
static bool read_paste(struct editor *editor, struct buf *bytes)
{
    const size_t mark = strlen(PASTE_ENDS);
    char byte;
    while (bytes->len <= LINES_MOST && next_byte(editor, &byte)) {
        buf_append(bytes, &byte, 1);
        if (byte != '~' || bytes->len < mark || memcmp(bytes->v + bytes->len - mark, PASTE_ENDS, mark) != 0) continue;
        bytes->len -= mark;
        return true;
    }
    return false;
}

static unsigned char insert_paste(EditLine *libedit, int key)
{
    (void)key;
    struct editor *editor = editor_of(libedit);
    struct buf bytes = {0}, text = {0};
    const bool whole = read_paste(editor, &bytes);
    pastes_clean(&text, buf_text(&bytes), bytes.len);
    if (whole && text.len > 0) el_insertstr(libedit, pastes_add(&editor->pastes, &text));
    buf_release(&text);
    buf_release(&bytes);
    return whole ? CC_REFRESH : CC_ERROR;
}

static unsigned char insert_newline(EditLine *libedit, int key)
{
    (void)key;
    el_insertstr(libedit, "\n");
    return CC_REFRESH;
}

static void bind_keys(EditLine *libedit)
{
    el_set(libedit, EL_ADDFN, "hearth-paste", "Insert pasted text", insert_paste);
    el_set(libedit, EL_ADDFN, "hearth-newline", "Insert a line end", insert_newline);
    el_set(libedit, EL_BIND, "\033[200~", "hearth-paste", NULL);
    el_set(libedit, EL_BIND, "\033\n", "hearth-newline", NULL); /* Alt-Enter */
    el_set(libedit, EL_BIND, "^R", "em-inc-search-prev", NULL);
}

/* ---- Messages ---- */

static char *prompt(EditLine *libedit)
{
    static char first[] = "> ", next[] = "... ";
    return editor_of(libedit)->goes_on ? next : first;
}

static bool has_begun(const struct editor *editor)
{
    const LineInfo *line = el_line(editor->libedit);
    return editor->goes_on || (line != NULL && line->lastchar > line->buffer);
}

/* Appends a line that was typed; true where the message goes on after it. */
static bool take_line(struct editor *editor, const char *typed, struct buf *message)
{
    size_t len = strlen(typed);
    if (len > 0 && typed[len - 1] == '\n') len--;
    const bool goes_on = len > 0 && typed[len - 1] == '\\';
    char *line = mem_strndup(typed, goes_on ? len - 1 : len);
    pastes_expand(&editor->pastes, line, message);
    if (goes_on) buf_append(message, "\n", 1);
    free(line);
    return goes_on;
}

static enum editor_end end_without(struct editor *editor, struct buf *message)
{
    const bool begun = has_begun(editor);
    fputs(editor->stopped ? "^C\n" : "\n", editor->screen);
    fflush(editor->screen);
    buf_clear(message);
    if (!editor->stopped) return EDITOR_NO_MORE;
    return begun ? EDITOR_CLEARED : EDITOR_EMPTY;
}

enum editor_end editor_read(struct editor *editor, struct buf *message)
{
    enum editor_end end = EDITOR_MESSAGE;
    editor->stopped = editor->goes_on = false;
    buf_clear(message);
    show(editor, PASTES_ON);
    do {
        int n = 0;
        const char *typed = el_gets(editor->libedit, &n);
        if (typed == NULL || n <= 0)
            end = end_without(editor, message);
        else
            editor->goes_on = take_line(editor, typed, message);
    } while (end == EDITOR_MESSAGE && editor->goes_on);
    if (end == EDITOR_MESSAGE) chat_history_add(&editor->history, buf_text(message));
    pastes_release(&editor->pastes);
    return end;
}

/* ---- The terminal ---- */

void editor_lend(struct editor *editor)
{
    show(editor, PASTES_OFF);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &editor->terminal);
}

void editor_resume(struct editor *editor)
{
    struct termios ignored;
    terminal_take_bytes(&ignored);
    show(editor, PASTES_ON);
}

/* Outside el_gets(), too, the terminal shall echo nothing and give bytes as they come: libedit would set it otherwise.
 */
static void set_up(struct editor *editor)
{
    EditLine *libedit = editor->libedit;
    el_set(libedit, EL_CLIENTDATA, editor);
    el_set(libedit, EL_SETTY, "-x", "-echo", "-icanon", "-iexten", NULL);
    el_set(libedit, EL_EDITOR, "emacs");
    el_set(libedit, EL_SIGNAL, 0);
    el_set(libedit, EL_PROMPT, prompt);
    el_set(libedit, EL_HIST, history, editor->history.list);
    el_set(libedit, EL_GETCFN, read_character);
    bind_keys(libedit);
    el_source(libedit, NULL); /* the user's ~/.editrc */
}

struct editor *editor_open(FILE *screen, int signals, bool keeps_history)
{
    struct editor *editor = mem_alloc(sizeof *editor);
    *editor = (struct editor){.screen = screen, .signals = signals};
    if (!terminal_take_bytes(&editor->terminal)) {
        free(editor);
        return NULL;
    }
    setlocale(LC_CTYPE, "C.UTF-8"); /* libedit's characters; where the user's locale has others, hearth's are these */
    chat_history_open(&editor->history, keeps_history);
    editor->nowhere = fopen("/dev/null", "we");
    editor->libedit = el_init("hearth", stdin, screen, editor->nowhere != NULL ? editor->nowhere : stderr);
    set_up(editor);
    show(editor, PASTES_ON);
    return editor;
}

void editor_close(struct editor *editor)
{
    if (editor == NULL) return;
    el_end(editor->libedit);
    editor_lend(editor);
    chat_history_close(&editor->history);
    if (editor->nowhere != NULL) fclose(editor->nowhere);
    free(editor);
}
