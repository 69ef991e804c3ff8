/* The store's life, its users and its numbers. */
#include "store/store.h"

#include "base/memory.h"
#include "store/private.h"

#include <stdlib.h>
#include <string.h>

const char *const store_tier_names[STORE_TIERS] = {"ram", "ram_file", "disk"};

/* ---- Life ---- */

struct store *store_open(const struct store_params *params)
{
    struct store *store = mem_alloc(sizeof *store);
    store->params = *params;
    pthread_mutex_init(&store->mutex, NULL);
    clock_cond_init(&store->changed);
    for (enum store_tier i = 0; i < STORE_TIERS; i++) tier_open(store, i);
    saver_open(store);
    fetcher_open(store);
    pthread_create(&store->scanner, NULL, scan_main, store);
    return store;
}

/* A look through the folders is given up; saves that wait for it are lost. */
void store_close(struct store *store)
{
    if (store == NULL) return;
    store_lock(store);
    store->closing = true;
    atomic_store(&store->stop_scan, true);
    store_unlock(store);
    pthread_join(store->scanner, NULL);
    saver_close(store);
    fetcher_close(store);
    for (enum store_tier i = 0; i < STORE_TIERS; i++) tier_close(&store->tiers[i]);
    free(store->busy);
    pthread_cond_destroy(&store->changed);
    pthread_mutex_destroy(&store->mutex);
    free(store);
}

bool store_wait_changed(struct store *store, int64_t deadline)
{
    struct clock *clock = clock_monotonic();
    if (clock_now(clock) >= deadline) return false;
    clock->wait(clock, &store->changed, &store->mutex, deadline);
    return true;
}

bool store_is_ready(const struct store *store)
{
    for (enum store_tier i = 0; i < STORE_TIERS; i++)
        if (!store->tiers[i].ready) return false;
    return true;
}

bool store_wait_ready(struct store *store, int64_t deadline)
{
    store_lock(store);
    while (!store_is_ready(store) && store_wait_changed(store, deadline)) {
    }
    bool ready = store_is_ready(store);
    store_unlock(store);
    return ready;
}

/* ---- Users ---- */

void user_enter(struct store *store, const struct store_user *user)
{
    if (store->n_busy == store->busy_cap) {
        store->busy_cap = store->busy_cap == 0 ? 8 : 2 * store->busy_cap;
        store->busy = mem_grow(store->busy, store->busy_cap, sizeof(struct store_user *));
    }
    store->busy[store->n_busy++] = user;
}

void user_leave(struct store *store, const struct store_user *user)
{
    size_t i = 0;
    while (store->busy[i] != user) i++;
    store->busy[i] = store->busy[--store->n_busy];
    pthread_cond_broadcast(&store->changed);
}

void users_wake(struct store *store, const struct store_user **users, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (users[i]->wake != NULL) users[i]->wake(users[i]->ud);
        store_lock(store);
        user_leave(store, users[i]);
        store_unlock(store);
    }
}

static bool is_busy(const struct store *store, const struct store_user *user)
{
    for (size_t i = 0; i < store->n_busy; i++)
        if (store->busy[i] == user) return true;
    return false;
}

void store_leave(struct store *store, const struct store_user *user)
{
    struct saver *saver = &store->saver;
    store_lock(store);
    if (saver->current != NULL && saver->current->user == user) saver->current->user = NULL;
    for (struct job *job = saver->first; job != NULL; job = job->next)
        if (job->user == user) job->user = NULL;
    size_t kept = 0;
    for (size_t i = 0; i < saver->n_refused; i++)
        if (saver->refused[i] != user) saver->refused[kept++] = saver->refused[i];
    saver->n_refused = kept;
    while (is_busy(store, user)) store_wait_changed(store, CLOCK_NEVER);
    store_unlock(store);
}

/* ---- Numbers ---- */

uint64_t store_failures(const struct store *store)
{
    return atomic_load(&store->failures);
}

void store_count_dropped(struct store *store)
{
    metric_add(&store->stats.saves_dropped, 1);
}

const struct store_stats *store_stats(const struct store *store)
{
    return &store->stats;
}

void store_tier_status(struct store *store, enum store_tier id, struct store_tier_status *out)
{
    struct tier *tier = &store->tiers[id];
    *out = (struct store_tier_status){.quota = tier->quota};
    store_lock(store);
    out->on = tier->on;
    memcpy(out->trouble, tier->trouble, sizeof out->trouble);
    store_unlock(store);
    if (!out->on) return;
    struct index_usage usage = index_usage(tier->index);
    out->entries = usage.entries;
    out->bytes = usage.bytes;
    out->evictions = usage.evictions;
}
