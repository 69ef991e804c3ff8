/* The output of a chat: light markdown and notices. See output.h. */
#include "cli/chat/output.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Light markdown ---- */

#define BOLD  "\033[1m"
#define CODE  "\033[36m"
#define DIM   "\033[2m"
#define PLAIN "\033[0m"

#define FENCE "```"

void markdown_put_plain(const char *text, size_t len, struct buf *out)
{
    size_t from = 0;
    for (size_t i = 0; i <= len; i++) {
        if (i < len && text[i] != '\n' && text[i] != '\t' && text[i] != '\r') continue;
        utf8_put_visible(out, text + from, i - from, false);
        if (i < len && text[i] != '\r') buf_append(out, &text[i], 1);
        from = i + 1;
    }
}

/* ---- The beginning of a line ---- */

enum line_kind { LINE_UNDECIDED, LINE_TEXT, LINE_HEADING, LINE_ITEM, LINE_FENCE };

/* The kind of a line by its beginning. `indent` gets the number of spaces before it, `mark` the length of a heading's
 * or an item's mark with the space behind it. */
static enum line_kind line_kind_of(const char *text, size_t len, size_t *indent, size_t *mark)
{
    const char *p = text, *end = text + len;
    while (p < end && *p == ' ') p++;
    *indent = (size_t)(p - text);
    *mark = 0;
    if (p == end) return LINE_UNDECIDED;
    const size_t left = (size_t)(end - p), same = strspn(p, (char[]){*p, '\0'});
    if (*p == '`') return same >= 3 ? LINE_FENCE : same == left ? LINE_UNDECIDED : LINE_TEXT;
    if (*p != '#' && *p != '-' && *p != '*' && *p != '+') return LINE_TEXT;
    if (same > (*p == '#' ? 6u : 1u)) return LINE_TEXT;
    if (same == left) return LINE_UNDECIDED;
    *mark = same + 1;
    if (p[same] != ' ') return LINE_TEXT;
    return *p == '#' ? LINE_HEADING : LINE_ITEM;
}

/* Takes the beginning of the held line; how many bytes of it are done. 0: it is not decided. */
static size_t begin_line(struct markdown *state, struct buf *out)
{
    size_t indent, mark;
    const char *newline = memchr(state->held.v, '\n', state->held.len);
    const enum line_kind kind = line_kind_of(state->held.v, state->held.len, &indent, &mark);
    if (kind == LINE_FENCE) {
        if (newline == NULL) return 0;
        const size_t len = (size_t)(newline - state->held.v);
        state->in_block = !state->in_block;
        buf_puts(out, DIM);
        markdown_put_plain(state->held.v, len, out);
        buf_puts(out, state->in_block ? PLAIN "\n" CODE : PLAIN "\n");
        return len + 1;
    }
    if (kind == LINE_UNDECIDED && newline == NULL) return 0;
    state->in_line = true;
    buf_append(out, state->held.v, indent);
    if (state->in_block || kind == LINE_TEXT || kind == LINE_UNDECIDED) return indent;
    buf_puts(out, kind == LINE_ITEM ? "\xe2\x80\xa2 " : BOLD);
    state->is_heading = kind == LINE_HEADING;
    return indent + mark;
}

/* ---- Within a line ---- */

static void put_style(const struct markdown *state, struct buf *out)
{
    buf_puts(out, PLAIN);
    if (state->is_bold || state->is_heading) buf_puts(out, BOLD);
    if (state->is_code) buf_puts(out, CODE);
}

/* One mark, or the text before the next; how many bytes are done. 0: it is not decided. */
static size_t take_inline(struct markdown *state, const char *text, size_t len, struct buf *out)
{
    const char *marks = state->in_block ? "\n" : state->is_code ? "\n`" : "\n`*";
    const size_t plain = strcspn(text, marks);
    if (plain > 0) {
        markdown_put_plain(text, plain < len ? plain : len, out);
        return plain < len ? plain : len;
    }
    if (*text == '*') { /* of two, bold begins before a letter and ends after one */
        if (len == 1) return 0;
        if (text[1] != '*') return buf_puts(out, "*"), 1;
        if (!state->is_bold && len == 2) return 0;
        if (!state->is_bold && strchr(" \t\n*", text[2]) != NULL) return buf_puts(out, "**"), 2;
        state->is_bold = !state->is_bold;
        put_style(state, out);
        return 2;
    }
    if (*text == '\n') {
        const bool styled = state->is_bold || state->is_code || state->is_heading;
        state->in_line = state->is_bold = state->is_code = state->is_heading = false;
        if (styled) buf_puts(out, PLAIN);
        buf_puts(out, "\n");
        return 1;
    }
    if (*text == '`') {
        state->is_code = !state->is_code;
        put_style(state, out);
        return 1;
    }
    return buf_puts(out, "\\u0000"), 1; /* where strcspn() ends before the text does */
}

/* ---- Texts ---- */

void markdown_put(struct markdown *state, const char *text, size_t len, struct buf *out)
{
    size_t done = 1;
    buf_append(&state->held, text, len);
    while (state->held.len > 0 && done > 0) {
        const bool begins = !state->in_line;
        done = begins ? begin_line(state, out) : take_inline(state, state->held.v, state->held.len, out);
        buf_drop_front(&state->held, done);
        if (begins && state->in_line) done = 1;
    }
}

void markdown_end(struct markdown *state, struct buf *out)
{
    markdown_put_plain(buf_text(&state->held), state->held.len, out);
    if (state->in_block || state->is_bold || state->is_code || state->is_heading) buf_puts(out, PLAIN);
    buf_release(&state->held);
    *state = (struct markdown){0};
}

/* ---- Notices ---- */

struct screen screen_find(void)
{
    const bool out = isatty(STDOUT_FILENO);
    const char *none = getenv("NO_COLOR"), *terminal = getenv("TERM");
    return (struct screen){
        .file = out                     ? stdout
                : isatty(STDERR_FILENO) ? stderr
                                        : NULL,
        .renders = out,
        .colours = (none == NULL || none[0] == '\0') && terminal != NULL && strcmp(terminal, "dumb") != 0,
    };
}

void screen_style(const struct screen *screen, FILE *file, const char *sgr)
{
    if (screen->colours) fprintf(file, "\033[%sm", sgr);
}

void screen_say(const struct screen *screen, const char *format, ...)
{
    if (screen->file == NULL) return;
    char *text = NULL;
    struct buf shown = {0};
    va_list args;
    va_start(args, format);
    const int len = vasprintf(&text, format, args);
    va_end(args);
    if (len < 0) return;
    markdown_put_plain(text, (size_t)len, &shown);
    fprintf(screen->file, "%s\n", buf_text(&shown));
    fflush(screen->file);
    buf_release(&shown);
    free(text);
}
