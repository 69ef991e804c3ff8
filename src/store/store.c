/* The store itself: opening and closing it with its threads, names of models, known digests, calls of users, numbers.
 * Threads of all other files begin and end here, and the last one frees the store (see store_struct.h). */
#include "store/store.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "store/store_struct.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Threads ---- */

int store_begin_thread(struct store *store, void *(*main)(void *), void *ud, hearth_error *error)
{
    store_lock(store);
    struct store_thread *thread = &store->threads[store->n_threads];
    int rc = thread_start(&thread->id, main, ud, "keeps the cache", error);
    if (rc == HEARTH_OK) {
        store->n_threads++;
        store->n_running++;
    }
    store_unlock(store);
    return rc;
}

static void store_free(struct store *store)
{
    for (enum store_tier i = 0; i < STORE_TIERS; i++) tier_close(&store->tiers[i]);
    while (store->buffers.n > 0) free(store->buffers.pool[--store->buffers.n]);
    free(store->busy);
    for (struct model_name *name = store->names, *next; name != NULL; name = next) {
        next = name->next;
        free(name);
    }
    pthread_cond_destroy(&store->watch);
    pthread_cond_destroy(&store->changed);
    pthread_mutex_destroy(&store->mutex);
    free(store);
}

void store_end_thread(struct store *store)
{
    store_lock(store);
    for (size_t i = 0; i < store->n_threads; i++)
        if (pthread_equal(store->threads[i].id, pthread_self())) store->threads[i].ended = true;
    bool last = --store->n_running == 0 && store->abandoned;
    pthread_cond_broadcast(&store->changed);
    store_unlock(store);
    if (last) store_free(store);
}

/* ---- Opening and closing ---- */

/* How long store_close() waits for threads that only read, once all saves are done: 1 s, since no one needs their
 * result. */
#define END_WAIT_NS ((int64_t)1000000000)

struct store *store_open(const struct store_params *params, hearth_error *error)
{
    assert(params->stride > 0);
    assert(params->save_tier < STORE_TIERS && store_tier_kind(params->save_tier) != STORE_SERVER);
    struct store *store = mem_alloc(sizeof *store);
    store->params = *params;
    pthread_mutex_init(&store->mutex, NULL);
    clock_cond_init(&store->changed);
    clock_cond_init(&store->watch);
    int rc = HEARTH_OK;
    for (enum store_tier i = 0; i < STORE_TIERS && rc == HEARTH_OK; i++) rc = tier_open(store, i, error);
    if (rc == HEARTH_OK) rc = store_begin_thread(store, watchdog_main, store, error);
    if (rc == HEARTH_OK) return store;
    store_close(store, clock_now(clock_monotonic()) + END_WAIT_NS);
    return NULL;
}

static void wake_all(struct store *store)
{
    pthread_cond_signal(&store->watch);
    for (enum store_tier i = 0; i < STORE_TIERS; i++) {
        struct tier *tier = &store->tiers[i];
        if (tier->quota == 0) continue;
        pthread_cond_signal(&tier->supervisor_work);
        pthread_cond_signal(&tier->saver.work);
        pthread_cond_broadcast(&tier->fetcher.work);
    }
}

/* A server gets copies, and may be slow: it was waited for before, if at all. */
static size_t count_saving(const struct store *store)
{
    size_t n = 0;
    for (enum store_tier i = 0; i < STORE_TIERS; i++) {
        const struct tier *tier = &store->tiers[i];
        n += tier->quota > 0 && !tier_is_shared(tier) && !tier->saver.ended;
    }
    return n;
}

bool store_close(struct store *store, int64_t deadline)
{
    if (store == NULL) return true;
    store_lock(store);
    store->closing = true;
    store->close_by = deadline;
    wake_all(store);
    while (count_saving(store) > 0 && store_wait_changed(store, deadline)) {
    }
    int64_t by = clock_now(clock_monotonic()) + END_WAIT_NS;
    while (store->n_running > 0 && store_wait_changed(store, by < deadline ? by : deadline)) {
    }
    bool whole = store->n_running == 0;
    /* Whether a server is still being sent something, which may be slow and need not be away. */
    const struct tier *tier = shared_tier(store);
    bool uploads = tier != NULL && count_saving(store) == 0 && !tier->saver.ended;
    pthread_t ended[STORE_THREADS];
    size_t n_ended = 0;
    /* Threads that have ended are joined; the others hang in a call of a backend and are left alone. */
    for (size_t i = 0; i < store->n_threads; i++) {
        if (store->threads[i].ended)
            ended[n_ended++] = store->threads[i].id;
        else
            pthread_detach(store->threads[i].id);
    }
    store->abandoned = !whole;
    store_unlock(store);
    /* Libraries free memory at a thread's end, as OpenSSL does. That must not meet with what they free at the
     * process's. */
    for (size_t i = 0; i < n_ended; i++) pthread_join(ended[i], NULL);
    if (whole)
        store_free(store);
    else if (uploads)
        log_event(LOG_WARN, LOG_GROUP,
                  "closed while something was being sent to a server that is slow or does not answer");
    else
        log_event(LOG_WARN, LOG_GROUP, "closed without a tier that does not answer");
    return whole;
}

bool store_wait_changed(struct store *store, int64_t deadline)
{
    struct clock *clock = clock_monotonic();
    if (clock_now(clock) >= deadline) return false;
    clock->wait(clock, &store->changed, &store->mutex, deadline);
    return true;
}

static bool is_settled(const struct store *store)
{
    for (enum store_tier i = 0; i < STORE_TIERS; i++)
        if (!store->tiers[i].settled) return false;
    return true;
}

/* Whether a supervisor has still to open or to scan a tier, or is doing so; one that cannot be opened is not scanned.
 */
static bool is_reopening(const struct store *store)
{
    for (enum store_tier i = 0; i < STORE_TIERS; i++) {
        const struct tier *tier = &store->tiers[i];
        if (tier->quota == 0) continue;
        bool to_scan = tier->state != TIER_LOST && tier->scan_at == 0;
        if (tier->state == TIER_SHARED || tier->open_at == 0 || to_scan) return true;
    }
    return false;
}

/* The interval at which store_reopen() has a folder tried that the other process still has. */
#define REOPEN_AGAIN_NS ((int64_t)50000000)

/* With the mutex. An attempt that fails meanwhile sets open_at anew, so that this is called again and again. */
static void reopen_shared(struct store *store)
{
    for (enum store_tier i = 0; i < STORE_TIERS; i++) {
        struct tier *tier = &store->tiers[i];
        if (tier->quota == 0 || tier->state != TIER_SHARED) continue;
        tier->open_at = 0;
        tier->back_off = BACK_OFF_FIRST_NS;
        pthread_cond_signal(&tier->supervisor_work);
    }
}

/* Slabs that the other process stored after the first scan are found by another one, which follows when the tier is
 * opened. */
bool store_reopen(struct store *store, int64_t deadline)
{
    store_lock(store);
    int64_t now, again = 0;
    while (is_reopening(store) && (now = clock_now(clock_monotonic())) < deadline) {
        if (now >= again) {
            reopen_shared(store);
            again = now + REOPEN_AGAIN_NS;
        }
        store_wait_changed(store, again < deadline ? again : deadline);
    }
    bool whole = !is_reopening(store);
    store_unlock(store);
    return whole;
}

bool store_wait_ready(struct store *store, int64_t deadline)
{
    store_lock(store);
    while (!is_settled(store) && store_wait_changed(store, deadline)) {
    }
    bool settled = is_settled(store);
    store_unlock(store);
    return settled;
}

/* ---- Names ---- */

static struct model_name *find_name(const struct store *store, const uint8_t model[SHA256_BYTES])
{
    struct model_name *name = store->names;
    while (name != NULL && memcmp(name->model, model, SHA256_BYTES) != 0) name = name->next;
    return name;
}

void store_name_model(struct store *store, const uint8_t model[SHA256_BYTES], const char *name)
{
    store_lock(store);
    if (find_name(store, model) == NULL) {
        struct model_name *entry = mem_alloc(sizeof *entry);
        memcpy(entry->model, model, SHA256_BYTES);
        snprintf(entry->name, sizeof entry->name, "%s", name);
        entry->next = store->names;
        store->names = entry;
    }
    store_unlock(store);
}

const char *store_model_name(const struct store *store, const uint8_t model[SHA256_BYTES])
{
    const struct model_name *name = find_name(store, model);
    return name == NULL ? NULL : name->name;
}

void tier_write_model_name(struct tier *tier, const uint8_t model[SHA256_BYTES])
{
    struct store *store = tier->store;
    if (tier->backend->name_model == NULL) return;
    store_lock(store);
    struct model_name *name = find_name(store, model);
    bool wanted = name != NULL && !name->written[tier->id];
    if (wanted) name->written[tier->id] = true;
    store_unlock(store);
    if (!wanted) return;
    tier_begin_call(tier, &tier->saver.worker, store->params.save_timeout_ns);
    tier->backend->name_model(tier->backend, model, name->name);
    tier_end_call(tier, &tier->saver.worker);
}

/* ---- Known digests ---- */

void store_digests(struct store *store, int64_t deadline, struct buf *out)
{
    struct tier *tier = tier_of_digests(store);
    if (tier == NULL) return;
    store_lock(store);
    while (tier->state == TIER_OPENING && !store->closing && store_wait_changed(store, deadline)) {
    }
    buf_append(out, tier->digests.v, tier->digests.len);
    store_unlock(store);
}

void store_keep_digests(struct store *store, const struct buf *digests)
{
    struct tier *tier = tier_of_digests(store);
    if (tier == NULL) return;
    store_lock(store);
    if (tier_takes_saves(tier) && tier->state == TIER_OPEN) {
        buf_clear(&tier->digests);
        buf_append(&tier->digests, digests->v, digests->len);
        tier->digests_changed = true;
        pthread_cond_signal(&tier->saver.work);
    }
    store_unlock(store);
}

/* ---- Users ---- */

void user_call_begin(struct store *store, const struct store_user *user)
{
    store->busy = mem_room(store->busy, store->n_busy, &store->busy_cap, sizeof(struct store_user *));
    store->busy[store->n_busy++] = user;
}

void user_call_end(struct store *store, const struct store_user *user)
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
        user_call_end(store, users[i]);
        store_unlock(store);
    }
    free(users);
}

static bool is_busy(const struct store *store, const struct store_user *user)
{
    for (size_t i = 0; i < store->n_busy; i++)
        if (store->busy[i] == user) return true;
    return false;
}

void store_remove_user(struct store *store, const struct store_user *user)
{
    assert(user != NULL);
    store_lock(store);
    for (enum store_tier i = 0; i < STORE_TIERS; i++) {
        struct saver *saver = &store->tiers[i].saver;
        if (saver->current != NULL && saver->current->user == user) saver->current->user = NULL;
        for (struct save_job *job = saver->first; job != NULL; job = job->next)
            if (job->user == user) job->user = NULL;
        size_t kept = 0;
        for (size_t k = 0; k < saver->n_waiters; k++)
            if (saver->waiters[k] != user) saver->waiters[kept++] = saver->waiters[k];
        saver->n_waiters = kept;
    }
    while (is_busy(store, user)) store_wait_changed(store, CLOCK_NEVER);
    store_unlock(store);
}

/* ---- Following ---- */

struct index *store_tier_index(struct store *store, enum store_tier tier)
{
    assert(tier < STORE_TIERS);
    return store->tiers[tier].index;
}

/* ---- Numbers ---- */

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
    assert(id < STORE_TIERS);
    struct tier *tier = &store->tiers[id];
    *out = (struct store_tier_status){.quota = tier->quota};
    if (tier->quota == 0) return;
    store_lock(store);
    out->on = tier_serves(tier);
    memcpy(out->trouble, tier->trouble, sizeof out->trouble);
    store_unlock(store);
    struct index_usage usage = index_usage(tier->index);
    out->entries = usage.entries;
    out->bytes = usage.bytes;
    out->evictions = usage.evictions;
}
