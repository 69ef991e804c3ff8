/* Operations on token lists. */
#include "base/tokens.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

void tokens_append(struct tokens *t, const int32_t *v, size_t len)
{
    if (len == 0) return;
    if (t->len + len > t->cap) {
        size_t cap = t->cap < 64 ? 64 : t->cap;
        while (cap < t->len + len) cap *= 2;
        t->v = mem_grow(t->v, cap, sizeof *t->v);
        t->cap = cap;
    }
    memcpy(t->v + t->len, v, len * sizeof *v);
    t->len += len;
}

void tokens_push(struct tokens *t, int32_t token)
{
    tokens_append(t, &token, 1);
}

void tokens_truncate(struct tokens *t, size_t len)
{
    if (len < t->len) t->len = len;
}

void tokens_release(struct tokens *t)
{
    free(t->v);
    *t = (struct tokens){0};
}

size_t tokens_common_prefix(const struct tokens *a, const struct tokens *b)
{
    size_t max = a->len < b->len ? a->len : b->len, n = 0;
    while (n < max && a->v[n] == b->v[n]) n++;
    return n;
}

bool tokens_note_divergence(const struct tokens *t, const struct tokens *other, struct divergence *divergence)
{
    size_t common = tokens_common_prefix(t, other), rest = other->len - common;
    if (common <= (size_t)divergence->common) return false;
    *divergence = (struct divergence){.common = (int32_t)common,
                                      .n_next = (int32_t)(rest < DIVERGENCE_NEXT ? rest : DIVERGENCE_NEXT)};
    memcpy(divergence->next, other->v + common, (size_t)divergence->n_next * sizeof *divergence->next);
    return true;
}

/* FNV-1a (http://www.isthe.com/chongo/tech/comp/fnv/), a token at a time. */
uint64_t tokens_short_hash(const struct tokens *t)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < t->len; i++) hash = (hash ^ (uint32_t)t->v[i]) * 0x100000001b3u;
    return hash;
}
