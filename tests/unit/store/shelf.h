/* What the tests of the index share: an identity, lists of tokens, and saving, finding, deleting in one line. */
#ifndef UNIT_STORE_SHELF_H
#define UNIT_STORE_SHELF_H

#include "base/memory.h"
#include "fakes/cmocka_all.h"
#include "store/index.h"

#include <stdlib.h>
#include <string.h>

static inline struct identity some_identity(int model)
{
    struct identity identity = {.quant = 7};
    memset(identity.model, model, sizeof identity.model);
    memset(identity.context, 0xBB, sizeof identity.context);
    return identity;
}

static inline uint32_t random_below(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525U + 1013904223U;
    return (uint32_t)(((uint64_t)(*state >> 8) * n) >> 24);
}

/* As a tier does before it writes. Returns how many there were. */
static inline size_t delete_all(struct index *index, struct victim *victims)
{
    size_t n = 0;
    for (struct victim *next; victims != NULL; victims = next, n++) {
        next = victims->next;
        index_deleted(index, victims);
    }
    return n;
}

static inline struct reserve reserve_of(const struct identity *identity, const int32_t *tokens, int32_t start,
                                        int32_t end, uint64_t size)
{
    return (struct reserve){.identity = identity,
                            .kind = SLAB_ROWS,
                            .key = key_of(identity, tokens, (size_t)end),
                            .tokens = tokens,
                            .start = start,
                            .end = end,
                            .size = size};
}

/* Reserves, deletes, publishes; gives the lease back. */
static inline enum reserved save(struct index *index, const struct reserve *what, int64_t now_ms)
{
    struct reservation *reservation;
    struct victim *victims;
    enum reserved result = index_reserve(index, what, &reservation, &victims);
    delete_all(index, victims);
    if (result != RESERVED) return result;
    struct entry *entry = index_publish(index, reservation, what->size, NULL, now_ms);
    assert_non_null(entry);
    index_unlease(index, entry);
    return RESERVED;
}

/* Stays leased until index_release(). */
static inline struct match find(struct index *index, const struct identity *identity, const int32_t *tokens, int32_t n,
                                int32_t stride, bool states)
{
    struct key *keys = mem_alloc((size_t)(n / stride + 1) * sizeof *keys);
    keys_at_strides(identity, tokens, (size_t)n, (size_t)stride, keys);
    struct wanted wanted = {.identity = identity, .tokens = tokens, .n = n, .keys = keys, .states = states};
    struct match match;
    index_find(index, &wanted, &match);
    free(keys);
    return match;
}

/* How many of the tokens of the chain that ends in `entry` are these, up to n: one by one. */
static inline int32_t verified(const struct entry *entry, const int32_t *tokens, int32_t n)
{
    int32_t good = n;
    for (int32_t upto = n; entry != NULL; entry = entry->parent) {
        assert_true(entry->start < upto || entry->kind == SLAB_STATE);
        for (int32_t i = entry->start; i < upto && i < entry->end; i++)
            if (entry->tokens.v[i - entry->start] != tokens[i] && i < good) good = i;
        if (entry->start < upto) upto = entry->start;
        if (entry->parent == NULL) assert_int_equal(upto, 0);
    }
    return good;
}

#endif
