/* The savers: each tier has a queue of save jobs and one thread that writes them in order (write.c). The queue is
 * bounded by the backlog, in bytes: beyond it saves are refused, and their users are woken when there is room
 * (backpressure). A tier on a server has a queue of its own, of what the tier of saves has taken. The thread alone
 * changes what the tier's backend holds. hit.c reads the queue, for prompts whose parent is still in it. */
#include "base/memory.h"
#include "base/os.h"
#include "base/thread.h"
#include "store/store_struct.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- Memory that saves are copied out to ---- A pool of buffers that saves are copied out to. Touching fresh pages
 * takes several times as long as copying to them, and the copying thread is the engine's. So a few buffers are kept,
 * and the one given back last is handed out first. Where none of a requested size is left, the saver thread allocates
 * and touches one beforehand. A buffer is never handed out for a size below half of its own. Guarded by the store's
 * mutex. */

#define POOL_BYTES ((size_t)128 << 20)

/* Smaller ones are not prepared beforehand: touching them takes no time that counts. */
#define SPARE_BYTES ((size_t)1 << 20)

/* With the mutex: the number of a buffer for that size; n: there is none. */
static size_t buffers_find(const struct buffers *buffers, size_t size)
{
    for (size_t i = buffers->n; i-- > 0;) {
        size_t usable = os_usable_size(buffers->pool[i]);
        if (usable >= size && usable / 2 <= size) return i;
    }
    return buffers->n;
}

/* With the mutex: has the saver prepare one of that size, if none is left. */
static void request_buffer(struct store *store, size_t size)
{
    struct buffers *buffers = &store->buffers;
    struct tier *tier = save_tier(store);
    if (tier->quota == 0 || size < SPARE_BYTES || size > POOL_BYTES / 2 || buffers_find(buffers, size) < buffers->n)
        return;
    buffers->wanted = size;
    pthread_cond_signal(&tier->saver.work);
}

void *store_buffer(struct store *store, size_t size)
{
    struct buffers *buffers = &store->buffers;
    store_lock(store);
    size_t i = buffers_find(buffers, size);
    void *found = i < buffers->n ? buffers->pool[i] : NULL;
    if (found != NULL) {
        buffers->bytes -= os_usable_size(found);
        buffers->n--;
        memmove(buffers->pool + i, buffers->pool + i + 1, (buffers->n - i) * sizeof(void *));
    }
    request_buffer(store, size);
    store_unlock(store);
    return found != NULL ? found : malloc(size);
}

void store_expect(struct store *store, size_t size)
{
    store_lock(store);
    request_buffer(store, size);
    store_unlock(store);
}

/* Frees the buffers kept longest, as far as the pool would be too large. */
static void buffers_give_back(struct store *store, void *buffer)
{
    struct buffers *buffers = &store->buffers;
    size_t usable = os_usable_size(buffer);
    if (usable > POOL_BYTES) {
        free(buffer);
        return;
    }
    void *evicted[POOLED_BUFFERS];
    size_t n_evicted = 0;
    store_lock(store);
    while (buffers->n - n_evicted == POOLED_BUFFERS || buffers->bytes + usable > POOL_BYTES) {
        evicted[n_evicted] = buffers->pool[n_evicted];
        buffers->bytes -= os_usable_size(evicted[n_evicted++]);
    }
    buffers->n -= n_evicted;
    memmove(buffers->pool, buffers->pool + n_evicted, buffers->n * sizeof(void *));
    buffers->pool[buffers->n++] = buffer;
    buffers->bytes += usable;
    store_unlock(store);
    while (n_evicted > 0) free(evicted[--n_evicted]);
}

/* On the saver's thread. */
static void buffers_make_wanted(struct store *store)
{
    store_lock(store);
    size_t size = store->buffers.wanted;
    store->buffers.wanted = 0;
    store_unlock(store);
    void *buffer = size > 0 ? malloc(size) : NULL;
    if (buffer == NULL) return;
    memset(buffer, 0, size);
    buffers_give_back(store, buffer);
}

/* ---- The queue ---- */

static struct save_job *save_job_of(const struct store_save *save, struct raw_bytes *raw)
{
    struct save_job *job = mem_alloc(sizeof *job);
    *job = (struct save_job){.user = save->user,
                             .codec = save->user->codec,
                             .identity = save->identity != NULL ? *save->identity : save->user->identity,
                             .kind = save->kind,
                             .reason = save->reason,
                             .from = save->from,
                             .to = save->to,
                             .raw = raw,
                             .last = save->last};
    tokens_append(&job->tokens, save->tokens, (size_t)save->to);
    return job;
}

static void save_job_free(struct save_job *job)
{
    tokens_release(&job->tokens);
    free(job);
}

/* Frees what the last job of it has left. */
static void raw_bytes_unref(struct store *store, struct raw_bytes *raw)
{
    store_lock(store);
    bool last = --raw->refs == 0;
    store_unlock(store);
    if (!last) return;
    buffers_give_back(store, raw->v);
    free(raw);
}

void saver_add_waiter(struct saver *saver, const struct store_user *user)
{
    for (size_t i = 0; i < saver->n_waiters; i++)
        if (saver->waiters[i] == user) return;
    saver->waiters = mem_room(saver->waiters, saver->n_waiters, &saver->waiters_cap, sizeof(struct store_user *));
    saver->waiters[saver->n_waiters++] = user;
}

size_t saver_collect_waiters(struct tier *tier, const struct store_user ***users)
{
    struct saver *saver = &tier->saver;
    size_t n = saver->n_waiters;
    *users = saver->waiters;
    for (size_t i = 0; i < n; i++) user_call_begin(tier->store, saver->waiters[i]);
    saver->waiters = NULL;
    saver->n_waiters = saver->waiters_cap = 0;
    return n;
}

/* A save larger than the whole backlog is accepted when no other is under way. */
static bool has_room(const struct store *store, const struct saver *saver, size_t size)
{
    uint64_t limit = store->params.backlog, taken = saver->backlog;
    return taken == 0 || (taken <= limit && size <= limit - taken);
}

static uint64_t enqueue(struct store *store, struct saver *saver, struct save_job *job)
{
    job->ticket = ++saver->last_ticket;
    saver->backlog += job->raw->size;
    metric_add(&store->stats.backlog_bytes, (int64_t)job->raw->size);
    job->raw->refs++;
    *saver->end = job;
    saver->end = &job->next;
    pthread_cond_signal(&saver->work);
    return job->ticket;
}

uint64_t store_save(struct store *store, const struct store_save *save)
{
    assert(save->user != NULL && save->tokens != NULL && save->raw != NULL);
    assert((save->kind == SLAB_ROWS || save->kind == SLAB_STATE) && save->reason >= SLAB_COLD &&
           save->reason <= SLAB_FINISH);
    assert(0 <= save->from && save->from <= save->to && save->to > 0);
    struct tier *tier = save_tier(store);
    struct raw_bytes *raw = mem_alloc(sizeof *raw);
    *raw = (struct raw_bytes){.v = save->raw, .size = save->size, .refs = 1};
    struct save_job *job = save_job_of(save, raw), *upload = NULL;
    if (upload_tier(store) != NULL) upload = save_job_of(save, raw);
    uint64_t ticket = 0;
    store_lock(store);
    if (tier_takes_saves(tier)) {
        if (save->synchronous || has_room(store, &tier->saver, save->size))
            ticket = enqueue(store, &tier->saver, job);
        else
            saver_add_waiter(&tier->saver, save->user);
    }
    /* A save that the tier of saves has taken is queued for the server as well. No request waits for that: a server
     * that is slower than saves come gets what it can. */
    struct tier *server = ticket != 0 && upload != NULL ? upload_tier(store) : NULL;
    if (server != NULL && has_room(store, &server->saver, raw->size)) {
        enqueue(store, &server->saver, upload);
        upload = NULL;
    } else if (server != NULL) {
        metric_add(&store->stats.uploads_dropped, 1);
    }
    store_unlock(store);
    if (ticket == 0) metric_add(&store->stats.saves_dropped, 1);
    if (ticket == 0) save_job_free(job);
    if (upload != NULL) save_job_free(upload);
    raw_bytes_unref(store, raw);
    return ticket;
}

bool store_is_on(struct store *store)
{
    store_lock(store);
    bool on = tier_takes_saves(save_tier(store));
    store_unlock(store);
    return on;
}

bool store_has_room(struct store *store, const struct store_user *user, size_t size)
{
    assert(user != NULL);
    struct tier *tier = save_tier(store);
    store_lock(store);
    bool room = tier_takes_saves(tier) && has_room(store, &tier->saver, size);
    if (!room) saver_add_waiter(&tier->saver, user);
    store_unlock(store);
    return room;
}

bool store_is_done(struct store *store, const struct store_user *user, uint64_t ticket)
{
    assert(user != NULL);
    struct saver *saver = &save_tier(store)->saver;
    store_lock(store);
    if (ticket > saver->last_ticket) ticket = saver->last_ticket;
    bool done = saver->done >= ticket;
    if (!done) saver_add_waiter(saver, user);
    store_unlock(store);
    return done;
}

bool store_wait(struct store *store, uint64_t ticket, int64_t deadline)
{
    struct saver *saver = &save_tier(store)->saver;
    store_lock(store);
    if (ticket > saver->last_ticket) ticket = saver->last_ticket;
    while (saver->done < ticket && store_wait_changed(store, deadline)) {
    }
    bool done = saver->done >= ticket;
    store_unlock(store);
    return done;
}

void store_allow_upload_wait(struct store *store, int64_t ns)
{
    assert(ns >= 0);
    store_lock(store);
    store->upload_wait_ns = ns;
    store_unlock(store);
}

void store_wait_for_uploads(struct store *store, int64_t deadline)
{
    struct tier *tier = upload_tier(store);
    int64_t began = clock_now(clock_monotonic());
    if (tier == NULL) return;
    store_lock(store);
    int64_t until = began + store->upload_wait_ns;
    uint64_t ticket = tier->saver.last_ticket;
    while (tier->saver.done < ticket && store_wait_changed(store, until < deadline ? until : deadline)) {
    }
    int64_t left = until - clock_now(clock_monotonic());
    store->upload_wait_ns = left > 0 ? left : 0;
    store_unlock(store);
}

/* ---- The thread ---- */

/* It may wait for the disk: for the supervisor, which writes the index file. */
static bool wants_scan(struct tier *tier)
{
    if (tier->backend->wants_scan == NULL) return false;
    tier_begin_call(tier, &tier->saver.worker, tier->store->params.save_timeout_ns);
    bool wants = tier->backend->wants_scan(tier->backend);
    tier_end_call(tier, &tier->saver.worker);
    return wants;
}

/* Wakes those that wait for room, or for the end of a save. */
static void finish_job(struct tier *tier, struct save_job *job)
{
    struct store *store = tier->store;
    struct saver *saver = &tier->saver;
    const struct store_user **users;
    bool scan = wants_scan(tier);
    size_t size = job->raw->size;
    raw_bytes_unref(store, job->raw);
    store_lock(store);
    saver->current = NULL;
    saver->done = job->ticket;
    saver->backlog -= size;
    metric_add(&store->stats.backlog_bytes, -(int64_t)size);
    if (scan && tier->scan_at == CLOCK_NEVER) {
        tier->scan_at = 0;
        pthread_cond_signal(&tier->supervisor_work);
    }
    size_t n = saver_collect_waiters(tier, &users);
    pthread_cond_broadcast(&store->changed);
    store_unlock(store);
    users_wake(store, users, n);
    save_job_free(job);
}

static void do_chores(struct tier *tier)
{
    store_lock(tier->store);
    bool trim = tier->to_trim, write_digests = tier->digests_changed;
    tier->to_trim = false;
    store_unlock(tier->store);
    tier_quarantine_damaged(tier);
    if (trim) tier_trim(tier);
    if (write_digests) tier_write_digests(tier);
}

bool saver_is_over(const struct tier *tier)
{
    const struct store *store = tier->store;
    return store->closing && (tier_is_shared(tier) || clock_now(clock_monotonic()) >= store->close_by);
}

/* With the mutex: whether a job may begin, if only to be dropped. */
static bool may_begin(const struct tier *tier)
{
    const struct store *store = tier->store;
    if (tier->saver.first == NULL) return false;
    bool opens_soon =
        tier->state == TIER_OPENING || (tier->state == TIER_LOST && tier->open_at == 0 && !store->closing);
    return saver_is_over(tier) || !opens_soon;
}

/* With the mutex, which it releases meanwhile: does one thing that is due. False: there was none. */
static bool run_one(struct tier *tier)
{
    struct store *store = tier->store;
    bool buffer_wanted = tier == save_tier(store) && store->buffers.wanted > 0 && !store->closing;
    bool any = tier->damaged != NULL || tier->scan_damaged != NULL || tier->to_trim || tier->digests_changed;
    bool chores = any && tier->state == TIER_OPEN;
    struct drop_order *drop = !buffer_wanted && !chores ? tier_next_drop(tier) : NULL;
    bool other = buffer_wanted || chores || drop != NULL;
    struct saver *saver = &tier->saver;
    struct save_job *job = !other && may_begin(tier) ? saver->first : NULL;
    if (!other && job == NULL) return false;
    if (job != NULL) {
        saver->first = job->next;
        if (saver->first == NULL) saver->end = &saver->first;
        saver->current = job;
    }
    store_unlock(store);
    if (buffer_wanted) {
        buffers_make_wanted(store);
    } else if (chores) {
        do_chores(tier);
    } else if (drop != NULL) {
        tier_carry_out(tier, drop);
    } else if (save_job_write(store, tier, job) || job->retried) {
        finish_job(tier, job);
        job = NULL;
    }
    store_lock(store);
    if (job != NULL) { /* the backend was lost while it was written, and is about to be opened again */
        job->retried = true;
        job->next = saver->first;
        if (saver->first == NULL) saver->end = &job->next;
        saver->first = job;
        saver->current = NULL;
    }
    return true;
}

/* Most saves have no one waiting, but threads that compute on all processors wait for each of these. */
#define GIVES_WAY 10

void *saver_main(void *ud)
{
    struct tier *tier = ud;
    struct store *store = tier->store;
    struct clock *clock = clock_monotonic();
    thread_give_way(GIVES_WAY);
    store_lock(store);
    for (;;) {
        if (run_one(tier)) continue;
        if (store->closing && tier->saver.first == NULL) break;
        clock->wait(clock, &tier->saver.work, &store->mutex, store->closing ? store->close_by : CLOCK_NEVER);
    }
    tier->saver.ended = true;
    store_unlock(store);
    store_end_thread(store);
    return NULL;
}
