/* A follower of all tiers, and its events one by one: see cache_events.h.
 *
 * The number of a block is the beginning of SHA-256 over the one before it and its tokens; before the first one there
 * is the identity's. So it names a whole prefix, and is the same in every process that stores it.
 *
 * Lock order: the events' mutex, an index's own, that of the identities. */
#include "instance/events/cache_events.h"

#include "base/hash_table.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/sha256.h"
#include "store/index/index.h"
#include "store/slabs/slab_key.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- What routers call the identities under which states are stored ---- */

/* The model's name, its adapters and the salt, which an identity holds only as digests. A request makes its own known.
 * States that an earlier process stored under a salt are not announced before a request brings the salt again. A hash
 * table under a mutex of its own, which is held for a look-up alone. Any thread; names stay until the table is
 * closed. */

/* A name as it is kept. */
struct identity_known {
    struct identity_name name;
    uint64_t seed; /* the number from which those of its blocks come */
};

enum identities_added { IDENTITIES_OLD, IDENTITIES_NEW, IDENTITIES_NEW_MODEL, IDENTITIES_FULL };

/* A name takes some hundred bytes, its salt up to some thousand: this is memory for those who send a salt of their own
 * with every request. */
enum { MOST_NAMES = 16384 };

struct known {
    struct hash_link link;
    struct identity identity;
    struct identity_known known; /* the texts are its own, but for the model's */
};

struct identities {
    pthread_mutex_t mutex;
    struct hash_table table;
    char **models;
    size_t n_models;
};

static void identities_close(struct identities *identities)
{
    if (identities == NULL) return;
    struct hash_link *link;
    for (size_t bucket = 0; (link = hash_any(&identities->table, &bucket)) != NULL;) {
        struct known *known = container_of(struct known, link, link);
        hash_remove(&identities->table, link);
        free((char *)known->known.name.adapters);
        free((char *)known->known.name.salt);
        free(known);
    }
    hash_release(&identities->table);
    for (size_t i = 0; i < identities->n_models; i++) free(identities->models[i]);
    free(identities->models);
    pthread_mutex_destroy(&identities->mutex);
    free(identities);
}

/* Both digests are as good as random. */
static uint64_t hash_of(const struct identity *identity)
{
    uint64_t model, context;
    memcpy(&model, identity->model, sizeof model);
    memcpy(&context, identity->context, sizeof context);
    return model ^ context;
}

static struct known *find_identity(const struct identities *identities, const struct identity *identity)
{
    struct hash_link *link = hash_first(&identities->table, hash_of(identity));
    for (; link != NULL; link = hash_next(link)) {
        struct known *known = container_of(struct known, link, link);
        if (identity_equal(&known->identity, identity)) return known;
    }
    return NULL;
}

static void keep_name(struct identities *identities, const struct identity *identity, const struct identity_name *name)
{
    struct known *known = mem_alloc(sizeof *known);
    const char *salt = name->salt != NULL && name->salt[0] != '\0' ? name->salt : NULL;
    known->identity = *identity;
    /* The first eight bytes of the key of no tokens: the key of a prefix is made of the identity and its tokens. */
    struct slab_key key = slab_key_of(identity, NULL, 0);
    uint64_t seed = 0;
    for (size_t i = 0; i < sizeof seed; i++) seed = seed << 8 | key.v[i];
    known->known.seed = seed;
    size_t model = 0;
    while (model < identities->n_models && strcmp(identities->models[model], name->model) != 0) model++;
    if (model == identities->n_models) {
        identities->models = mem_grow(identities->models, identities->n_models + 1, sizeof *identities->models);
        identities->models[identities->n_models++] = mem_strdup(name->model);
    }
    known->known.name = (struct identity_name){.model = identities->models[model],
                                               .adapters = mem_strdup(name->adapters),
                                               .salt = mem_strdup(salt),
                                               .by_state = name->by_state};
    hash_add(&identities->table, &known->link, hash_of(identity));
}

/* Copies the name. OLD: the identity has one already, which stays. FULL: there are too many. */
static enum identities_added identities_add(struct identities *identities, const struct identity *identity,
                                            const struct identity_name *name)
{
    enum identities_added added = IDENTITIES_OLD;
    pthread_mutex_lock(&identities->mutex);
    if (find_identity(identities, identity) == NULL) {
        size_t n_models = identities->n_models;
        added = identities->table.n < MOST_NAMES ? IDENTITIES_NEW : IDENTITIES_FULL;
        if (added == IDENTITIES_NEW) keep_name(identities, identity, name);
        if (identities->n_models > n_models) added = IDENTITIES_NEW_MODEL;
    }
    pthread_mutex_unlock(&identities->mutex);
    return added;
}

/* ---- The blocks of one tier ---- */

/* Which of them its entries have, counted, since several entries may have the same. Turns what the follower is told of
 * an index (store/index/index.h) into blocks that come and go, on its thread. */

/* The follower's part of an entry: the numbers of the blocks that end within its tokens, of a STATE entry those of
 * all of its prefix. */
struct blocks_of_entry {
    struct index_followed followed; /* first */
    const struct blocks_of_entry *parent;
    const struct identity_known *known;
    uint64_t *numbers;
    int32_t first, n; /* the place of the first one in the prefix */
    bool counts;      /* whether the entry makes its blocks reusable */
};

struct blocks {
    struct hash_table table;
    /* The blocks of the last entry that came or left. */
    const struct identity_known *known;
    uint64_t *numbers;
    bool *changed; /* which of them came, or went, with it */
    int32_t n, cap;
    int32_t first;   /* of one that came: the place of the first block */
    uint64_t parent; /* and what comes before it; 0: nothing */
};

struct block {
    struct hash_link link; /* its hash is the number */
    uint32_t n;            /* entries that have it */
};

/* ---- Numbers ---- */

static uint64_t number_after(uint64_t before, const int32_t *tokens)
{
    uint8_t bytes[sizeof before + HEARTH_BLOCK * sizeof(uint32_t)], digest[SHA256_BYTES], *out = bytes;
    for (size_t k = 0; k < sizeof before; k++) *out++ = (uint8_t)(before >> 8 * k);
    for (size_t i = 0; i < HEARTH_BLOCK; i++)
        for (size_t k = 0; k < sizeof(uint32_t); k++) *out++ = (uint8_t)((uint32_t)tokens[i] >> 8 * k);
    sha256_of(bytes, sizeof bytes, digest);
    uint64_t number = 0;
    for (size_t k = 0; k < sizeof number; k++) number = number << 8 | digest[k];
    return number == 0 ? 1 : number; /* routers take 0 for none */
}

/* The number at that place of the entry's prefix: its own, or that of an ancestor, which has all before its start. */
static uint64_t number_at(const struct blocks_of_entry *entry, int32_t place)
{
    while (place < entry->first) entry = entry->parent;
    return entry->numbers[place - entry->first];
}

static void fill_entry(struct blocks_of_entry *entry, const struct index_news *news)
{
    entry->parent = (const struct blocks_of_entry *)(const void *)news->parent;
    entry->known = news->name;
    entry->counts = !entry->known->name.by_state || news->kind == SLAB_STATE;
    entry->first = news->from / HEARTH_BLOCK;
    entry->n = news->end / HEARTH_BLOCK - entry->first;
    entry->numbers = mem_grow(NULL, (size_t)entry->n + 1, sizeof *entry->numbers);
    for (int32_t i = 0; i < entry->n; i++) {
        int32_t place = entry->first + i;
        if ((place + 1) * HEARTH_BLOCK <= news->start) { /* it ends before the entry's start */
            entry->numbers[i] = number_at(entry->parent, place);
            continue;
        }
        uint64_t before = place == 0 ? entry->known->seed : number_at(entry, place - 1);
        entry->numbers[i] = number_after(before, news->tokens.v + (place * HEARTH_BLOCK - news->from));
    }
}

/* ---- Counting ---- */

static struct block *find_block(const struct blocks *blocks, uint64_t number)
{
    struct hash_link *link = hash_first(&blocks->table, number);
    return link == NULL ? NULL : container_of(struct block, link, link);
}

/* ---- Entries ---- */

static void begin_entry(struct blocks *blocks, const struct blocks_of_entry *entry)
{
    blocks->known = entry->known;
    blocks->n = 0;
    if (entry->n <= blocks->cap) return;
    blocks->cap = entry->n;
    blocks->numbers = mem_grow(blocks->numbers, (size_t)blocks->cap, sizeof *blocks->numbers);
    blocks->changed = mem_grow(blocks->changed, (size_t)blocks->cap, sizeof *blocks->changed);
}

static void blocks_enter(struct blocks *blocks, const struct index_news *news)
{
    struct blocks_of_entry *entry = (struct blocks_of_entry *)(void *)news->followed;
    if (!news->was_told) fill_entry(entry, news);
    begin_entry(blocks, entry);
    blocks->first = entry->first;
    blocks->parent = entry->first == 0 ? 0 : number_at(entry->parent, entry->first - 1);
    for (int32_t i = 0; i < entry->n && entry->counts; i++) {
        blocks->numbers[i] = entry->numbers[i];
        struct block *block = find_block(blocks, entry->numbers[i]);
        if (block == NULL) {
            block = mem_alloc(sizeof *block);
            hash_add(&blocks->table, &block->link, entry->numbers[i]);
        }
        blocks->changed[i] = block->n++ == 0;
        blocks->n++;
    }
}

/* Only those that went are listed: nothing depends on their places. */
static void blocks_leave(struct blocks *blocks, const struct blocks_of_entry *entry)
{
    begin_entry(blocks, entry);
    for (int32_t i = 0; i < entry->n && entry->counts; i++) {
        struct block *block = find_block(blocks, entry->numbers[i]);
        assert(block != NULL && block->n > 0);
        if (--block->n > 0) continue;
        hash_remove(&blocks->table, &block->link);
        free(block);
        blocks->numbers[blocks->n] = entry->numbers[i];
        blocks->changed[blocks->n++] = true;
    }
}

static void blocks_release_entry(struct index_followed *followed)
{
    struct blocks_of_entry *entry = (struct blocks_of_entry *)(void *)followed;
    free(entry->numbers);
    free(entry);
}

/* ---- The table ---- */

static void blocks_clear(struct blocks *blocks)
{
    struct hash_link *link;
    for (size_t bucket = 0; (link = hash_any(&blocks->table, &bucket)) != NULL;) {
        hash_remove(&blocks->table, link);
        free(container_of(struct block, link, link));
    }
    blocks->n = 0;
}

/* ---- Events ---- */

/* Blocks of one event: some 40 KB of a message. */
enum { MOST_BLOCKS = 512 };

struct cache_events {
    struct store *store;
    struct identities *identities;
    pthread_mutex_t mutex; /* of: */
    bool following;
    void (*changed)(void *ud);
    void *ud;

    _Atomic bool resend, full_told;
    /* The follower's thread: */
    struct blocks blocks[STORE_TIERS];
    struct index_news news;
    enum store_tier tier; /* of the news */
    int32_t at;           /* the first block of them that was not looked at */
    bool clearing;        /* CLEARED is still to be emitted for the models from n_cleared on */
    size_t n_cleared;
};

/* ---- Opening and closing ---- */

static void wake_follower(void *ud)
{
    struct cache_events *events = ud;
    events->changed(events->ud);
}

static void *find_name(void *ud, const struct identity *identity)
{
    struct cache_events *events = ud;
    pthread_mutex_lock(&events->identities->mutex);
    struct known *known = find_identity(events->identities, identity);
    pthread_mutex_unlock(&events->identities->mutex);
    return known == NULL ? NULL : &known->known;
}

static struct index *index_of(const struct cache_events *events, enum store_tier tier)
{
    return store_tier_index(events->store, tier);
}

struct cache_events *cache_events_open(struct store *store, void (*changed)(void *ud), void *ud)
{
    struct cache_events *events = mem_alloc(sizeof *events);
    events->store = store;
    events->identities = mem_alloc(sizeof *events->identities);
    pthread_mutex_init(&events->identities->mutex, NULL);
    events->changed = changed;
    events->ud = ud;
    events->following = true;
    events->clearing = true;
    pthread_mutex_init(&events->mutex, NULL);
    const struct index_follower follower = {.changed = wake_follower,
                                            .name = find_name,
                                            .ud = events,
                                            .size = sizeof(struct blocks_of_entry),
                                            .release = blocks_release_entry,
                                            .block = HEARTH_BLOCK};
    for (enum store_tier i = 0; i < STORE_TIERS; i++)
        if (index_of(events, i) != NULL) index_follow(index_of(events, i), &follower);
    return events;
}

void cache_events_end(struct cache_events *events)
{
    pthread_mutex_lock(&events->mutex);
    for (enum store_tier i = 0; i < STORE_TIERS && events->following; i++)
        if (index_of(events, i) != NULL) index_unfollow(index_of(events, i));
    events->following = false;
    pthread_mutex_unlock(&events->mutex);
}

void cache_events_close(struct cache_events *events)
{
    if (events == NULL) return;
    cache_events_end(events);
    for (enum store_tier i = 0; i < STORE_TIERS; i++) {
        struct blocks *blocks = &events->blocks[i];
        blocks_clear(blocks);
        hash_release(&blocks->table);
        free(blocks->numbers);
        free(blocks->changed);
    }
    tokens_release(&events->news.tokens);
    identities_close(events->identities);
    pthread_mutex_destroy(&events->mutex);
    free(events);
}

/* ---- Names ---- */

void cache_events_name(struct cache_events *events, const struct identity *identity, const struct identity_name *name)
{
    if (events == NULL) return;
    enum identities_added added = identities_add(events->identities, identity, name);
    if (added == IDENTITIES_OLD) return;
    if (added == IDENTITIES_FULL) {
        if (!atomic_exchange(&events->full_told, true))
            log_event(LOG_WARN, "store",
                      "cache events leave out what is stored under further salts: there are too many",
                      log_str("model", name->model));
        return;
    }
    pthread_mutex_lock(&events->mutex);
    if (events->following && added == IDENTITIES_NEW_MODEL) {
        /* A router that hears of a model for the first time knows nothing of it; and one that hears that a model was
         * cleared forgets those beside it as well. */
        atomic_store(&events->resend, true);
        events->changed(events->ud);
    }
    if (events->following && added == IDENTITIES_NEW) {
        /* Entries that are there already were passed over while nobody had named their identity. */
        for (enum store_tier i = 0; i < STORE_TIERS; i++) {
            struct index *index = index_of(events, i);
            if (index != NULL && index_has_identity(index, identity)) index_follow_again(index);
        }
    }
    pthread_mutex_unlock(&events->mutex);
}

/* ---- Events ---- */

static bool put_cleared(struct cache_events *events, hearth_block_event *event)
{
    if (!events->clearing) return false;
    struct identities *identities = events->identities;
    const size_t i = events->n_cleared++;
    pthread_mutex_lock(&identities->mutex);
    const char *model = i < identities->n_models ? identities->models[i] : NULL;
    pthread_mutex_unlock(&identities->mutex);
    events->clearing = model != NULL;
    *event = (hearth_block_event){.type = HEARTH_BLOCKS_CLEARED, .model = model};
    return model != NULL;
}

/* The next run of blocks that changed. */
static bool put_run(struct cache_events *events, hearth_block_event *event)
{
    const struct blocks *blocks = &events->blocks[events->tier];
    while (events->at < blocks->n && !blocks->changed[events->at]) events->at++;
    const int32_t from = events->at;
    while (events->at < blocks->n && blocks->changed[events->at] && events->at - from < MOST_BLOCKS) events->at++;
    if (events->at == from) return false;
    const struct identity_name *name = &blocks->known->name;
    bool entered = events->news.type == INDEX_ENTERED;
    *event = (hearth_block_event){.type = entered ? HEARTH_BLOCKS_STORED : HEARTH_BLOCKS_REMOVED,
                                  .model = name->model,
                                  .medium = store_tier_media[events->tier],
                                  .blocks = blocks->numbers + from,
                                  .n_blocks = (size_t)(events->at - from)};
    if (!entered) return true;
    event->parent = from == 0 ? blocks->parent : blocks->numbers[from - 1];
    event->tokens = events->news.tokens.v + ((blocks->first + from) * HEARTH_BLOCK - events->news.from);
    event->adapters = name->adapters;
    event->salt = name->salt;
    return true;
}

static bool read_news(struct cache_events *events)
{
    for (events->tier = 0; events->tier < STORE_TIERS; events->tier++) {
        struct index *index = index_of(events, events->tier);
        if (index == NULL) continue;
        index_next_news(index, &events->news);
        if (events->news.type == INDEX_NO_NEWS) continue;
        struct blocks *blocks = &events->blocks[events->tier];
        struct index_followed *followed = events->news.followed;
        events->at = 0;
        if (events->news.type == INDEX_ENTERED) {
            blocks_enter(blocks, &events->news);
            return true;
        }
        blocks->n = 0;
        if (events->news.was_told) blocks_leave(blocks, (const struct blocks_of_entry *)(const void *)followed);
        blocks_release_entry(followed);
        return true;
    }
    events->tier = 0;
    events->at = events->blocks[0].n;
    return false;
}

bool cache_events_next(struct cache_events *events, hearth_block_event *event)
{
    if (atomic_exchange(&events->resend, false)) {
        for (enum store_tier i = 0; i < STORE_TIERS; i++) {
            blocks_clear(&events->blocks[i]);
            if (index_of(events, i) != NULL) index_follow_anew(index_of(events, i));
        }
        events->tier = 0;
        events->at = 0;
        events->clearing = true;
        events->n_cleared = 0;
    }
    while (!put_cleared(events, event) && !put_run(events, event))
        if (!read_news(events)) return false;
    return true;
}

void cache_events_resend(struct cache_events *events)
{
    atomic_store(&events->resend, true);
}
