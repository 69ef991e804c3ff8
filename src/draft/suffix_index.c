/* An index of runs of three tokens, as chains by hash: see suffix_index.h. */
#include "draft/suffix_index.h"

#include "base/memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    LAST_LEAST = 1 << 10,
    LAST_MOST = 1 << 17, /* with more tokens the chains grow, and TRIED bounds them */
    TRIED = 48           /* positions that a search compares */
};

static uint32_t hash_of(const int32_t *last, int32_t n_last)
{
    uint64_t hash = (uint32_t)last[0] * 0x9e3779b97f4a7c15u;
    hash = (hash ^ (uint32_t)last[-1]) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ (uint32_t)last[-2]) * 0x94d049bb133111ebu;
    return (uint32_t)(hash >> 40) & (uint32_t)(n_last - 1);
}

static void insert(struct suffix_index *index, const struct tokens *tokens, int32_t position)
{
    if (position + 1 < SUFFIX_LEAST) return;
    int32_t *last = &index->last[hash_of(tokens->v + position, index->n_last)];
    index->earlier[position] = *last;
    *last = position;
}

static void grow(struct suffix_index *index, const struct tokens *tokens, int32_t len)
{
    int32_t n_last = index->n_last > 0 ? index->n_last : LAST_LEAST;
    while (n_last < len && n_last < LAST_MOST) n_last *= 2;
    if (len > index->n_room) {
        index->n_room = len > 2 * index->n_room ? len : 2 * index->n_room;
        index->earlier = mem_grow(index->earlier, (size_t)index->n_room, sizeof *index->earlier);
    }
    if (n_last == index->n_last) return;
    index->n_last = n_last;
    index->last = mem_grow(index->last, (size_t)n_last, sizeof *index->last);
    for (int32_t i = 0; i < n_last; i++) index->last[i] = -1;
    for (int32_t i = 0; i < index->len; i++) insert(index, tokens, i);
}

bool suffix_index_extend(struct suffix_index *index, const struct tokens *tokens, int32_t most)
{
    int32_t all = (int32_t)tokens->len;
    assert(index->len <= all && most > 0);
    int32_t to = all - index->len > most ? index->len + most : all;
    if (to > index->len) grow(index, tokens, to);
    for (int32_t i = index->len; i < to; i++) insert(index, tokens, i);
    index->len = to;
    return to == all;
}

void suffix_index_release(struct suffix_index *index)
{
    free(index->earlier);
    free(index->last);
    *index = (struct suffix_index){0};
}

void suffix_index_truncate(struct suffix_index *index, const struct tokens *tokens, int32_t n)
{
    assert(n >= 0 && index->len <= (int32_t)tokens->len);
    if (n == 0) {
        suffix_index_release(index);
        return;
    }
    for (; index->len > n; index->len--) {
        int32_t position = index->len - 1;
        if (position + 1 < SUFFIX_LEAST) continue;
        int32_t *last = &index->last[hash_of(tokens->v + position, index->n_last)];
        assert(*last == position);
        *last = index->earlier[position];
    }
}

int32_t suffix_common(const struct tokens *tokens, int32_t end, const struct tokens *tail)
{
    int32_t most = end < (int32_t)tail->len ? end : (int32_t)tail->len, n = 0;
    if (most > SUFFIX_MOST) most = SUFFIX_MOST;
    while (n < most && tokens->v[end - 1 - n] == tail->v[tail->len - 1 - (size_t)n]) n++;
    return n;
}

struct suffix_match suffix_index_find(const struct suffix_index *index, const struct tokens *tokens,
                                      const struct tokens *tail)
{
    struct suffix_match best = {0};
    if (index->len == 0 || tail->len < SUFFIX_LEAST) return best;
    int32_t position = index->last[hash_of(tail->v + tail->len - 1, index->n_last)];
    for (int i = 0; i < TRIED && position >= 0 && best.len < SUFFIX_MOST; i++, position = index->earlier[position]) {
        if (position + 1 == index->len) continue; /* nothing follows */
        int32_t len = suffix_common(tokens, position + 1, tail);
        if (len >= SUFFIX_LEAST && len > best.len) best = (struct suffix_match){.end = position + 1, .len = len};
    }
    return best;
}
