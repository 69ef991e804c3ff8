/* Test slabs: small ones that differ by a number. Include it after cmocka.h. */
#ifndef TESTS_STORE_SLABS_H
#define TESTS_STORE_SLABS_H

#include "base/memory.h"
#include "store/slabs/slab.h"

#include <stdlib.h>
#include <string.h>

/* A slab before it is encoded. */
struct made {
    struct slab_head head;
    uint8_t *payload;
};

static inline struct slab_key key_number(uint8_t number)
{
    struct slab_key key;
    for (size_t i = 0; i < sizeof key.v; i++) key.v[i] = (uint8_t)(number * 29 + i * 7 + 1);
    return key;
}

static inline void made_region(struct slab_head *head, char what, uint16_t layer, uint32_t rows, uint64_t row_bytes,
                               uint64_t gap)
{
    head->regions = mem_grow(head->regions, head->n_regions + 1, sizeof *head->regions);
    head->regions[head->n_regions++] = (struct slab_region){.what = what,
                                                            .layer = layer,
                                                            .type = 8,
                                                            .rows = rows,
                                                            .row_bytes = row_bytes,
                                                            .offset = head->payload_size + gap,
                                                            .size = rows * row_bytes};
    head->payload_size += gap + rows * row_bytes;
}

/* A slab of `n` tokens after `start`, with a key made of the number; two layers of keys and values, with gaps between
 * them. A STATE slab has a recurrent state and a region without rows. */
static inline struct made make_slab(uint8_t number, enum slab_kind kind, int32_t start, int32_t n)
{
    struct made made = {.head = {.kind = kind,
                                 .reason = (enum slab_reason)(1 + number % 5),
                                 .identity.quant = 6,
                                 .key = key_number(number),
                                 .start = start,
                                 .end = start + n,
                                 .created_ms = 1000 + number,
                                 .used_ms = 2000 + number,
                                 .hits = number}};
    struct slab_head *head = &made.head;
    memset(head->identity.model, 0xaa, sizeof head->identity.model);
    memset(head->identity.context, 0xbb, sizeof head->identity.context);
    if (start > 0) head->parent = key_number((uint8_t)(number + 100));
    for (int32_t i = 0; i < n; i++) tokens_push(&head->tokens, start + i * 3);
    for (uint16_t layer = 0; layer < 2 && kind == SLAB_ROWS; layer++) {
        made_region(head, 'K', layer, (uint32_t)n, 4, 5);
        made_region(head, layer == 0 ? 'V' : 'v', layer, (uint32_t)n, 2, 0);
    }
    if (kind == SLAB_STATE) {
        made_region(head, 'R', 0, 1, 16, 3);
        made_region(head, 'S', 0, 1, 24, 0);
        made_region(head, 'M', 0, 0, 0, 1);
        head->regions[2].size = 7;
        head->payload_size += 7;
    }
    made.payload = mem_alloc(head->payload_size);
    for (uint64_t i = 0; i < head->payload_size; i++) made.payload[i] = (uint8_t)(number * 31 + i * 13);
    return made;
}

static inline void made_release(struct made *made)
{
    slab_head_release(&made->head);
    free(made->payload);
}

/* Its bytes, as in a file. */
static inline struct buf made_bytes(struct made *made)
{
    struct buf bytes = {0};
    uint8_t trailer[SLAB_TRAILER_BYTES];
    slab_encode(&made->head, made->payload, &bytes, trailer);
    buf_append(&bytes, made->payload, made->head.payload_size);
    buf_append(&bytes, trailer, sizeof trailer);
    return bytes;
}

static inline bool same_region(const struct slab_region *a, const struct slab_region *b)
{
    return a->what == b->what && a->layer == b->layer && a->type == b->type && a->rows == b->rows && a->crc == b->crc &&
           a->row_bytes == b->row_bytes && a->offset == b->offset && a->size == b->size;
}

/* Compares all but hits and time of last use. */
static inline bool same_head(const struct slab_head *a, const struct slab_head *b)
{
    bool same = a->kind == b->kind && a->reason == b->reason && a->start == b->start && a->end == b->end &&
                memcmp(&a->identity, &b->identity, sizeof a->identity) == 0 &&
                memcmp(&a->key, &b->key, sizeof a->key) == 0 && memcmp(&a->parent, &b->parent, sizeof a->parent) == 0 &&
                a->tokens.len == b->tokens.len && tokens_common_prefix(&a->tokens, &b->tokens) == a->tokens.len &&
                a->n_regions == b->n_regions && a->payload_size == b->payload_size && a->created_ms == b->created_ms;
    for (size_t i = 0; same && i < a->n_regions; i++) same = same_region(&a->regions[i], &b->regions[i]);
    return same;
}

#endif
