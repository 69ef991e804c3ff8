/* The watchdog: one thread that notices what does not come. A call of a backend that takes longer than its limit sets
 * the tier aside, until it returns: lookups leave the tier out, saves to it are refused, and what was being fetched
 * from it is given up. A fetch to which nothing comes is given up as well, whatever it waits for. So whoever asked
 * computes, and nobody but the thread in that call ever waits for a disk that hangs.
 *
 * It sleeps while there is nothing to watch. */
#include "base/log.h"
#include "store/store_parts.h"

#include <stdio.h>
#include <stdlib.h>

/* What is to be done without the mutex: users to wake (of each tier's fetches, and of its saves), and what to say. */
struct news {
    const struct store_user **users[2 * STORE_TIERS];
    size_t n[2 * STORE_TIERS], n_lists;
    const char *text[STORE_TIERS];
};

static void add_list(struct news *news, const struct store_user **users, size_t n)
{
    if (n == 0) return;
    news->users[news->n_lists] = users;
    news->n[news->n_lists++] = n;
}

/* How many calls of the tier are over their limit; `next`: the earliest limit of the others. */
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

static void watch_tier(struct tier *tier, int64_t now, int64_t *next, struct news *news)
{
    const struct store_user **users;
    bool hangs = count_hung(tier, now, next) > 0, begins = hangs && !tier->stalled, ends = !hangs && tier->stalled;
    tier->stalled = hangs;
    if (begins) {
        news->text[tier->id] = "a tier does not answer: set aside";
        snprintf(tier->trouble, sizeof tier->trouble, "it does not answer");
    }
    if (ends) {
        news->text[tier->id] = "a tier answers again";
        tier->trouble[0] = '\0';
    }
    if (begins || ends) {
        size_t n = saver_take_waiting(tier, &users);
        add_list(news, users, n);
    }
    size_t n = fetcher_give_up(tier, now, hangs, &users, next);
    add_list(news, users, n);
    if (begins || ends) pthread_cond_broadcast(&tier->store->changed);
}

static bool has_news(const struct news *news)
{
    bool any = news->n_lists > 0;
    for (enum store_tier i = 0; i < STORE_TIERS; i++) any = any || news->text[i] != NULL;
    return any;
}

/* Without the mutex. */
static void spread(struct store *store, struct news *news)
{
    for (enum store_tier i = 0; i < STORE_TIERS; i++)
        if (news->text[i] != NULL) log_event(LOG_WARN, LOG_GROUP, news->text[i], log_str("tier", store_tier_names[i]));
    for (size_t i = 0; i < news->n_lists; i++) users_wake(store, news->users[i], news->n[i]);
}

/* While it is awake, `watch_until` is 0: whoever begins something need not wake it. */
void *watchdog_main(void *ud)
{
    struct store *store = ud;
    struct clock *clock = clock_monotonic();
    store_lock(store);
    while (!store->closing) {
        struct news news = {0};
        int64_t now = clock_now(clock), next = CLOCK_NEVER;
        for (enum store_tier i = 0; i < STORE_TIERS; i++)
            if (store->tiers[i].quota > 0) watch_tier(&store->tiers[i], now, &next, &news);
        if (has_news(&news)) {
            store_unlock(store);
            spread(store, &news);
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
