/* The user's input: see input.h.
 *
 * libedit asks read_character() for input, which waits for signals as well. Pasted text comes between two marks
 * ("bracketed paste"). The first is bound to a function like a key. The function reads up to the second one past
 * libedit, which would redraw its line with every character. */
#include "cli/chat/input.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "cli/terminal.h"
#include "pull/models_folder.h"

#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

/* ---- Lines of a file or a pipe ---- */

/* False at the end of the input, or after a signal. */
static bool read_input(struct lines *lines)
{
    char block[1 << 16];
    if (lines->ended || lines->stopped) return false;
    const enum signal_kind signal = signals_wait(lines->signals, lines->fd);
    lines->stopped = signal == SIGNAL_STOP || signal == SIGNAL_END;
    if (lines->stopped) return false;
    if (signal != SIGNAL_NONE) return true;
    const ssize_t n = read(lines->fd, block, sizeof block);
    if (n > 0) buf_append(&lines->input, block, (size_t)n);
    lines->ended = n == 0 || (n < 0 && errno != EINTR);
    return !lines->ended;
}

static int refuse_length(const char *what, hearth_error *error)
{
    return error_set(error, HEARTH_TOO_LONG, "%s has more than %u MiB: shorten it", what, LINES_MOST >> 20);
}

int lines_read(struct lines *lines, struct buf *line, hearth_error *error)
{
    struct buf *input = &lines->input;
    size_t seen = 0;
    const char *newline = NULL;
    buf_clear(line);
    do {
        if (input->len > seen) newline = memchr(input->v + seen, '\n', input->len - seen);
        seen = input->len;
    } while (newline == NULL && seen <= LINES_MOST && read_input(lines));
    const size_t len = newline != NULL ? (size_t)(newline - input->v) : input->len;
    if (len > LINES_MOST) return refuse_length("a line", error);
    if (newline == NULL && (lines->stopped || len == 0)) return 0;
    buf_append(line, input->v, len);
    buf_drop_front(input, newline != NULL ? len + 1 : len);
    return 1;
}

int lines_read_all(struct lines *lines, struct buf *text, hearth_error *error)
{
    while (lines->input.len <= LINES_MOST && read_input(lines)) {
    }
    if (lines->input.len > LINES_MOST) return refuse_length("the input", error);
    buf_append(text, lines->input.v, lines->input.len);
    buf_clear(&lines->input);
    return 0;
}

void lines_release(struct lines *lines)
{
    buf_release(&lines->input);
}

/* ---- Pasted text ---- */

/* Bytes of a pasted text that is edited like typed text. */
#define SHORT_MOST 256

#define DELETE     0x7f

void pastes_clean(struct buf *out, const char *bytes, size_t len)
{
    struct buf plain = {0};
    for (size_t i = 0; i < len; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        const bool is_end = c == '\n' || c == '\r';
        if (is_end)
            buf_append(&plain, "\n", 1);
        else if (c == '\t' || (c >= ' ' && c != DELETE))
            buf_append(&plain, &bytes[i], 1);
        if (c == '\n' && i + 1 < len && bytes[i + 1] == '\r') i++;
    }
    utf8_put_clean(out, buf_text(&plain), plain.len);
    buf_release(&plain);
}

const char *pastes_add(struct pastes *pastes, const struct buf *text)
{
    size_t lines = text->len > 0 && text->v[text->len - 1] != '\n';
    for (size_t i = 0; i < text->len; i++) lines += text->v[i] == '\n';
    if (text->len <= SHORT_MOST && memchr(buf_text(text), '\n', text->len) == NULL) return buf_text(text);
    pastes->v = mem_grow(pastes->v, pastes->n + 1, sizeof *pastes->v);
    struct paste *paste = &pastes->v[pastes->n++];
    *paste = (struct paste){.label = mem_format("[paste %zu: %zu bytes, %zu %s]", pastes->n, text->len, lines,
                                                lines == 1 ? "line" : "lines")};
    buf_append(&paste->text, buf_text(text), text->len);
    return paste->label;
}

void pastes_expand(const struct pastes *pastes, const char *line, struct buf *out)
{
    while (*line != '\0') {
        const size_t plain = strcspn(line, "[");
        buf_append(out, line, plain);
        line += plain;
        const struct paste *paste = NULL;
        for (size_t i = 0; i < pastes->n && paste == NULL; i++)
            if (strncmp(line, pastes->v[i].label, strlen(pastes->v[i].label)) == 0) paste = &pastes->v[i];
        if (paste != NULL) {
            buf_append(out, paste->text.v, paste->text.len);
            line += strlen(paste->label);
        } else if (*line == '[') {
            buf_append(out, line++, 1);
        }
    }
}

void pastes_release(struct pastes *pastes)
{
    for (size_t i = 0; i < pastes->n; i++) {
        free(pastes->v[i].label);
        buf_release(&pastes->v[i].text);
    }
    free(pastes->v);
    *pastes = (struct pastes){0};
}

/* ---- The editor ---- */

#define PASTES_ON   "\033[?2004h"
#define PASTES_OFF  "\033[?2004l"
#define PASTE_ENDS  "\033[201~"

#define REPLACEMENT 0xFFFD

struct editor {
    EditLine *libedit;
    FILE *screen;
    FILE *nowhere; /* for libedit's complaints about unknown terminals */
    int signals;
    History *history;
    char *history_path;      /* NULL: it is not kept */
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

/* ---- The history ---- */

/* A file of the user's alone: $XDG_STATE_HOME/hearth/chat_history, by default in ~/.local/state. */

#define ENTRIES_MOST 1000
#define BYTES_MOST   4096 /* of an entry: longer ones are pasted texts, which nobody looks for here */

/* Adds a message, and writes the file anew: another one takes its place, so that no crash leaves half of it. Long ones
 * are left out. A failure to write is ignored: typing goes on. */
static void add_to_history(const struct editor *editor, const char *text)
{
    HistEvent event;
    if (text[0] == '\0' || strlen(text) > BYTES_MOST) return;
    history(editor->history, &event, H_ENTER, text);
    if (editor->history_path == NULL) return;
    char *path = mem_format("%s.%ld", editor->history_path, (long)getpid());
    FILE *out = fopen(path, "we");
    bool whole = out != NULL && fchmod(fileno(out), 0600) == 0 && history(editor->history, &event, H_SAVE_FP, out) >= 0;
    if (out != NULL) whole = fclose(out) == 0 && whole;
    if (!whole || rename(path, editor->history_path) != 0) unlink(path);
    free(path);
}

/* ---- Bytes and characters ---- */

static void send_control(struct editor *editor, const char *control)
{
    fputs(control, editor->screen);
    fflush(editor->screen);
}

/* False at the end of the input, or after a signal. */
static bool read_block(struct editor *editor)
{
    while (!editor->ended && !editor->stopped) {
        const enum signal_kind signal = signals_wait(editor->signals, STDIN_FILENO);
        editor->stopped = signal == SIGNAL_STOP;
        editor->ended = signal == SIGNAL_END;
        /* The terminal has another size, or another program has used it meanwhile: shells take pastes like typed lines
         * while they run a program. */
        if (signal == SIGNAL_REDRAW) {
            el_set(editor->libedit, EL_PREP_TERM, 0);
            el_set(editor->libedit, EL_PREP_TERM, 1);
            send_control(editor, PASTES_ON);
            el_resize(editor->libedit);
            fputs("\r\033[J", editor->screen);
            el_set(editor->libedit, EL_REFRESH);
        }
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

static unsigned char insert_paste(EditLine *libedit, int key)
{
    (void)key;
    struct editor *editor = editor_of(libedit);
    struct buf bytes = {0}, text = {0};
    const size_t mark = strlen(PASTE_ENDS);
    bool whole = false;
    char byte;
    while (!whole && bytes.len <= LINES_MOST && next_byte(editor, &byte)) { /* up to the mark that ends a paste */
        buf_append(&bytes, &byte, 1);
        whole = byte == '~' && bytes.len >= mark && memcmp(bytes.v + bytes.len - mark, PASTE_ENDS, mark) == 0;
    }
    if (whole) bytes.len -= mark;
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

/* ---- Messages ---- */

static char *prompt(EditLine *libedit)
{
    static char first[] = "> ", next[] = "... ";
    return editor_of(libedit)->goes_on ? next : first;
}

enum editor_end editor_read(struct editor *editor, struct buf *message)
{
    enum editor_end end = EDITOR_MESSAGE;
    editor->stopped = editor->goes_on = false;
    buf_clear(message);
    send_control(editor, PASTES_ON);
    do {
        int n = 0;
        const char *typed = el_gets(editor->libedit, &n);
        if (typed == NULL || n <= 0) {
            const LineInfo *line = el_line(editor->libedit);
            const bool begun = editor->goes_on || (line != NULL && line->lastchar > line->buffer);
            fputs(editor->stopped ? "^C\n" : "\n", editor->screen);
            fflush(editor->screen);
            buf_clear(message);
            end = !editor->stopped ? EDITOR_NO_MORE : begun ? EDITOR_CLEARED : EDITOR_EMPTY;
            continue;
        }
        size_t len = strlen(typed);
        if (len > 0 && typed[len - 1] == '\n') len--;
        editor->goes_on = len > 0 && typed[len - 1] == '\\';
        char *line = mem_strndup(typed, editor->goes_on ? len - 1 : len);
        pastes_expand(&editor->pastes, line, message);
        if (editor->goes_on) buf_append(message, "\n", 1);
        free(line);
    } while (end == EDITOR_MESSAGE && editor->goes_on);
    if (end == EDITOR_MESSAGE) add_to_history(editor, buf_text(message));
    pastes_release(&editor->pastes);
    return end;
}

/* ---- The terminal ---- */

void editor_lend(struct editor *editor)
{
    send_control(editor, PASTES_OFF);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &editor->terminal);
}

void editor_resume(struct editor *editor)
{
    struct termios ignored;
    terminal_take_bytes(&ignored);
    send_control(editor, PASTES_ON);
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
    HistEvent event;
    char *folder = keeps_history ? pull_user_path("XDG_STATE_HOME", ".local/state", "") : NULL;
    editor->history = history_init();
    history(editor->history, &event, H_SETSIZE, ENTRIES_MOST);
    history(editor->history, &event, H_SETUNIQUE, 1);
    if (folder != NULL) { /* without a home folder it is not kept */
        pull_make_folders(folder, 0700);
        editor->history_path = mem_format("%s/chat_history", folder);
        history(editor->history, &event, H_LOAD, editor->history_path);
        free(folder);
    }
    editor->nowhere = fopen("/dev/null", "we");
    editor->libedit = el_init("hearth", stdin, screen, editor->nowhere != NULL ? editor->nowhere : stderr);
    /* Outside el_gets(), too, the terminal shall echo nothing and give bytes as they come: libedit would set it
     * otherwise. */
    EditLine *libedit = editor->libedit;
    el_set(libedit, EL_CLIENTDATA, editor);
    el_set(libedit, EL_SETTY, "-x", "-echo", "-icanon", "-iexten", NULL);
    el_set(libedit, EL_EDITOR, "emacs");
    el_set(libedit, EL_SIGNAL, 0);
    el_set(libedit, EL_PROMPT, prompt);
    el_set(libedit, EL_HIST, history, editor->history);
    el_set(libedit, EL_GETCFN, read_character);
    el_set(libedit, EL_ADDFN, "hearth-paste", "Insert pasted text", insert_paste);
    el_set(libedit, EL_ADDFN, "hearth-newline", "Insert a line end", insert_newline);
    el_set(libedit, EL_BIND, "\033[200~", "hearth-paste", NULL);
    el_set(libedit, EL_BIND, "\033\n", "hearth-newline", NULL); /* Alt-Enter */
    el_set(libedit, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_source(libedit, NULL); /* the user's ~/.editrc */
    send_control(editor, PASTES_ON);
    return editor;
}

void editor_close(struct editor *editor)
{
    if (editor == NULL) return;
    el_end(editor->libedit);
    editor_lend(editor);
    history_end(editor->history);
    free(editor->history_path);
    if (editor->nowhere != NULL) fclose(editor->nowhere);
    free(editor);
}
