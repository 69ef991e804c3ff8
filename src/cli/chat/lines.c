/* Lines from a file or a pipe: see lines.h. */
#include "cli/chat/lines.h"

#include "base/error.h"
#include "cli/chat/signals.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* False at the end of the input, or after a signal. */
static bool read_more(struct lines *lines)
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

static int refuse(const char *what, hearth_error *error)
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
    } while (newline == NULL && seen <= LINES_MOST && read_more(lines));
    const size_t len = newline != NULL ? (size_t)(newline - input->v) : input->len;
    if (len > LINES_MOST) return refuse("a line", error);
    if (newline == NULL && (lines->stopped || len == 0)) return 0;
    buf_append(line, input->v, len);
    buf_drop_front(input, newline != NULL ? len + 1 : len);
    return 1;
}

int lines_read_all(struct lines *lines, struct buf *text, hearth_error *error)
{
    while (lines->input.len <= LINES_MOST && read_more(lines)) {
    }
    if (lines->input.len > LINES_MOST) return refuse("the input", error);
    buf_append(text, lines->input.v, lines->input.len);
    buf_clear(&lines->input);
    return 0;
}

void lines_release(struct lines *lines)
{
    buf_release(&lines->input);
}
