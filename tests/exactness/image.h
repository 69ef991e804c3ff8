/* The bytes of a sequence's cells, position by position, read from a saved state, whatever the order of the cells and
 * the number of the sequence. The format is llama.cpp's own (state_write() of its memory types). */
#ifndef EXACTNESS_IMAGE_H
#define EXACTNESS_IMAGE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/memory.h"
#include "llm/context.h"

#include <string.h>

enum { WINDOW = 1024, SECTIONS = 2 };

/* The positions that one section of a state holds, and a hash of all bytes of each: keys and values of every layer. A
 * recurrent state has one position, the last. */
struct cells {
    int32_t from, n;
    uint64_t hash[WINDOW];
};

struct image {
    struct cells sections[SECTIONS];
};

struct reader {
    const uint8_t *at, *end;
};

static inline const uint8_t *take(struct reader *reader, size_t size)
{
    assert_true(size <= (size_t)(reader->end - reader->at));
    reader->at += size;
    return reader->at - size;
}

static inline uint32_t take_u32(struct reader *reader)
{
    uint32_t value;
    memcpy(&value, take(reader, sizeof value), sizeof value);
    return value;
}

static inline uint64_t take_u64(struct reader *reader)
{
    uint64_t value;
    memcpy(&value, take(reader, sizeof value), sizeof value);
    return value;
}

static inline void fold(uint64_t *hash, const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) *hash = (*hash ^ bytes[i]) * 0x100000001b3;
}

/* The next `size` bytes of every cell. */
static inline void fold_column(struct reader *reader, struct cells *cells, const int32_t *order, size_t size)
{
    for (int32_t i = 0; i < cells->n; i++) fold(&cells->hash[order[i]], take(reader, size), size);
}

/* Cells are in any order; `order` gets the index of each one's position. */
static inline void read_positions(struct reader *reader, bool coordinates, struct cells *cells, int32_t *order)
{
    const uint8_t *coordinate[WINDOW];
    cells->from = INT32_MAX;
    for (int32_t i = 0; i < cells->n; i++) {
        order[i] = (int32_t)take_u32(reader);
        if (order[i] < cells->from) cells->from = order[i];
        uint32_t n_seq = take_u32(reader);
        coordinate[i] = take(reader, coordinates ? 12 : 0);
        take(reader, n_seq * sizeof(int32_t));
    }
    for (int32_t i = 0; i < cells->n; i++) {
        order[i] -= cells->from;
        assert_in_range(order[i], 0, cells->n - 1); /* nothing is missing, … */
        assert_true(cells->hash[order[i]] == 0);    /* … since nothing is there twice */
        cells->hash[order[i]] = 0xcbf29ce484222325;
        fold(&cells->hash[order[i]], coordinate[i], coordinates ? 12 : 0);
    }
}

static inline void read_values(struct reader *reader, struct cells *cells, const int32_t *order, bool transposed)
{
    take_u32(reader); /* type */
    if (!transposed) {
        fold_column(reader, cells, order, take_u64(reader));
    } else {
        size_t size = take_u32(reader);
        for (uint32_t n = take_u32(reader); n > 0; n--) fold_column(reader, cells, order, size);
    }
}

static inline void read_attention(struct reader *reader, bool coordinates, struct cells *cells)
{
    int32_t order[WINDOW];
    for (uint32_t streams = take_u32(reader); streams > 0; streams--) {
        uint32_t n = take_u32(reader);
        if (n == 0) continue;
        assert_true(n <= WINDOW && cells->n == 0);
        cells->n = (int32_t)n;
        read_positions(reader, coordinates, cells, order);
        bool transposed = take_u32(reader) != 0;
        uint32_t layers = take_u32(reader);
        for (uint32_t i = 0; i < layers; i++) read_values(reader, cells, order, false);
        for (uint32_t i = 0; i < layers; i++) read_values(reader, cells, order, transposed);
    }
}

static inline void read_recurrent(struct reader *reader, struct cells *cells)
{
    cells->n = (int32_t)take_u32(reader);
    assert_int_equal(cells->n, 1);
    cells->from = (int32_t)take_u32(reader);
    take_u32(reader); /* no sequences */
    size_t left = (size_t)(reader->end - reader->at);
    fold(&cells->hash[0], take(reader, left), left);
}

/* `sections` lists what the state consists of: K attention cells (a second K a sliding window), R a recurrent state.
 * `coordinates`: each cell carries coordinates, where rotary embeddings have several dimensions. */
static inline void image_of_state(struct image *image, const char *sections, bool coordinates, const struct buf *state)
{
    *image = (struct image){0};
    struct reader reader = {(const uint8_t *)state->v, (const uint8_t *)state->v + state->len};
    assert_true(state->len > 0);
    take(&reader, 2 * sizeof(uint32_t)); /* a magic number and the sequence */
    for (size_t i = 0; sections[i] != '\0'; i++) {
        if (sections[i] == 'K')
            read_attention(&reader, coordinates, &image->sections[i]);
        else
            read_recurrent(&reader, &image->sections[i]);
    }
    assert_true(reader.at == reader.end);
}

/* The first position from `from` on and below `n` whose bytes differ; -1: there is none. */
static inline int32_t image_differs(const struct image *a, const struct image *b, int32_t from, int32_t n)
{
    int32_t first = n;
    for (size_t s = 0; s < SECTIONS; s++) {
        const struct cells *x = &a->sections[s], *y = &b->sections[s];
        int32_t pos = x->from > y->from ? x->from : y->from;
        if (pos < from) pos = from;
        for (; pos < first && pos < x->from + x->n && pos < y->from + y->n; pos++)
            if (x->hash[pos - x->from] != y->hash[pos - y->from]) first = pos;
    }
    return first < n ? first : -1;
}

static inline bool image_holds_the_same(const struct image *a, const struct image *b)
{
    bool same = true;
    for (size_t s = 0; s < SECTIONS; s++)
        same = same && a->sections[s].from == b->sections[s].from && a->sections[s].n == b->sections[s].n;
    return same;
}

static inline void save_state(struct llm_context *context, int32_t seq, struct buf *out)
{
    size_t size = llm_seq_state_size(context, seq, LLM_STATE_SNAPSHOT);
    char *bytes = mem_grow(NULL, size, 1);
    *out = (struct buf){.v = bytes, .len = llm_seq_save(context, seq, LLM_STATE_SNAPSHOT, bytes, size), .cap = size};
}

#endif
