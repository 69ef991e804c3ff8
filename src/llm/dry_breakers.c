/* Prepares sequence breakers and keeps the sets that were used last: see dry_breakers.h. */
#include "llm/dry_breakers.h"

#include "base/memory.h"
#include "llm/llm_parts.h"

#include <pthread.h>
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

/* ---- Texts ---- */

static void append_text(const struct llama_vocab *vocab, int32_t token, struct buf *texts)
{
    char small[256], *text = small;
    int32_t n = llama_detokenize(vocab, &token, 1, text, sizeof small, false, true);
    if (n < 0) {
        int32_t size = -n;
        text = mem_alloc((size_t)size);
        n = llama_detokenize(vocab, &token, 1, text, size, false, true);
    }
    if (n > 0) buf_append(texts, text, (size_t)n);
    if (text != small) free(text);
}

static void take_texts(struct dry_sets *sets)
{
    int32_t n = llama_vocab_n_tokens(sets->vocab);
    sets->ends = mem_alloc(((size_t)n + 1) * sizeof *sets->ends);
    buf_append(&sets->texts, "", 0);
    for (int32_t token = 0; token < n; token++) {
        append_text(sets->vocab, token, &sets->texts);
        sets->ends[token] = sets->texts.len;
    }
}

/* ---- Preparing a set ---- */

static uint32_t add_tail(struct dry_breakers *b, const struct tail *tail)
{
    for (size_t i = 0; i < b->n_tails; i++)
        if (b->tails[i].n == tail->n && memcmp(b->tails[i].tokens, tail->tokens, sizeof tail->tokens) == 0)
            return (uint32_t)i;
    if (b->n_tails == b->tails_cap) {
        b->tails_cap = b->tails_cap == 0 ? 64 : b->tails_cap * 2;
        b->tails = mem_grow(b->tails, b->tails_cap, sizeof *b->tails);
    }
    b->tails[b->n_tails] = *tail;
    return (uint32_t)b->n_tails++;
}

static void add_head(struct dry_breakers *b, int32_t token, uint32_t tail)
{
    if (b->n_heads == b->heads_cap) {
        b->heads_cap = b->heads_cap == 0 ? 1024 : b->heads_cap * 2;
        b->heads = mem_grow(b->heads, b->heads_cap, sizeof *b->heads);
    }
    b->heads[b->n_heads++] = (struct head){token, tail};
}

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
    int32_t tokens[4 * MAX_BYTES];
    struct tail tail = {0};
    int32_t n = llama_tokenize(s->vocab, s->text + n_before, (int32_t)(s->len - n_before), tokens,
                               sizeof tokens / sizeof *tokens, false, false);
    tail.n = n < 0 ? 0 : n < MAX_TAIL ? n : MAX_TAIL;
    memcpy(tail.tokens, tokens, (size_t)tail.n * sizeof *tokens);
    s->tails[n_before] = add_tail(s->breakers, &tail);
    return (uint32_t)s->tails[n_before];
}

/* Whether the token contains the breaker; else notes each way in which it ends with the breaker's beginning. */
static bool search_token(struct search *s, int32_t token, const char *text, size_t len)
{
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
        if (s->breakers->tails[tail].n == 0) s->breakers->contains[token] = true;
        add_head(s->breakers, token, tail);
    }
    return false;
}

static void search_all(const struct dry_sets *sets, struct dry_breakers *b, const char *text)
{
    struct search s = {.breakers = b, .vocab = sets->vocab, .text = text, .len = strnlen(text, MAX_BYTES)};
    size_t start = 0;
    if (s.len == 0) return;
    for (size_t i = 0; i < MAX_BYTES; i++) s.tails[i] = -1;
    for (size_t token = 0; token < b->n_vocab; start = sets->ends[token++])
        if (search_token(&s, (int32_t)token, sets->texts.v + start, sets->ends[token] - start))
            b->contains[token] = true;
}

static int by_token(const void *a, const void *b)
{
    const struct head *x = a, *y = b;
    if (x->token != y->token) return x->token < y->token ? -1 : 1;
    return (x->tail > y->tail) - (x->tail < y->tail);
}

static void sort_heads(struct dry_breakers *b)
{
    size_t n = 0;
    if (b->n_heads > 0) qsort(b->heads, b->n_heads, sizeof *b->heads, by_token);
    for (size_t i = 0; i < b->n_heads; i++)
        if (n == 0 || by_token(&b->heads[n - 1], &b->heads[i]) != 0) b->heads[n++] = b->heads[i];
    b->n_heads = n;
    b->starts = mem_alloc((b->n_vocab + 1) * sizeof *b->starts);
    for (size_t token = 0, i = 0; token <= b->n_vocab; token++) {
        while (i < n && (size_t)b->heads[i].token < token) i++;
        b->starts[token] = (uint32_t)i;
    }
}

static struct dry_breakers *prepare(const struct dry_sets *sets, const char *const *texts, size_t n, struct buf *key)
{
    struct dry_breakers *b = mem_alloc(sizeof *b);
    atomic_init(&b->references, 1);
    b->n_vocab = (size_t)llama_vocab_n_tokens(sets->vocab);
    b->contains = mem_alloc((b->n_vocab + 1) * sizeof *b->contains);
    for (size_t i = 0; i < n; i++)
        if (texts[i] != NULL) search_all(sets, b, texts[i]);
    sort_heads(b);
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

/* With the mutex. */
static struct dry_breakers *find_set(struct dry_sets *sets, const struct buf *key)
{
    for (size_t i = 0; i < MAX_SETS && sets->recent[i] != NULL; i++) {
        struct dry_breakers *b = sets->recent[i];
        if (b->key_len != key->len || memcmp(b->key, key->v, key->len) != 0) continue;
        put_first(sets, i, b);
        atomic_fetch_add(&b->references, 1);
        return b;
    }
    return NULL;
}

/* Two threads may have prepared the same: the earlier one ages out. */
static void keep_set(struct dry_sets *sets, struct dry_breakers *b)
{
    pthread_mutex_lock(&sets->mutex);
    struct dry_breakers *last = sets->recent[MAX_SETS - 1];
    put_first(sets, MAX_SETS - 1, b);
    atomic_fetch_add(&b->references, 1);
    pthread_mutex_unlock(&sets->mutex);
    dry_breakers_unref(last);
}

struct dry_breakers *dry_breakers_of(struct dry_sets *sets, const char *const *texts, size_t n)
{
    struct buf key = {0};
    buf_append(&key, "", 0);
    for (size_t i = 0; i < n; i++)
        if (texts[i] != NULL) buf_append(&key, texts[i], strlen(texts[i]) + 1);
    pthread_mutex_lock(&sets->mutex);
    if (sets->ends == NULL) take_texts(sets);
    struct dry_breakers *b = find_set(sets, &key);
    pthread_mutex_unlock(&sets->mutex);
    if (b == NULL) {
        b = prepare(sets, texts, n, &key);
        keep_set(sets, b);
    }
    buf_release(&key);
    return b;
}

/* ---- Matching ---- */

bool dry_breakers_contain(const struct dry_breakers *b, int32_t token)
{
    return token >= 0 && (size_t)token < b->n_vocab && b->contains[token];
}

static bool follows(const struct tail *tail, const int32_t *recent, int32_t i)
{
    for (int32_t k = 0; k < tail->n; k++)
        if (tail->tokens[k] != recent[i - 1 - k]) return false;
    return true;
}

int32_t dry_breakers_match(const struct dry_breakers *b, const int32_t *recent, int32_t i)
{
    int32_t token = recent[i], longest = dry_breakers_contain(b, token) ? 0 : -1;
    if (token < 0 || (size_t)token >= b->n_vocab) return -1;
    for (uint32_t k = b->starts[token]; k < b->starts[token + 1]; k++) {
        const struct tail *tail = &b->tails[b->heads[k].tail];
        if (tail->n > longest && tail->n <= i && follows(tail, recent, i)) longest = tail->n;
    }
    return longest;
}
