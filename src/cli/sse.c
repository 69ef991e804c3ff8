/* Server-sent events: see sse.h. */
#include "cli/sse.h"

#include "base/error.h"

#include <string.h>

struct listener {
    sse_event_fn each;
    void *ud;
};

static int refuse(const char *what, hearth_error *error)
{
    return error_set(error, HEARTH_TOO_LONG, "the server sent %s of more than %u MiB: it is no reply of a chat", what,
                     SSE_MOST >> 20);
}

static void end_event(struct sse *sse, const struct listener *to)
{
    if (sse->has_data) to->each(to->ud, buf_text(&sse->data), sse->data.len);
    buf_clear(&sse->data);
    sse->has_data = false;
}

/* The value of the field `data`; NULL: the line is another field, or a comment. */
static const char *value_of(const char *line, size_t len)
{
    if (len < 5 || memcmp(line, "data:", 5) != 0) return NULL;
    return line + 5 + (len > 5 && line[5] == ' ');
}

/* A line without its end. */
static int take_line(struct sse *sse, const struct listener *to, hearth_error *error)
{
    const char *line = buf_text(&sse->line);
    size_t len = sse->line.len;
    if (len > 0 && line[len - 1] == '\r') len--;
    if (len == 0) return end_event(sse, to), HEARTH_OK;
    const char *value = value_of(line, len);
    if (value == NULL) return HEARTH_OK;
    const size_t value_len = (size_t)(line + len - value);
    if (sse->data.len + value_len > SSE_MOST) return refuse("an event", error);
    if (sse->has_data) buf_append(&sse->data, "\n", 1);
    buf_append(&sse->data, value, value_len);
    sse->has_data = true;
    return HEARTH_OK;
}

int sse_add(struct sse *sse, const struct buf *bytes, sse_event_fn each, void *ud, hearth_error *error)
{
    const struct listener to = {each, ud};
    int status = HEARTH_OK;
    for (size_t at = 0; at < bytes->len && status == HEARTH_OK;) {
        const char *newline = memchr(bytes->v + at, '\n', bytes->len - at);
        const size_t piece = newline != NULL ? (size_t)(newline - (bytes->v + at)) : bytes->len - at;
        if (sse->line.len + piece > SSE_MOST) return refuse("a line", error);
        buf_append(&sse->line, bytes->v + at, piece);
        at += piece + (newline != NULL);
        if (newline == NULL) break;
        status = take_line(sse, &to, error);
        buf_clear(&sse->line);
    }
    return status;
}

void sse_end(struct sse *sse, sse_event_fn each, void *ud)
{
    hearth_error ignored;
    const struct listener to = {each, ud};
    if (sse->line.len > 0) take_line(sse, &to, &ignored);
    buf_clear(&sse->line);
    end_event(sse, &to);
}

void sse_release(struct sse *sse)
{
    buf_release(&sse->line);
    buf_release(&sse->data);
    *sse = (struct sse){0};
}
