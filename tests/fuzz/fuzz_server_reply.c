/* Fuzzes what a server streams to `hearth chat --server`: the same reply however the bytes are cut, and nothing of it
 * that is shown drives a terminal. */
#include "cli/chat/output.h"
#include "cli/chat/reply_stream.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void require(bool holds)
{
    if (!holds) abort();
}

static void note(void *ud, const struct reply_event *event)
{
    struct buf *out = ud;
    const bool is_text = event->type != REPLY_PROGRESS;
    require(is_text || (event->result->cache_n >= 0 && event->result->prompt_n >= 0));
    if (is_text) buf_append(out, event->text, event->len);
}

/* Reads the stream in pieces of so many bytes. */
static void read_reply(struct chunks *chunks, const uint8_t *data, size_t size, size_t piece, struct buf *out)
{
    struct sse sse = {0};
    hearth_error error;
    *chunks = (struct chunks){.to = {note, out}};
    for (size_t at = 0; at < size; at += piece) {
        struct buf bytes = {0};
        buf_append(&bytes, data + at, size - at < piece ? size - at : piece);
        require(sse_add(&sse, &bytes, chunks_read, chunks, &error) == HEARTH_OK);
        buf_release(&bytes);
    }
    sse_end(&sse, chunks_read, chunks);
    sse_release(&sse);
}

static void check_shown(const struct buf *text)
{
    struct buf shown = {0};
    markdown_put_plain(buf_text(text), text->len, &shown);
    for (size_t i = 0; i < shown.len; i++)
        require((unsigned char)shown.v[i] >= ' ' || shown.v[i] == '\n' || shown.v[i] == '\t');
    buf_release(&shown);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct chunks whole, cut;
    struct buf text = {0}, again = {0};
    const size_t piece = size > 0 ? 1 + data[size - 1] % 16 : 1;
    read_reply(&whole, data, size, size + 1, &text);
    read_reply(&cut, data, size, piece, &again);
    require(text.len == again.len && memcmp(buf_text(&text), buf_text(&again), text.len) == 0);
    require(whole.done == cut.done && whole.finished == cut.finished && whole.error.code == cut.error.code);
    check_shown(&text);
    require(strpbrk(whole.error.message, "\033\a\n\r") == NULL);
    buf_release(&text);
    buf_release(&again);
    return 0;
}
