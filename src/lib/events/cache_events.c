/* A follower of all tiers, and its events one by one: see cache_events.h.
 *
 * Lock order: this mutex, an index's own, that of the identities. */
#include "lib/events/cache_events.h"

#include "base/log.h"
#include "base/memory.h"
#include "lib/events/blocks.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

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
    return (void *)identities_find(events->identities, identity);
}

static struct index *index_of(const struct cache_events *events, enum store_tier tier)
{
    return store_tier_index(events->store, tier);
}

struct cache_events *cache_events_open(struct store *store, void (*changed)(void *ud), void *ud)
{
    struct cache_events *events = mem_alloc(sizeof *events);
    events->store = store;
    events->identities = identities_open();
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
    for (enum store_tier i = 0; i < STORE_TIERS; i++) blocks_release(&events->blocks[i]);
    tokens_release(&events->news.tokens);
    identities_close(events->identities);
    pthread_mutex_destroy(&events->mutex);
    free(events);
}

/* ---- Names ---- */

/* Entries that are there already were passed over while nobody had named their identity. */
static void look_again(struct cache_events *events, const struct identity *identity)
{
    for (enum store_tier i = 0; i < STORE_TIERS; i++) {
        struct index *index = index_of(events, i);
        if (index != NULL && index_has_identity(index, identity)) index_follow_again(index);
    }
}

/* A router that hears of a model for the first time knows nothing of it; and one that hears that a model was cleared
 * forgets those beside it as well. */
static void begin_model(struct cache_events *events)
{
    atomic_store(&events->resend, true);
    events->changed(events->ud);
}

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
    if (events->following && added == IDENTITIES_NEW_MODEL) begin_model(events);
    if (events->following && added == IDENTITIES_NEW) look_again(events, identity);
    pthread_mutex_unlock(&events->mutex);
}

/* ---- Events ---- */

static bool put_cleared(struct cache_events *events, hearth_block_event *event)
{
    if (!events->clearing) return false;
    const char *model = identities_model(events->identities, events->n_cleared++);
    events->clearing = model != NULL;
    *event = (hearth_block_event){.type = HEARTH_BLOCKS_CLEARED, .model = model};
    return model != NULL;
}

/* The next run of blocks that changed. */
static bool find_run(struct cache_events *events, int32_t *from)
{
    const struct blocks *blocks = &events->blocks[events->tier];
    while (events->at < blocks->n && !blocks->changed[events->at]) events->at++;
    *from = events->at;
    while (events->at < blocks->n && blocks->changed[events->at] && events->at - *from < MOST_BLOCKS) events->at++;
    return events->at > *from;
}

static bool put_run(struct cache_events *events, hearth_block_event *event)
{
    int32_t from;
    if (!find_run(events, &from)) return false;
    const struct blocks *blocks = &events->blocks[events->tier];
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

static void take_news(struct cache_events *events)
{
    struct blocks *blocks = &events->blocks[events->tier];
    struct index_followed *followed = events->news.followed;
    events->at = 0;
    if (events->news.type == INDEX_ENTERED) {
        blocks_enter(blocks, &events->news);
        return;
    }
    blocks->n = 0;
    if (events->news.was_told) blocks_leave(blocks, (const struct blocks_of_entry *)(const void *)followed);
    blocks_release_entry(followed);
}

static bool read_news(struct cache_events *events)
{
    for (events->tier = 0; events->tier < STORE_TIERS; events->tier++) {
        struct index *index = index_of(events, events->tier);
        if (index == NULL) continue;
        index_next_news(index, &events->news);
        if (events->news.type == INDEX_NO_NEWS) continue;
        take_news(events);
        return true;
    }
    events->tier = 0;
    events->at = events->blocks[0].n;
    return false;
}

static void begin_anew(struct cache_events *events)
{
    for (enum store_tier i = 0; i < STORE_TIERS; i++) {
        blocks_clear(&events->blocks[i]);
        if (index_of(events, i) != NULL) index_follow_anew(index_of(events, i));
    }
    events->tier = 0;
    events->at = 0;
    events->clearing = true;
    events->n_cleared = 0;
}

bool cache_events_next(struct cache_events *events, hearth_block_event *event)
{
    if (atomic_exchange(&events->resend, false)) begin_anew(events);
    while (!put_cleared(events, event) && !put_run(events, event))
        if (!read_news(events)) return false;
    return true;
}

void cache_events_resend(struct cache_events *events)
{
    atomic_store(&events->resend, true);
}
