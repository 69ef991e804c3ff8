/* Helpers of the index tests: an identity, token lists, and saving, looking up and deleting in one call. */
#ifndef UNIT_STORE_INDEX_HELPERS_H
#define UNIT_STORE_INDEX_HELPERS_H

#include "base/memory.h"
#include "fakes/cmocka_all.h"
#include "store/index/index_parts.h"

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

/* Deletes all victims, as a tier does before it writes. Returns how many. */
static inline size_t delete_all(struct index *index, struct victim *victims)
{
    size_t n = 0;
    for (struct victim *next; victims != NULL; victims = next, n++) {
        next = victims->next;
        index_deleted(index, victims);
    }
    return n;
}

/* Evicts everything that is not pinned. */
static inline struct victim *evict_all(struct index *index)
{
    index_set_foreign(index, UINT64_MAX); /* foreign files take the whole quota */
    struct victim *victims = index_trim(index);
    index_set_foreign(index, 0);
    return victims;
}

/* `tokens` are all of [0, end), until reserve() finds the parent. */
static inline struct reserve reserve_of(const struct identity *identity, const int32_t *tokens, int32_t start,
                                        int32_t end, uint64_t size)
{
    return (struct reserve){.identity = identity,
                            .kind = SLAB_ROWS,
                            .key = slab_key_of(identity, tokens, (size_t)end),
                            .tokens = tokens,
                            .start = start,
                            .end = end,
                            .size = size};
}

/* The parent for an entry of that kind, pinned; NULL: there is none. */
static inline struct entry *find_parent(struct index *index, const struct reserve *what)
{
    bool alone = what->kind == SLAB_STATE && what->start < what->end;
    struct index_lookup lookup = {
        .identity = what->identity, .tokens = what->tokens, .n = what->start, .states = alone};
    struct match match;
    index_find(index, &lookup, &match);
    struct entry *parent = alone ? match.state : match.rows;
    bool fits = parent != NULL && (alone ? match.n_state : match.n_rows) == what->start;
    if (fits) index_pin(index, parent);
    index_release(index, &match);
    return fits ? parent : NULL;
}

/* Looks up the parent, and holds it only until it has reserved, as a save does. */
static inline enum reserved reserve(struct index *index, const struct reserve *what, struct reservation **reservation,
                                    struct victim **victims)
{
    struct reserve own = *what;
    own.parent = what->start > 0 ? find_parent(index, what) : NULL;
    own.tokens += what->start;
    enum reserved result = index_reserve(index, &own, reservation, victims);
    if (own.parent != NULL) index_unpin(index, own.parent);
    return result;
}

/* Reserves, deletes, publishes; gives the pin back. */
static inline enum reserved save(struct index *index, const struct reserve *what, int64_t now_ms)
{
    struct reservation *reservation;
    struct victim *victims;
    enum reserved result = reserve(index, what, &reservation, &victims);
    delete_all(index, victims);
    if (result != RESERVED) return result;
    struct entry *entry = index_publish(index, reservation, what->size, NULL, now_ms);
    assert_non_null(entry);
    index_unpin(index, entry);
    return RESERVED;
}

/* Stays pinned until index_release(). */
static inline struct match find(struct index *index, const struct identity *identity, const int32_t *tokens, int32_t n,
                                int32_t stride, bool states)
{
    struct slab_key *keys = mem_alloc((size_t)(n / stride + 1) * sizeof *keys);
    slab_keys_at_strides(identity, tokens, (size_t)n, (size_t)stride, keys);
    struct index_lookup lookup = {.identity = identity, .tokens = tokens, .n = n, .keys = keys, .states = states};
    struct match match;
    index_find(index, &lookup, &match);
    free(keys);
    return match;
}

/* How many of the entry's tokens equal these, up to n, compared one by one. Its ancestors reach back to the start. An
 * entry that has left has no tokens any more. */
static inline int32_t verified(struct index *index, const struct entry *entry, const int32_t *tokens, int32_t n)
{
    int32_t good = 0;
    if (entry == NULL) return 0;
    int32_t *are = mem_grow(NULL, (size_t)entry->end, sizeof *are);
    index_lock(index);
    bool there = item_of(entry)->state == ITEM_FOUND;
    if (there) index_copy_tokens(entry, are);
    index_unlock(index);
    while (good < n && (!there || are[good] == tokens[good])) good++;
    free(are);
    for (int32_t upto = n; entry != NULL; entry = entry->parent) {
        assert_true(entry->start < upto || entry->kind == SLAB_STATE);
        if (entry->start < upto) upto = entry->start;
        if (entry->parent == NULL) assert_int_equal(upto, 0);
    }
    return good;
}

#endif
