/* msgpack (https://github.com/msgpack/msgpack/blob/master/spec.md), as much of it as these events need: nil, unsigned
 * numbers, a double, strings, arrays. */
#include "serve/events/wire.h"

#include "serve/core/call.h"

#include <string.h>

/* ---- msgpack ---- */

static void put_byte(struct buf *out, unsigned byte)
{
    char c = (char)byte;
    buf_append(out, &c, 1);
}

/* Big-endian. */
static void put_bytes(struct buf *out, uint64_t value, int n)
{
    while (n-- > 0) put_byte(out, (unsigned)(value >> 8 * n) & 0xff);
}

static void put_nil(struct buf *out)
{
    put_byte(out, 0xc0);
}

static void put_number(struct buf *out, uint64_t value)
{
    if (value < 0x80) {
        put_byte(out, (unsigned)value);
        return;
    }
    int width = value <= UINT8_MAX ? 0 : value <= UINT16_MAX ? 1 : value <= UINT32_MAX ? 2 : 3;
    put_byte(out, 0xccu + (unsigned)width);
    put_bytes(out, value, 1 << width);
}

static void put_array(struct buf *out, size_t n)
{
    if (n < 16) {
        put_byte(out, 0x90u | (unsigned)n);
    } else {
        put_byte(out, 0xdd);
        put_bytes(out, n, 4);
    }
}

/* NULL: nil. */
static void put_text(struct buf *out, const char *text)
{
    if (text == NULL) {
        put_nil(out);
        return;
    }
    size_t len = strlen(text);
    if (len < 32) {
        put_byte(out, 0xa0u | (unsigned)len);
    } else {
        put_byte(out, 0xdb);
        put_bytes(out, len, 4);
    }
    buf_append(out, text, len);
}

/* ---- Events ---- */

static void put_blocks(struct buf *out, const hearth_block_event *event)
{
    put_array(out, event->n_blocks);
    for (size_t i = 0; i < event->n_blocks; i++) put_number(out, event->blocks[i]);
}

static void put_stored(struct buf *out, const hearth_block_event *event)
{
    put_array(out, 9);
    put_text(out, "BlockStored");
    put_blocks(out, event);
    if (event->parent == 0)
        put_nil(out);
    else
        put_number(out, event->parent);
    put_array(out, event->n_blocks * HEARTH_BLOCK);
    /* The row of an image or a sound has a negative token, which routers take without its sign. */
    for (size_t i = 0; i < event->n_blocks * HEARTH_BLOCK; i++) put_number(out, (uint32_t)event->tokens[i]);
    put_number(out, HEARTH_BLOCK);
    put_nil(out);
    put_text(out, event->medium);
    put_text(out, event->adapters);
    /* The extra keys, one a block: the salt belongs to the first block of a prefix, and through it to all behind. */
    const char *salt = call_own_salt(event->salt);
    if (salt == NULL || event->parent != 0) {
        put_nil(out);
        return;
    }
    put_array(out, event->n_blocks);
    put_array(out, 1);
    put_text(out, salt);
    for (size_t i = 1; i < event->n_blocks; i++) put_nil(out);
}

/* ---- Batches ---- */

/* Bytes before the first event: an array of three, the time, an array whose length is filled in at the end. */
enum { HEAD_BYTES = 1 + 9 + 5 };

static void put_head(struct buf *out, double time, size_t n_events)
{
    uint64_t bits;
    memcpy(&bits, &time, sizeof bits);
    put_array(out, 3);
    put_byte(out, 0xcb); /* a double */
    put_bytes(out, bits, sizeof bits);
    put_byte(out, 0xdd);
    put_bytes(out, n_events, 4);
}

void wire_add(struct wire *wire, const hearth_block_event *event)
{
    struct buf *out = &wire->out;
    if (wire->n_events++ == 0) put_head(out, 0, 0);
    switch (event->type) {
    case HEARTH_BLOCKS_STORED:
        put_stored(out, event);
        break;
    case HEARTH_BLOCKS_REMOVED:
        put_array(out, 3);
        put_text(out, "BlockRemoved");
        put_blocks(out, event);
        put_text(out, event->medium);
        break;
    case HEARTH_BLOCKS_CLEARED:
        put_array(out, 1);
        put_text(out, "AllBlocksCleared");
        break;
    }
}

void wire_end(struct wire *wire, double time)
{
    struct buf head = {0};
    put_head(&head, time, wire->n_events);
    memcpy(wire->out.v, head.v, HEAD_BYTES);
    buf_release(&head);
    put_nil(&wire->out);
}

void wire_clear(struct wire *wire)
{
    buf_clear(&wire->out);
    wire->n_events = 0;
}

void wire_release(struct wire *wire)
{
    buf_release(&wire->out);
    wire->n_events = 0;
}
