/* The DRY sampler: see dry.h. Its state belongs to the thread that has the chain. */
#include "llm/dry.h"

#include "base/memory.h"
#include "llm/llm_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A token, and the longest repetition that it would continue. */
struct repeated {
    int32_t token; /* -1: a free entry */
    int32_t length;
};

struct dry {
    struct dry_params params;
    struct dry_breakers *breakers;
    int32_t *tokens; /* the last one first, from `begin` on: each comes before the others */
    size_t begin, cap;
    int32_t n;       /* of them that count, up to params.last_n */
    int32_t *common; /* by how many tokens back: how many there are as the last ones */
    size_t common_cap;
    struct repeated *repeated; /* a hash table */
    uint32_t n_buckets;        /* a power of two */
    size_t repeated_cap;
};

/* Moves those that count to the end of the block, which grows with them. */
static void make_room(struct dry *dry)
{
    size_t n = (size_t)dry->n, cap = n + n / 2 + 64;
    int32_t *old = dry->tokens, *tokens = cap > dry->cap ? mem_alloc(cap * sizeof *tokens) : old;
    if (cap < dry->cap) cap = dry->cap;
    if (n > 0) memmove(tokens + cap - n, old + dry->begin, n * sizeof *tokens);
    if (tokens != old) free(old);
    dry->tokens = tokens;
    dry->begin = cap - n;
    dry->cap = cap;
}

static void accept(struct llama_sampler *sampler, llama_token token)
{
    struct dry *dry = sampler->ctx;
    if (dry->begin == 0) make_room(dry);
    dry->tokens[--dry->begin] = token;
    if (dry->n < dry->params.last_n) dry->n++;
}

static const int32_t *recent_of(const struct dry *dry)
{
    return dry->tokens + dry->begin;
}

/* ---- Repetitions ---- */

/* A repetition reaches back to the last breaker at most. */
static int32_t longest_possible(const struct dry *dry)
{
    for (int32_t i = 0; i < dry->n; i++) {
        int32_t tail = dry_breakers_match(dry->breakers, recent_of(dry), i);
        if (tail >= 0) return i - tail;
    }
    return dry->n;
}

/* How many tokens before each are the same as before the last one: the Z-function, in linear time. */
static void count_common(struct dry *dry)
{
    const int32_t *recent = recent_of(dry);
    int32_t begin = 0, end = 0; /* of the run that reaches back farthest */
    if (dry->common_cap < (size_t)dry->n) {
        dry->common_cap = dry->cap;
        dry->common = mem_grow(dry->common, dry->common_cap, sizeof *dry->common);
    }
    for (int32_t k = 1; k < dry->n; k++) {
        int32_t n = k < end ? dry->common[k - begin] : 0;
        if (n > end - k) n = end - k;
        if (n < 0) n = 0;
        while (k + n < dry->n && recent[n] == recent[k + n]) n++;
        dry->common[k] = n;
        if (k + n > end) {
            begin = k;
            end = k + n;
        }
    }
}

static struct repeated *bucket_of(struct dry *dry, int32_t token)
{
    uint32_t mask = dry->n_buckets - 1, i = (uint32_t)token * 2654435761U >> 7 & mask;
    while (dry->repeated[i].token >= 0 && dry->repeated[i].token != token) i = (i + 1) & mask;
    return &dry->repeated[i];
}

static void clear_repeated(struct dry *dry, uint32_t n)
{
    for (dry->n_buckets = 16; dry->n_buckets < 2 * n;) dry->n_buckets *= 2;
    if (dry->repeated_cap < dry->n_buckets) {
        dry->repeated_cap = dry->n_buckets;
        dry->repeated = mem_grow(dry->repeated, dry->repeated_cap, sizeof *dry->repeated);
    }
    for (uint32_t i = 0; i < dry->n_buckets; i++) dry->repeated[i].token = -1;
}

/* The token that came after such a run would continue it. */
static void note_repeated(struct dry *dry, int32_t limit)
{
    const int32_t *recent = recent_of(dry);
    uint32_t n = 0;
    for (int32_t k = 1; k < dry->n; k++) {
        if (dry->common[k] > limit) dry->common[k] = limit;
        n += dry->common[k] >= dry->params.allowed_length;
    }
    clear_repeated(dry, n);
    for (int32_t k = 1; k < dry->n; k++) {
        int32_t length = dry->common[k];
        if (length < dry->params.allowed_length) continue;
        struct repeated *repeated = bucket_of(dry, recent[k - 1]);
        if (repeated->token < 0 || repeated->length < length) *repeated = (struct repeated){recent[k - 1], length};
    }
}

/* ---- Penalties ---- */

/* Beyond which the power would be larger than any float; 0: it never is. */
static int32_t largest_exponent(float base)
{
    const float log_of_largest = 88.7228391F;
    return base > 1.000001F ? (int32_t)(log_of_largest / logf(base)) : 0;
}

static void penalise(struct dry *dry, llama_token_data_array *candidates)
{
    const struct dry_params *p = &dry->params;
    int32_t largest = largest_exponent(p->base);
    for (size_t i = 0; i < candidates->size; i++) {
        llama_token_data *candidate = &candidates->data[i];
        const struct repeated *repeated = bucket_of(dry, candidate->id);
        if (repeated->token < 0 || dry_breakers_contain(dry->breakers, candidate->id)) continue;
        int32_t exponent = repeated->length - p->allowed_length;
        if (largest > 0 && exponent > largest) exponent = largest;
        candidate->logit -= (float)((double)p->multiplier * pow((double)p->base, (double)exponent));
    }
}

static void apply(struct llama_sampler *sampler, llama_token_data_array *candidates)
{
    struct dry *dry = sampler->ctx;
    if (dry->n <= dry->params.allowed_length) return;
    int32_t limit = longest_possible(dry);
    if (limit < dry->params.allowed_length) return;
    count_common(dry);
    note_repeated(dry, limit);
    penalise(dry, candidates);
    candidates->sorted = false;
}

/* ---- Life ---- */

static const char *name(const struct llama_sampler *sampler)
{
    (void)sampler;
    return "dry";
}

static void close_dry(struct llama_sampler *sampler)
{
    struct dry *dry = sampler->ctx;
    dry_breakers_unref(dry->breakers);
    free(dry->tokens);
    free(dry->common);
    free(dry->repeated);
    free(dry);
}

struct llama_sampler *dry_open(const struct dry_params *params, struct dry_breakers *breakers)
{
    static struct llama_sampler_i calls = {.name = name, .accept = accept, .apply = apply, .free = close_dry};
    struct dry *dry = mem_alloc(sizeof *dry);
    dry->params = *params;
    dry->breakers = breakers;
    return llama_sampler_init(&calls, dry);
}
