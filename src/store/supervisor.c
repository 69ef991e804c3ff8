/* The supervisor of a tier, one thread each: it opens the tier's backend, looks through what earlier processes left,
 * and gets back what was lost, be it the whole backend or single slabs that could not be read. It tries again after a
 * second, and then ever more rarely, down to once a minute; for single slabs, once an hour.
 *
 * Nobody waits for it: slabs are found as soon as they are known. */
#include "base/log.h"
#include "base/memory.h"
#include "store/store_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BACK_OFF_FIRST ((int64_t)1000000000)
#define OPENING_MOST   (60 * BACK_OFF_FIRST)
#define SCANNING_MOST  (3600 * BACK_OFF_FIRST) /* for a few slabs that could not be read all names are read */

/* Slabs that a backend is asked for at once. */
enum { BATCH = 1024 };

/* ---- With the mutex ---- */

static int64_t later(struct tier *tier, int64_t most)
{
    int64_t after = tier->back_off;
    tier->back_off = 2 * after < most ? 2 * after : most;
    return clock_now(clock_monotonic()) + after;
}

static void settle(struct tier *tier)
{
    tier->settled = true;
    pthread_cond_broadcast(&tier->store->changed);
}

/* ---- What is still there ---- */

struct names {
    struct slab_name *v;
    size_t n, cap;
};

static void collect_name(void *ud, const struct slab_key *key, enum slab_kind kind)
{
    struct names *names = ud;
    if (names->n == names->cap) {
        names->cap = names->cap == 0 ? BATCH : 2 * names->cap;
        names->v = mem_grow(names->v, names->cap, sizeof *names->v);
    }
    names->v[names->n++] = (struct slab_name){*key, kind};
}

static void collect(void *ud, const struct entry *entry, const struct identity *identity)
{
    (void)identity;
    collect_name(ud, &entry->key, entry->kind);
}

/* After the backend was lost: what is not in it any more leaves the index. */
static void drop_missing(struct tier *tier)
{
    struct names names = {0};
    bool there[BATCH];
    index_each(tier->index, collect, &names);
    index_each_detached(tier->index, collect_name, &names);
    for (size_t i = 0; i < names.n; i += BATCH) {
        size_t n = names.n - i < BATCH ? names.n - i : BATCH;
        if (tier->backend->has(tier->backend, names.v + i, n, there, NULL) != 0) break;
        for (size_t k = 0; k < n; k++) {
            if (there[k]) continue;
            struct victim *victim = index_drop_named(tier->index, &names.v[i + k].key, names.v[i + k].kind);
            if (victim != NULL) index_deleted(tier->index, victim);
        }
    }
    free(names.v);
}

/* ---- What it does, without the mutex ---- */

static void adopt(void *ud, struct slab_head *head, uint64_t size)
{
    struct tier *tier = ud;
    index_adopt(tier->index, head, size, clock_unix_ms());
}

/* The saver may just have stored another one in its place: it alone changes what is there. */
static void find_damaged(void *ud, const struct slab_name *name)
{
    struct tier *tier = ud;
    struct found *found = mem_alloc(sizeof *found);
    found->name = *name;
    store_lock(tier->store);
    found->next = tier->found;
    tier->found = found;
    store_unlock(tier->store);
}

static void look_through(struct tier *tier)
{
    struct store *store = tier->store;
    struct backend_scan scan = {.each = adopt, .bad = find_damaged, .ud = tier, .stop = &store->closing};
    hearth_error error = {0};
    int64_t started = clock_now(clock_monotonic());
    int result = tier->backend->scan(tier->backend, &scan, &error);
    if (result == 0 && !store->closing) {
        index_set_foreign(tier->index, scan.foreign_bytes);
        metric_add(&store->stats.corrupt_files, (int64_t)scan.n_bad);
        log_event(LOG_INFO, LOG_GROUP, "looked through a tier", log_str("tier", store_tier_names[tier->id]),
                  log_int("slabs", (int64_t)scan.n_slabs), log_int("damaged", (int64_t)scan.n_bad),
                  log_int("unread", (int64_t)scan.n_unread), log_int("foreign", (int64_t)scan.n_foreign),
                  log_num("took_ms", clock_to_ms(clock_now(clock_monotonic()) - started)));
    }
    store_lock(store);
    tier->scan_at = result != 0         ? later(tier, OPENING_MOST)
                    : scan.n_unread > 0 ? later(tier, SCANNING_MOST)
                                        : CLOCK_NEVER;
    if (tier->scan_at == CLOCK_NEVER) tier->back_off = BACK_OFF_FIRST;
    if (result != 0) snprintf(tier->trouble, sizeof tier->trouble, "%.159s", error.message);
    tier->to_trim = true;
    pthread_cond_signal(&tier->saver.work);
    settle(tier);
    store_unlock(store);
}

static void open_backend(struct tier *tier)
{
    struct store *store = tier->store;
    hearth_error error = {0};
    tier_begin_call(tier, &tier->supervisor, store->params.save_timeout_ns);
    int result = tier->backend->open(tier->backend, &error);
    tier_end_call(tier, &tier->supervisor);
    enum tier_state was = tier->state, is = result == 0 ? TIER_OPEN : result == HEARTH_BUSY ? TIER_SHARED : TIER_LOST;
    bool again = was == TIER_LOST || was == TIER_SHARED;
    if (result == 0 && again) drop_missing(tier);
    store_lock(store);
    bool news = was != is || strcmp(tier->trouble, error.message) != 0;
    snprintf(tier->trouble, sizeof tier->trouble, "%.159s", error.message);
    tier->state = is;
    if (is == TIER_OPEN) tier->back_off = BACK_OFF_FIRST;
    tier->open_at = is == TIER_OPEN ? CLOCK_NEVER : later(tier, OPENING_MOST);
    if (is == TIER_LOST)
        settle(tier);
    else if (was != is)
        tier->scan_at = 0;
    pthread_cond_signal(&tier->saver.work); /* saves were waiting for it */
    const struct store_user **users;
    size_t n = saver_take_waiting(tier, &users);
    store_unlock(store);
    users_wake(store, users, n);
    if (result == 0 && again)
        log_event(LOG_INFO, LOG_GROUP, "a tier is back", log_str("tier", store_tier_names[tier->id]));
    if (is == TIER_SHARED && news) /* it is normal: a command beside a server */
        log_event(LOG_INFO, LOG_GROUP, "a tier is only read", log_str("tier", store_tier_names[tier->id]),
                  log_str("reason", error.message));
    if (is == TIER_LOST && news)
        log_event(LOG_ERROR, LOG_GROUP, "a tier is off", log_str("tier", store_tier_names[tier->id]),
                  log_str("reason", error.message));
}

static void take_back(struct tier *tier)
{
    /* Another one may be set aside meanwhile, which is then for the next time. */
    store_lock(tier->store);
    tier->take_back_at = CLOCK_NEVER;
    store_unlock(tier->store);
    int64_t next = index_retry_unreadable(tier->index, clock_now(clock_monotonic()));
    store_lock(tier->store);
    if (next < tier->take_back_at) tier->take_back_at = next;
    store_unlock(tier->store);
}

/* ---- The thread ---- */

/* With the mutex: what is to be done now; NULL, and when to look again. */
static void (*next_step(const struct tier *tier, int64_t *when))(struct tier *)
{
    int64_t now = clock_now(clock_monotonic());
    bool open = tier->state == TIER_OPEN, known = open || tier->state == TIER_SHARED;
    const struct {
        int64_t at;
        void (*step)(struct tier *tier);
    } steps[] = {{open ? CLOCK_NEVER : tier->open_at, open_backend},
                 {known ? tier->scan_at : CLOCK_NEVER, look_through},
                 {tier->take_back_at, take_back}};
    *when = CLOCK_NEVER;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        if (steps[i].at <= now) return steps[i].step;
        if (steps[i].at < *when) *when = steps[i].at;
    }
    return NULL;
}

void *supervisor_main(void *ud)
{
    struct tier *tier = ud;
    struct store *store = tier->store;
    struct clock *clock = clock_monotonic();
    store_lock(store);
    tier->back_off = BACK_OFF_FIRST;
    while (!store->closing) {
        int64_t when;
        void (*step)(struct tier *) = next_step(tier, &when);
        if (step == NULL) {
            clock->wait(clock, &tier->attend, &store->mutex, when);
            continue;
        }
        store_unlock(store);
        step(tier);
        store_lock(store);
    }
    store_unlock(store);
    store_end_thread(store);
    return NULL;
}
