/* The watchdog: one thread that notices calls of a backend which hang, and fetches that get nothing. A call that takes
 * longer than its limit puts the tier out of service until it returns: lookups leave the tier out, saves to it are
 * refused, and fetches from it are given up. A fetch that got nothing within its time-out is given up as well, whatever
 * it waits for. So requests compute what they asked for, and only the thread in that call waits for a disk that hangs.
 *
 * It works under the store's mutex, and sleeps while there is nothing to watch. */
#include "base/log.h"
#include "store/store_struct.h"

#include <stdio.h>
#include <stdlib.h>

/* What is done once the mutex is released: users to wake (of each tier's fetches and saves), and lines to log. */
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

/* How many calls of the tier are over their limit; lowers `next` to the earliest limit of the others. */
static size_t count_hung(const struct tier *tier, int64_t now, int64_t *next)
{
    enum { WORKERS = FETCHERS + 2 };
    const struct worker *workers[WORKERS] = {&tier->saver.worker, &tier->supervisor};
    for (size_t i = 0; i < FETCHERS; i++) workers[2 + i] = &tier->fetcher.workers[i];
    size_t hung = 0;
    for (size_t i = 0; i < WORKERS; i++) {
        if (workers[i]->since == 0) continue;
        hung += workers[i]->limit <= now;
        if (workers[i]->limit > now && workers[i]->limit < *next) *next = workers[i]->limit;
    }
    return hung;
}

static void watch_tier(struct tier *tier, int64_t now, int64_t *next, struct reports *reports)
{
    const struct store_user **users;
    bool hangs = count_hung(tier, now, next) > 0, begins = hangs && !tier->stalled, ends = !hangs && tier->stalled;
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

static bool has_reports(const struct reports *reports)
{
    bool any = reports->n_lists > 0;
    for (enum store_tier i = 0; i < STORE_TIERS; i++) any = any || reports->change[i] != SAME;
    return any;
}

/* Without the mutex. */
static void deliver(struct store *store, struct reports *reports)
{
    for (enum store_tier i = 0; i < STORE_TIERS; i++)
        if (reports->change[i] != SAME)
            log_event(LOG_WARN, LOG_GROUP,
                      reports->change[i] == HANGS ? "a tier does not answer: set aside" : "a tier answers again",
                      log_str("tier", store_tier_names[i]));
    for (size_t i = 0; i < reports->n_lists; i++) users_wake(store, reports->users[i], reports->n[i]);
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
        if (has_reports(&reports)) {
            store_unlock(store);
            deliver(store, &reports);
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
