/* The tokenizer cache: entries in a hash table by their key, and in a list by their last use. One mutex guards both. */
#include "llm/tokenizer_cache.h"

#include "base/hash_table.h"
#include "base/little.h"
#include "base/memory.h"
#include "base/sha256.h"
#include "llm/tokenizer.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct text_key {
    uint8_t v[SHA256_BYTES];
};

struct cached_text {
    struct hash_link link;
    struct cached_text *older, *newer;
    struct text_key key;
    size_t n;
    int32_t tokens[];
};

/* Bytes of an entry beside its tokens, with its bucket and what malloc() adds. */
#define ENTRY_BYTES (sizeof(struct cached_text) + 32)

struct llm_tokenizer_cache {
    size_t limit;
    struct llm_tokenizer_stats *stats;
    pthread_mutex_t mutex; /* guards what follows */
    struct hash_table table;
    struct cached_text *oldest, *newest;
    size_t bytes;
};

struct llm_tokenizer_cache *llm_tokenizer_cache_open(size_t bytes, struct llm_tokenizer_stats *stats)
{
    assert(stats != NULL);
    struct llm_tokenizer_cache *cache = mem_alloc(sizeof *cache);
    cache->limit = bytes;
    cache->stats = stats;
    pthread_mutex_init(&cache->mutex, NULL);
    return cache;
}

/* ---- Keys ---- */

/* All that the tokens of a text depend on, and the salt that keeps texts apart. Each part has its length before it: no
 * two inputs give the same bytes. */
static struct text_key key_of(const struct llm_tokenizer_input *in, const char *salt)
{
    struct text_key key;
    size_t salt_len = salt == NULL ? 0 : strlen(salt);
    uint8_t head[17] = {(uint8_t)((in->add_special ? 1 : 0) | (in->parse_special ? 2 : 0))};
    little_put(head + 1, salt_len, 8);
    little_put(head + 9, in->len, 8);
    struct sha256 *hash = sha256_open();
    sha256_feed(hash, head, sizeof head);
    sha256_feed(hash, salt, salt_len);
    sha256_feed(hash, in->text, in->len);
    sha256_so_far(hash, key.v);
    sha256_close(hash);
    return key;
}

static uint64_t hash_of(const struct text_key *key)
{
    return little_get(key->v, 8);
}

/* ---- With the mutex ---- */

static size_t bytes_of(size_t n)
{
    return ENTRY_BYTES + n * sizeof(int32_t);
}

static struct cached_text *find_text(const struct llm_tokenizer_cache *cache, const struct text_key *key)
{
    for (struct hash_link *h = hash_first(&cache->table, hash_of(key)); h != NULL; h = hash_next(h)) {
        struct cached_text *text = container_of(struct cached_text, link, h);
        if (memcmp(&text->key, key, sizeof *key) == 0) return text;
    }
    return NULL;
}

static void unlink_text(struct llm_tokenizer_cache *cache, struct cached_text *text)
{
    *(text->older != NULL ? &text->older->newer : &cache->oldest) = text->newer;
    *(text->newer != NULL ? &text->newer->older : &cache->newest) = text->older;
}

static void link_newest(struct llm_tokenizer_cache *cache, struct cached_text *text)
{
    text->older = cache->newest;
    text->newer = NULL;
    *(cache->newest != NULL ? &cache->newest->newer : &cache->oldest) = text;
    cache->newest = text;
}

/* Takes out the oldest entries until there is room; returns them as a list by `newer`. */
static struct cached_text *evict_for(struct llm_tokenizer_cache *cache, size_t bytes)
{
    struct cached_text *evicted = NULL;
    while (cache->oldest != NULL && cache->bytes + bytes > cache->limit) {
        struct cached_text *text = cache->oldest;
        unlink_text(cache, text);
        hash_remove(&cache->table, &text->link);
        cache->bytes -= bytes_of(text->n);
        text->newer = evicted;
        evicted = text;
    }
    return evicted;
}

static void free_texts(struct cached_text *text)
{
    for (struct cached_text *next; text != NULL; text = next) {
        next = text->newer;
        free(text);
    }
}

/* ---- Looking up and adding ---- */

static bool find_cached(struct llm_tokenizer_cache *cache, const struct text_key *key, struct tokens *out)
{
    pthread_mutex_lock(&cache->mutex);
    struct cached_text *text = find_text(cache, key);
    if (text != NULL) {
        tokens_append(out, text->tokens, text->n);
        unlink_text(cache, text);
        link_newest(cache, text);
    }
    pthread_mutex_unlock(&cache->mutex);
    return text != NULL;
}

/* Another thread may have added the same text meanwhile, with the same tokens. */
static void add_cached(struct llm_tokenizer_cache *cache, const struct text_key *key, const int32_t *tokens, size_t n)
{
    struct cached_text *evicted = NULL, *text;
    if (bytes_of(n) > cache->limit) return;
    text = mem_alloc(sizeof *text + n * sizeof *tokens);
    text->key = *key;
    text->n = n;
    if (n > 0) memcpy(text->tokens, tokens, n * sizeof *tokens);
    pthread_mutex_lock(&cache->mutex);
    bool is_new = find_text(cache, key) == NULL;
    if (is_new) {
        evicted = evict_for(cache, bytes_of(n));
        hash_add(&cache->table, &text->link, hash_of(key));
        link_newest(cache, text);
        cache->bytes += bytes_of(n);
    }
    pthread_mutex_unlock(&cache->mutex);
    free_texts(evicted);
    if (!is_new) free(text);
}

/* Shorter texts are tokenised in some microseconds, and would fill the cache with entries of a few tokens. */
enum { LEAST_BYTES = 512 };

void llm_tokenize_chunk(const struct llm_model *model, const struct llm_tokenizer_input *in,
                        const struct llm_tokenising *how, struct tokens *out)
{
    struct text_key key;
    size_t before = out->len;
    bool cached = how->cache != NULL && in->len >= LEAST_BYTES, found = false;
    if (cached) {
        key = key_of(in, how->salt);
        found = find_cached(how->cache, &key, out);
    }
    if (!found) llm_tokenize_whole(model, in, out);
    if (cached && !found) add_cached(how->cache, &key, out->v + before, out->len - before);
    if (how->cache == NULL) return;
    struct llm_tokenizer_stats *stats = how->cache->stats;
    metric_add(found ? &stats->cached_bytes : &stats->tokenised_bytes, (int64_t)in->len);
}

void llm_tokenizer_cache_close(struct llm_tokenizer_cache *cache)
{
    if (cache == NULL) return;
    cache->limit = 0;
    free_texts(evict_for(cache, 0));
    hash_release(&cache->table);
    pthread_mutex_destroy(&cache->mutex);
    free(cache);
}
