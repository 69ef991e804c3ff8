/* The DRY sampler, and its sequence breakers prepared for a model: which tokens contain one, and which begin one that
 * further tokens complete. They are what llama.cpp finds. See dry.h. */
#include "llm/dry.h"

#include "base/buf.h"
#include "base/memory.h"

#include <assert.h>
#include <llama.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* As in llama.cpp: bytes of a breaker, and tokens behind its first one, that count. */
enum { MAX_BYTES = 40, MAX_TAIL = 20 };

enum { MAX_SETS = 4 };

/* The end of a breaker, as the tokens that come after the one it begins in. */
struct tail {
    int32_t tokens[MAX_TAIL];
    int32_t n;
};

/* A token that begins a breaker. */
struct head {
    int32_t token;
    uint32_t tail; /* in breakers.tails */
};

struct dry_breakers {
    atomic_int references;
    char *key;
    size_t key_len;
    bool *contains; /* by token */
    size_t n_vocab;
    struct tail *tails; /* each once */
    size_t n_tails, tails_cap;
    struct head *heads; /* sorted by token */
    size_t n_heads, heads_cap;
    uint32_t *starts; /* by token, and one more: where its heads begin */
};

struct dry_sets {
    const struct llama_vocab *vocab;
    pthread_mutex_t mutex;                 /* guards what follows */
    struct dry_breakers *recent[MAX_SETS]; /* the one used last comes first; NULL: none */
    struct buf texts;                      /* of all tokens; once made, it and `ends` are immutable */
    size_t *ends;                          /* of each token's text; NULL: not made yet */
};

/* ---- Texts of the vocabulary ---- */

static void take_texts(struct dry_sets *sets)
{
    int32_t n = llama_vocab_n_tokens(sets->vocab);
    sets->ends = mem_alloc(((size_t)n + 1) * sizeof *sets->ends);
    buf_append(&sets->texts, "", 0);
    for (int32_t token = 0; token < n; token++) {
        char small[256], *text = small;
        int32_t len = llama_detokenize(sets->vocab, &token, 1, text, sizeof small, false, true);
        if (len < 0) {
            int32_t size = -len;
            text = mem_alloc((size_t)size);
            len = llama_detokenize(sets->vocab, &token, 1, text, size, false, true);
        }
        if (len > 0) buf_append(&sets->texts, text, (size_t)len);
        if (text != small) free(text);
        sets->ends[token] = sets->texts.len;
    }
}

/* ---- Preparing a set of breakers ---- */

/* One breaker while it is looked for in all tokens. */
struct search {
    struct dry_breakers *breakers;
    const struct llama_vocab *vocab;
    const char *text;
    size_t len;
    int64_t tails[MAX_BYTES]; /* by how many bytes come before it; -1: not made yet */
};

static uint32_t tail_after(struct search *s, size_t n_before)
{
    if (s->tails[n_before] >= 0) return (uint32_t)s->tails[n_before];
    struct dry_breakers *b = s->breakers;
    int32_t tokens[4 * MAX_BYTES];
    struct tail tail = {0};
    int32_t n = llama_tokenize(s->vocab, s->text + n_before, (int32_t)(s->len - n_before), tokens,
                               sizeof tokens / sizeof *tokens, false, false);
    tail.n = n < 0 ? 0 : n < MAX_TAIL ? n : MAX_TAIL;
    memcpy(tail.tokens, tokens, (size_t)tail.n * sizeof *tokens);
    size_t at = 0;
    while (at < b->n_tails &&
           (b->tails[at].n != tail.n || memcmp(b->tails[at].tokens, tail.tokens, sizeof tail.tokens) != 0))
        at++;
    if (at == b->n_tails) {
        b->tails = mem_room(b->tails, b->n_tails, &b->tails_cap, sizeof *b->tails);
        b->tails[b->n_tails++] = tail;
    }
    s->tails[n_before] = (int64_t)at;
    return (uint32_t)at;
}

/* Whether the token contains the breaker; else notes each way in which it ends with the breaker's beginning. */
static bool search_token(struct search *s, int32_t token, const char *text, size_t len)
{
    struct dry_breakers *b = s->breakers;
    size_t ends[MAX_BYTES], n_ends = 0;
    const char *end = text + len;
    for (const char *at = text; at < end && (at = memchr(at, s->text[0], (size_t)(end - at))) != NULL; at++) {
        size_t left = (size_t)(end - at);
        if (memcmp(at, s->text, left < s->len ? left : s->len) != 0) continue;
        if (left >= s->len) return true;
        ends[n_ends++] = left;
    }
    for (size_t i = 0; i < n_ends; i++) {
        uint32_t tail = tail_after(s, ends[i]);
        if (b->tails[tail].n == 0) b->contains[token] = true;
        b->heads = mem_room(b->heads, b->n_heads, &b->heads_cap, sizeof *b->heads);
        b->heads[b->n_heads++] = (struct head){token, tail};
    }
    return false;
}

static int by_head(const void *a, const void *b)
{
    const struct head *x = a, *y = b;
    if (x->token != y->token) return x->token < y->token ? -1 : 1;
    return (x->tail > y->tail) - (x->tail < y->tail);
}

static struct dry_breakers *prepare(const struct dry_sets *sets, const char *const *texts, size_t n, struct buf *key)
{
    struct dry_breakers *b = mem_alloc(sizeof *b);
    atomic_init(&b->references, 1);
    b->n_vocab = (size_t)llama_vocab_n_tokens(sets->vocab);
    b->contains = mem_alloc((b->n_vocab + 1) * sizeof *b->contains);
    for (size_t i = 0; i < n; i++) {
        if (texts[i] == NULL || texts[i][0] == '\0') continue;
        struct search s = {.breakers = b, .vocab = sets->vocab, .text = texts[i], .len = strnlen(texts[i], MAX_BYTES)};
        for (size_t k = 0; k < MAX_BYTES; k++) s.tails[k] = -1;
        for (size_t token = 0, start = 0; token < b->n_vocab; start = sets->ends[token++])
            if (search_token(&s, (int32_t)token, sets->texts.v + start, sets->ends[token] - start))
                b->contains[token] = true;
    }
    size_t n_heads = 0; /* that differ */
    if (b->n_heads > 0) qsort(b->heads, b->n_heads, sizeof *b->heads, by_head);
    for (size_t i = 0; i < b->n_heads; i++)
        if (n_heads == 0 || by_head(&b->heads[n_heads - 1], &b->heads[i]) != 0) b->heads[n_heads++] = b->heads[i];
    b->n_heads = n_heads;
    b->starts = mem_alloc((b->n_vocab + 1) * sizeof *b->starts);
    for (size_t token = 0, i = 0; token <= b->n_vocab; token++) {
        while (i < n_heads && (size_t)b->heads[i].token < token) i++;
        b->starts[token] = (uint32_t)i;
    }
    b->key_len = key->len;
    b->key = buf_take(key);
    return b;
}

void dry_breakers_unref(struct dry_breakers *b)
{
    if (b == NULL || atomic_fetch_sub(&b->references, 1) > 1) return;
    free(b->key);
    free(b->contains);
    free(b->tails);
    free(b->heads);
    free(b->starts);
    free(b);
}

/* ---- Sets ---- */

struct dry_sets *dry_sets_open(const struct llama_vocab *vocab)
{
    struct dry_sets *sets = mem_alloc(sizeof *sets);
    sets->vocab = vocab;
    pthread_mutex_init(&sets->mutex, NULL);
    return sets;
}

void dry_sets_close(struct dry_sets *sets)
{
    if (sets == NULL) return;
    for (size_t i = 0; i < MAX_SETS; i++) dry_breakers_unref(sets->recent[i]);
    pthread_mutex_destroy(&sets->mutex);
    buf_release(&sets->texts);
    free(sets->ends);
    free(sets);
}

static void put_first(struct dry_sets *sets, size_t from, struct dry_breakers *b)
{
    memmove(sets->recent + 1, sets->recent, from * sizeof(struct dry_breakers *));
    sets->recent[0] = b;
}

struct dry_breakers *dry_breakers_of(struct dry_sets *sets, const char *const *texts, size_t n)
{
    assert(sets != NULL && (texts != NULL || n == 0));
    struct buf key = {0};
    buf_append(&key, "", 0);
    for (size_t i = 0; i < n; i++)
        if (texts[i] != NULL) buf_append(&key, texts[i], strlen(texts[i]) + 1);
    pthread_mutex_lock(&sets->mutex);
    if (sets->ends == NULL) take_texts(sets);
    struct dry_breakers *b = NULL;
    for (size_t i = 0; i < MAX_SETS && sets->recent[i] != NULL; i++) {
        struct dry_breakers *one = sets->recent[i];
        if (one->key_len != key.len || memcmp(one->key, key.v, key.len) != 0) continue;
        b = one;
        put_first(sets, i, b);
        atomic_fetch_add(&b->references, 1);
        break;
    }
    pthread_mutex_unlock(&sets->mutex);
    if (b == NULL) {
        b = prepare(sets, texts, n, &key);
        /* Two threads may have prepared the same: the earlier one ages out. */
        pthread_mutex_lock(&sets->mutex);
        struct dry_breakers *last = sets->recent[MAX_SETS - 1];
        put_first(sets, MAX_SETS - 1, b);
        atomic_fetch_add(&b->references, 1);
        pthread_mutex_unlock(&sets->mutex);
        dry_breakers_unref(last);
    }
    buf_release(&key);
    return b;
}

/* ---- Matching ---- */

/* Whether the token contains a breaker. */
static bool contains_breaker(const struct dry_breakers *b, int32_t token)
{
    return token >= 0 && (size_t)token < b->n_vocab && b->contains[token];
}

/* How many tokens after recent[i] belong to the longest breaker that begins there, where recent[0] is the last token;
 * -1: none begins there. */
static int32_t match_breaker(const struct dry_breakers *b, const int32_t *recent, int32_t i)
{
    int32_t token = recent[i], longest = contains_breaker(b, token) ? 0 : -1;
    if (token < 0 || (size_t)token >= b->n_vocab) return -1;
    for (uint32_t k = b->starts[token]; k < b->starts[token + 1]; k++) {
        const struct tail *tail = &b->tails[b->heads[k].tail];
        if (tail->n <= longest || tail->n > i) continue;
        int32_t same = 0;
        while (same < tail->n && tail->tokens[same] == recent[i - 1 - same]) same++;
        if (same == tail->n) longest = same;
    }
    return longest;
}

/* ---- The sampler ---- */

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

static void accept_dry(struct llama_sampler *sampler, llama_token token)
{
    struct dry *dry = sampler->ctx;
    if (dry->begin == 0) { /* those that count move to the end of the block, which grows with them */
        size_t n = (size_t)dry->n, cap = n + n / 2 + 64;
        int32_t *old = dry->tokens, *tokens = cap > dry->cap ? mem_alloc(cap * sizeof *tokens) : old;
        if (cap < dry->cap) cap = dry->cap;
        if (n > 0) memmove(tokens + cap - n, old, n * sizeof *tokens);
        if (tokens != old) free(old);
        dry->tokens = tokens;
        dry->begin = cap - n;
        dry->cap = cap;
    }
    dry->tokens[--dry->begin] = token;
    if (dry->n < dry->params.last_n) dry->n++;
}

static const int32_t *recent_of(const struct dry *dry)
{
    return dry->tokens + dry->begin;
}

/* ---- Repetitions ---- */

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

/* The token that came after such a run would continue it. */
static void note_repeated(struct dry *dry, int32_t limit)
{
    const int32_t *recent = recent_of(dry);
    uint32_t n = 0;
    for (int32_t k = 1; k < dry->n; k++) {
        if (dry->common[k] > limit) dry->common[k] = limit;
        n += dry->common[k] >= dry->params.allowed_length;
    }
    for (dry->n_buckets = 16; dry->n_buckets < 2 * n;) dry->n_buckets *= 2;
    if (dry->repeated_cap < dry->n_buckets) {
        dry->repeated_cap = dry->n_buckets;
        dry->repeated = mem_grow(dry->repeated, dry->repeated_cap, sizeof *dry->repeated);
    }
    for (uint32_t i = 0; i < dry->n_buckets; i++) dry->repeated[i].token = -1;
    for (int32_t k = 1; k < dry->n; k++) {
        int32_t length = dry->common[k];
        if (length < dry->params.allowed_length) continue;
        struct repeated *repeated = bucket_of(dry, recent[k - 1]);
        if (repeated->token < 0 || repeated->length < length) *repeated = (struct repeated){recent[k - 1], length};
    }
}

/* ---- Penalties ---- */

static void apply_dry(struct llama_sampler *sampler, llama_token_data_array *candidates)
{
    struct dry *dry = sampler->ctx;
    const struct dry_params *p = &dry->params;
    if (dry->n <= p->allowed_length) return;
    int32_t limit = dry->n; /* a repetition reaches back to the last breaker at most */
    for (int32_t i = 0; i < dry->n; i++) {
        int32_t tail = match_breaker(dry->breakers, recent_of(dry), i);
        if (tail < 0) continue;
        limit = i - tail;
        break;
    }
    if (limit < p->allowed_length) return;
    count_common(dry);
    note_repeated(dry, limit);
    /* The exponent beyond which the power would be larger than any float; 0: it never is. */
    const float log_of_largest = 88.7228391F;
    int32_t largest = p->base > 1.000001F ? (int32_t)(log_of_largest / logf(p->base)) : 0;
    for (size_t i = 0; i < candidates->size; i++) {
        llama_token_data *candidate = &candidates->data[i];
        const struct repeated *repeated = bucket_of(dry, candidate->id);
        if (repeated->token < 0 || contains_breaker(dry->breakers, candidate->id)) continue;
        int32_t exponent = repeated->length - p->allowed_length;
        if (largest > 0 && exponent > largest) exponent = largest;
        candidate->logit -= (float)((double)p->multiplier * pow((double)p->base, (double)exponent));
    }
    candidates->sorted = false;
}

/* ---- Life ---- */

static const char *name_dry(const struct llama_sampler *sampler)
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
    assert(params->last_n >= 1 && breakers != NULL);
    static struct llama_sampler_i calls = {
        .name = name_dry, .accept = accept_dry, .apply = apply_dry, .free = close_dry};
    struct dry *dry = mem_alloc(sizeof *dry);
    dry->params = *params;
    dry->breakers = breakers;
    return llama_sampler_init(&calls, dry);
}
