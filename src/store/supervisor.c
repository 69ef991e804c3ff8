/* The supervisor of a tier, one thread each: opens the tier's backend, and scans it for slabs of earlier processes. It
 * retries what failed: the whole backend, or single slabs that could not be read. It retries after 1 s, then at doubled
 * intervals up to one minute; a scan for the sake of single unread slabs, up to one hour.
 *
 * No request waits for it: lookups find each slab as soon as the scan has indexed it. At the end of the file is the
 * watchdog, one thread for all tiers. */
#include "base/log.h"
#include "base/memory.h"
#include "store/store_struct.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCAN_RETRY_MOST_NS (3600 * BACK_OFF_FIRST_NS) /* a scan lists the whole folder, for the sake of a few slabs */

/* Slabs in one has() call. */
enum { BATCH = 1024 };

/* ---- With the mutex ---- */

static int64_t next_attempt(int64_t *back_off, int64_t most)
{
    int64_t after = *back_off < most ? *back_off : most;
    *back_off = 2 * after < most ? 2 * after : most;
    return clock_now(clock_monotonic()) + after;
}

static void mark_settled(struct tier *tier)
{
    tier->settled = true;
    pthread_cond_broadcast(&tier->store->changed);
}

/* ---- Costs ---- */

/* So long after the last read a server's cost is measured anew. By then the times of reads have lost half their weight,
 * and a server that was slow once may be so dear that it is never read. */
#define MEASURE_EVERY_NS ((int64_t)600 * 1000000000)

static void measure_backend(struct tier *tier)
{
    struct store *store = tier->store;
    struct read_assumed measured;
    if (tier->backend->measure == NULL) return;
    tier_begin_call(tier, &tier->supervisor, store->params.save_timeout_ns);
    int result = tier->backend->measure(tier->backend, &measured, NULL);
    tier_end_call(tier, &tier->supervisor);
    store_lock(store);
    if (result == 0) read_cost_init(&tier->read_cost, &measured);
    tier->measure_at = clock_now(clock_monotonic()) + MEASURE_EVERY_NS;
    store_unlock(store);
}

static void measure_again(struct tier *tier)
{
    store_lock(tier->store);
    int64_t due = tier->read_cost.noted_at + MEASURE_EVERY_NS;
    bool read_lately = due > clock_now(clock_monotonic());
    if (read_lately) tier->measure_at = due;
    store_unlock(tier->store);
    if (!read_lately) measure_backend(tier);
}

/* ---- After a loss ---- */

struct slab_names {
    struct slab_name *v;
    size_t n, cap;
};

static void collect_slab_name(void *ud, const struct slab_key *key, enum slab_kind kind)
{
    struct slab_names *names = ud;
    names->v = mem_room(names->v, names->n, &names->cap, sizeof *names->v);
    names->v[names->n++] = (struct slab_name){*key, kind};
}

static void collect_entry(void *ud, const struct entry *entry, const struct identity *identity)
{
    (void)identity;
    collect_slab_name(ud, &entry->key, entry->kind);
}

/* The backend was lost and is open again: drops the entries whose slabs it does not hold. */
static int drop_missing(struct tier *tier, hearth_error *error)
{
    struct slab_names names = {0};
    bool there[BATCH];
    int result = 0;
    index_each(tier->index, collect_entry, &names);
    index_each_detached(tier->index, collect_slab_name, &names);
    for (size_t i = 0; i < names.n && result == 0; i += BATCH) {
        size_t n = names.n - i < BATCH ? names.n - i : BATCH;
        result = tier->backend->has(tier->backend, names.v + i, n, there, error);
        for (size_t k = 0; k < n && result == 0; k++) {
            if (there[k]) continue;
            struct victim *victim = index_drop_named(tier->index, &names.v[i + k].key, names.v[i + k].kind);
            if (victim != NULL) index_deleted(tier->index, victim);
        }
    }
    free(names.v);
    return result;
}

/* ---- Steps, without the mutex ---- */

/* A scan may have listed, or have a record of, what the saver has removed since. The saver notes that before it removes
 * anything, and with the mutex: either it has noted it, or the index still knows it, and adopts it not again. */
static void adopt_scanned(void *ud, struct slab_head *head, uint64_t size)
{
    struct tier *tier = ud;
    store_lock(tier->store);
    if (!tier_was_removed(tier, &(struct slab_name){head->key, head->kind}))
        index_adopt(tier->index, head, size, clock_unix_ms());
    store_unlock(tier->store);
}

/* The saver alone changes what the backend holds, and may just have replaced the slab: it checks, and quarantines. In
 * the folder of another process that does. */
static void queue_damaged(void *ud, const struct slab_name *name)
{
    struct tier *tier = ud;
    if (tier->state != TIER_OPEN) return;
    struct damaged_slab *found = mem_alloc(sizeof *found);
    found->name = *name;
    store_lock(tier->store);
    found->next = tier->scan_damaged;
    tier->scan_damaged = found;
    store_unlock(tier->store);
}

static void scan_backend(struct tier *tier)
{
    struct store *store = tier->store;
    struct backend_scan scan = {.each = adopt_scanned, .damaged = queue_damaged, .ud = tier, .stop = &store->closing};
    hearth_error error = {0};
    int64_t started = clock_now(clock_monotonic());
    tier_begin_scan(tier);
    int result = tier->backend->scan(tier->backend, &scan, &error);
    tier_end_scan(tier);
    if (result == 0 && !store->closing) {
        index_set_foreign(tier->index, scan.foreign_bytes);
        metric_add(&store->stats.corrupt_files, (int64_t)scan.n_damaged);
        log_event(LOG_INFO, LOG_GROUP, "scanned a tier", log_str("tier", store_tier_names[tier->id]),
                  log_int("slabs", (int64_t)scan.n_slabs), log_int("damaged", (int64_t)scan.n_damaged),
                  log_int("unread", (int64_t)scan.n_unread), log_int("foreign", (int64_t)scan.n_foreign),
                  log_num("took_ms", clock_to_ms(clock_now(clock_monotonic()) - started)));
    }
    store_lock(store);
    tier->scan_at = result != 0         ? next_attempt(&tier->scan_back_off, OPEN_RETRY_MOST_NS)
                    : scan.n_unread > 0 ? next_attempt(&tier->scan_back_off, SCAN_RETRY_MOST_NS)
                                        : CLOCK_NEVER;
    if (tier->scan_at == CLOCK_NEVER) tier->scan_back_off = BACK_OFF_FIRST_NS;
    if (result != 0) snprintf(tier->trouble, sizeof tier->trouble, "%.159s", error.message);
    tier->to_trim = true;
    pthread_cond_signal(&tier->saver.work);
    mark_settled(tier);
    store_unlock(store);
}

static void open_backend(struct tier *tier)
{
    struct store *store = tier->store;
    hearth_error error = {0};
    tier_begin_call(tier, &tier->supervisor, store->params.save_timeout_ns);
    int result = tier->backend->open(tier->backend, &error);
    tier_end_call(tier, &tier->supervisor);
    if (result == 0) measure_backend(tier);
    enum tier_state was = tier->state;
    bool again = was == TIER_LOST || was == TIER_SHARED;
    if (result == 0 && again) result = drop_missing(tier, &error);
    enum tier_state is = result == 0 ? TIER_OPEN : result == HEARTH_BUSY ? TIER_SHARED : TIER_LOST;
    struct buf digests = {0};
    if (is != TIER_LOST) tier_read_digests(tier, &digests);
    store_lock(store);
    buf_release(&tier->digests);
    tier->digests = digests;
    tier->digests_changed = false;
    bool news = was != is || strcmp(tier->trouble, error.message) != 0;
    snprintf(tier->trouble, sizeof tier->trouble, "%.159s", error.message);
    struct victim *victims = NULL;
    struct damaged_slab *found = NULL;
    if (is == TIER_OPEN && again) {
        /* Another process may have stored slabs anew that were found damaged before the backend was lost: the scan that
         * follows tells. */
        victims = tier->damaged;
        found = tier->scan_damaged;
        tier->damaged = NULL;
        tier->scan_damaged = NULL;
    }
    tier->state = is;
    if (is == TIER_OPEN) tier->back_off = BACK_OFF_FIRST_NS;
    if (is == TIER_OPEN) tier->opened_at = clock_now(clock_monotonic());
    tier->open_at = is == TIER_OPEN ? CLOCK_NEVER : next_attempt(&tier->back_off, OPEN_RETRY_MOST_NS);
    if (is == TIER_LOST)
        mark_settled(tier);
    else if (was != is)
        tier->scan_at = 0;
    pthread_cond_signal(&tier->saver.work);  /* queued saves waited for the tier */
    pthread_cond_broadcast(&store->changed); /* store_digests() did */
    const struct store_user **users;
    size_t n = saver_collect_waiters(tier, &users);
    store_unlock(store);
    users_wake(store, users, n);
    tier_forget_damaged(tier, victims, found);
    if (result == 0 && again)
        log_event(LOG_INFO, LOG_GROUP, "a tier is back", log_str("tier", store_tier_names[tier->id]));
    if (is == TIER_SHARED && news) /* normal: a command beside a server */
        log_event(LOG_INFO, LOG_GROUP, "a tier is only read", log_str("tier", store_tier_names[tier->id]),
                  log_str("reason", error.message));
    if (is == TIER_LOST && news)
        log_event(LOG_ERROR, LOG_GROUP, "a tier is off", log_str("tier", store_tier_names[tier->id]),
                  log_str("reason", error.message));
}

static void retry_unreadable(struct tier *tier)
{
    /* An entry that becomes unreadable meanwhile sets retry_at anew. */
    store_lock(tier->store);
    tier->retry_at = CLOCK_NEVER;
    store_unlock(tier->store);
    int64_t next = index_retry_unreadable(tier->index, clock_now(clock_monotonic()));
    store_lock(tier->store);
    if (next < tier->retry_at) tier->retry_at = next;
    store_unlock(tier->store);
}

/* ---- The thread ---- */

/* With the mutex: the step that is due; NULL: none, and `when` the next one is. */
static void (*next_step(const struct tier *tier, int64_t *when))(struct tier *)
{
    int64_t now = clock_now(clock_monotonic());
    bool open = tier->state == TIER_OPEN, known = open || tier->state == TIER_SHARED;
    const struct {
        int64_t at;
        void (*step)(struct tier *tier);
    } steps[] = {{open ? CLOCK_NEVER : tier->open_at, open_backend},
                 {known ? tier->scan_at : CLOCK_NEVER, scan_backend},
                 {tier->retry_at, retry_unreadable},
                 {open && tier->measure_at != 0 ? tier->measure_at : CLOCK_NEVER, measure_again}};
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
    tier->back_off = tier->scan_back_off = BACK_OFF_FIRST_NS;
    /* A tier that was closed before it was opened is opened all the same, if saves are queued for it. */
    while (!store->closing || (tier->state == TIER_OPENING && tier->saver.first != NULL && !saver_is_over(tier))) {
        int64_t when;
        void (*step)(struct tier *) = next_step(tier, &when);
        if (step == NULL) {
            clock->wait(clock, &tier->supervisor_work, &store->mutex, when);
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

/* ---- The watchdog ---- It notices calls of a backend which hang, and fetches that get nothing. A call that takes
 * longer than its limit puts the tier out of service until it returns. Lookups leave the tier out, saves to it are
 * refused, and fetches from it are given up. A fetch that got nothing within its time-out is given up as well, whatever
 * it waits for. So requests compute what they asked for, and only the thread in that call waits for a disk that hangs.
 *
 * It works under the store's mutex, and sleeps while there is nothing to watch. */

/* Work for when the mutex is released: users to wake (of each tier's fetches and saves), and lines to log. */
struct reports {
    const struct store_user **users[2 * STORE_TIERS];
    size_t n[2 * STORE_TIERS], n_lists;
    enum { SAME, HANGS, ANSWERS } change[STORE_TIERS];
};

static void add_list(struct reports *reports, const struct store_user **users, size_t n)
{
    if (n == 0) {
        free(users);
        return;
    }
    reports->users[reports->n_lists] = users;
    reports->n[reports->n_lists++] = n;
}

/* Lowers `next` to the earliest limit of a call that is not over it. */
static void watch_tier(struct tier *tier, int64_t now, int64_t *next, struct reports *reports)
{
    enum { WORKERS = FETCHERS + 2 };
    const struct worker *workers[WORKERS] = {&tier->saver.worker, &tier->supervisor};
    for (size_t i = 0; i < FETCHERS; i++) workers[2 + i] = &tier->fetcher.workers[i];
    bool hangs = false;
    for (size_t i = 0; i < WORKERS; i++) {
        if (workers[i]->since == 0) continue;
        hangs = hangs || workers[i]->limit <= now;
        if (workers[i]->limit > now && workers[i]->limit < *next) *next = workers[i]->limit;
    }
    const struct store_user **users;
    bool begins = hangs && !tier->stalled, ends = !hangs && tier->stalled;
    tier->stalled = hangs;
    if (begins) {
        reports->change[tier->id] = HANGS;
        snprintf(tier->trouble, sizeof tier->trouble, "it does not answer");
    }
    if (ends) {
        reports->change[tier->id] = ANSWERS;
        tier->trouble[0] = '\0';
    }
    if (begins || ends) {
        size_t n = saver_collect_waiters(tier, &users);
        add_list(reports, users, n);
    }
    size_t n = fetcher_give_up(tier, now, hangs, &users, next);
    add_list(reports, users, n);
    if (begins || ends) pthread_cond_broadcast(&tier->store->changed);
}

/* While it is awake, `watch_until` is 0, so that nobody wakes it for a call that begins meanwhile. */
void *watchdog_main(void *ud)
{
    struct store *store = ud;
    struct clock *clock = clock_monotonic();
    store_lock(store);
    while (!store->closing) {
        struct reports reports = {0};
        int64_t now = clock_now(clock), next = CLOCK_NEVER;
        for (enum store_tier i = 0; i < STORE_TIERS; i++)
            if (store->tiers[i].quota > 0) watch_tier(&store->tiers[i], now, &next, &reports);
        bool any = reports.n_lists > 0;
        for (enum store_tier i = 0; i < STORE_TIERS; i++) any = any || reports.change[i] != SAME;
        if (any) {
            store_unlock(store);
            for (enum store_tier i = 0; i < STORE_TIERS; i++)
                if (reports.change[i] != SAME)
                    log_event(LOG_WARN, LOG_GROUP,
                              reports.change[i] == HANGS ? "a tier does not answer: set aside" : "a tier answers again",
                              log_str("tier", store_tier_names[i]));
            for (size_t i = 0; i < reports.n_lists; i++) users_wake(store, reports.users[i], reports.n[i]);
            store_lock(store);
            continue;
        }
        store->watch_until = next;
        clock->wait(clock, &store->watch, &store->mutex, next);
        store->watch_until = 0;
    }
    store_unlock(store);
    store_end_thread(store);
    return NULL;
}
