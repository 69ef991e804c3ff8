/* See media_spans.h. A prompt has few media: lists are walked. */
#include "base/media_spans.h"

#include "base/little.h"
#include "base/memory.h"
#include "base/sha256.h"

#include <stdlib.h>
#include <string.h>

void media_spans_add(struct media_spans *spans, const struct media_span *span)
{
    spans->v = mem_room(spans->v, spans->len, &spans->cap, sizeof *spans->v);
    spans->v[spans->len++] = *span;
}

void media_spans_copy(struct media_spans *to, const struct media_spans *from)
{
    to->len = 0;
    for (size_t i = 0; i < from->len; i++) media_spans_add(to, &from->v[i]);
}

void media_spans_release(struct media_spans *spans)
{
    free(spans->v);
    *spans = (struct media_spans){0};
}

/* ---- Tokens ---- */

/* Negative, and none of the small negative numbers that mean "none" somewhere: 30 bits of the hash. */
#define SIGN UINT32_C(0x80000000)
#define HASH UINT32_C(0x3fffffff)

enum { WORDS = SHA256_BYTES / 4 };

void media_tokens_append(struct tokens *tokens, const uint8_t key[32], int32_t n)
{
    uint8_t seed[SHA256_BYTES + 4], hash[SHA256_BYTES];
    memcpy(seed, key, SHA256_BYTES);
    for (int32_t i = 0; i < n; i++) {
        if (i % WORDS == 0) {
            little_put(seed + SHA256_BYTES, (uint64_t)(i / WORDS), 4);
            sha256_of(seed, sizeof seed, hash);
        }
        uint32_t word = (uint32_t)little_get(hash + i % WORDS * 4, 4);
        tokens_push(tokens, (int32_t)((word & HASH) | SIGN));
    }
}

bool media_token_is_one(int32_t token)
{
    return ((uint32_t)token & ~HASH) == SIGN;
}

/* ---- Places ---- */

const struct media_span *media_spans_at(const struct media_spans *spans, int32_t index)
{
    for (size_t i = 0; i < spans->len; i++)
        if (index >= spans->v[i].at && index < spans->v[i].at + spans->v[i].n) return &spans->v[i];
    return NULL;
}

int32_t media_spans_whole(const struct media_spans *spans, int32_t n)
{
    const struct media_span *span = n > 0 ? media_spans_at(spans, n) : NULL;
    return span == NULL ? n : span->at;
}

int32_t media_spans_told(const struct media_spans *spans, int32_t n)
{
    for (size_t i = 0; i < spans->len; i++)
        if (spans->v[i].n < MEDIA_TOLD_ROWS) return n < spans->v[i].at ? n : spans->v[i].at;
    return n;
}

int32_t media_spans_position(const struct media_spans *spans, int32_t index)
{
    int32_t saved = 0;
    for (size_t i = 0; i < spans->len && spans->v[i].at < index; i++) {
        const struct media_span *span = &spans->v[i];
        if (index < span->at + span->n) return (span->n_pos == span->n ? index : span->at) - saved;
        saved += span->n - span->n_pos;
    }
    return index - saved;
}

int32_t media_spans_index(const struct media_spans *spans, int32_t position)
{
    int32_t saved = 0;
    for (size_t i = 0; i < spans->len && spans->v[i].at - saved <= position; i++) {
        const struct media_span *span = &spans->v[i];
        if (position < span->at - saved + span->n_pos) return span->n_pos == span->n ? position + saved : span->at;
        saved += span->n - span->n_pos;
    }
    return position + saved;
}
