/* Decoding of gzip: see gzip.h. */
#include "base/gzip.h"

#include "base/memory.h"

#include <isa-l/igzip_lib.h>
#include <stdlib.h>

/* Decoded at once. */
enum { PIECE = 64 << 10 };

/* One file of gzip, and what it has yet to read. */
struct decoding {
    struct inflate_state state;
    const uint8_t *at, *end;
    uint8_t piece[PIECE];
};

/* Decodes a piece of the file, or what is left of it. */
static enum gzip_fault decode_piece(struct decoding *d, size_t most, struct buf *out)
{
    const size_t left = (size_t)(d->end - d->at);
    const uint32_t given = left < UINT32_MAX ? (uint32_t)left : UINT32_MAX;
    d->state.next_in = (uint8_t *)d->at;
    d->state.avail_in = given;
    d->state.next_out = d->piece;
    d->state.avail_out = PIECE;
    if (isal_inflate(&d->state) != ISAL_DECOMP_OK) return GZIP_BROKEN;
    d->at += given - d->state.avail_in;
    const size_t made = PIECE - d->state.avail_out;
    if (made == 0 && d->at == d->end && d->state.block_state != ISAL_BLOCK_FINISH) return GZIP_BROKEN; /* cut off */
    if (made > most - out->len) return GZIP_TOO_LARGE;
    buf_append(out, d->piece, made);
    return GZIP_OK;
}

enum gzip_fault gzip_decode(const void *bytes, size_t len, size_t most, struct buf *out)
{
    struct decoding *d = mem_alloc(sizeof *d);
    enum gzip_fault fault = len == 0 ? GZIP_BROKEN : GZIP_OK;
    d->at = bytes;
    d->end = d->at + len;
    while (fault == GZIP_OK && d->at < d->end) {
        isal_inflate_init(&d->state);
        d->state.crc_flag = ISAL_GZIP;
        do fault = decode_piece(d, most, out);
        while (fault == GZIP_OK && d->state.block_state != ISAL_BLOCK_FINISH);
    }
    if (fault != GZIP_OK) buf_release(out);
    free(d);
    return fault;
}
