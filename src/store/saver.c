/* The savers: of each tier a queue of saves, and the thread that carries them out one after the other. It alone changes
 * what the tier's backend holds. */
#include "base/memory.h"
#include "store/store_parts.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- The queue ---- */

static struct job *job_of(const struct store_save *save)
{
    struct job *job = mem_alloc(sizeof *job);
    *job = (struct job){.user = save->user,
                        .codec = save->user->codec,
                        .identity = save->identity != NULL ? *save->identity : save->user->identity,
                        .kind = save->kind,
                        .reason = save->reason,
                        .from = save->from,
                        .to = save->to,
                        .raw = save->raw,
                        .size = save->size,
                        .last = save->last};
    tokens_append(&job->tokens, save->tokens, (size_t)save->to);
    return job;
}

static void job_free(struct job *job)
{
    tokens_release(&job->tokens);
    free(job);
}

void saver_note_waiting(struct saver *saver, const struct store_user *user)
{
    for (size_t i = 0; i < saver->n_waiting; i++)
        if (saver->waiting[i] == user) return;
    if (saver->n_waiting == saver->waiting_cap) {
        saver->waiting_cap = saver->waiting_cap == 0 ? 8 : 2 * saver->waiting_cap;
        saver->waiting = mem_grow(saver->waiting, saver->waiting_cap, sizeof(struct store_user *));
    }
    saver->waiting[saver->n_waiting++] = user;
}

size_t saver_take_waiting(struct tier *tier, const struct store_user ***users)
{
    struct saver *saver = &tier->saver;
    size_t n = saver->n_waiting;
    *users = saver->waiting;
    for (size_t i = 0; i < n; i++) user_enter(tier->store, saver->waiting[i]);
    saver->waiting = NULL;
    saver->n_waiting = saver->waiting_cap = 0;
    return n;
}

/* What is larger than all of the backlog is taken when nothing else is under way. */
static bool has_room(const struct store *store, const struct saver *saver, size_t size)
{
    uint64_t limit = store->params.backlog, taken = saver->backlog;
    return taken == 0 || (taken <= limit && size <= limit - taken);
}

static uint64_t enqueue(struct store *store, struct saver *saver, struct job *job)
{
    job->ticket = ++saver->last_ticket;
    saver->backlog += job->size;
    metric_add(&store->stats.backlog_bytes, (int64_t)job->size);
    *saver->end = job;
    saver->end = &job->next;
    pthread_cond_signal(&saver->work);
    return job->ticket;
}

uint64_t store_save(struct store *store, const struct store_save *save)
{
    struct tier *tier = save_tier(store);
    struct job *job = job_of(save);
    uint64_t ticket = 0;
    store_lock(store);
    if (tier_takes_saves(tier)) {
        if (save->synchronous || has_room(store, &tier->saver, save->size))
            ticket = enqueue(store, &tier->saver, job);
        else
            saver_note_waiting(&tier->saver, save->user);
    }
    store_unlock(store);
    if (ticket != 0) return ticket;
    metric_add(&store->stats.saves_dropped, 1);
    buffers_give_back(store, save->raw);
    job_free(job);
    return 0;
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
    struct tier *tier = save_tier(store);
    store_lock(store);
    bool room = tier_takes_saves(tier) && has_room(store, &tier->saver, size);
    if (!room) saver_note_waiting(&tier->saver, user);
    store_unlock(store);
    return room;
}

bool store_is_done(struct store *store, const struct store_user *user, uint64_t ticket)
{
    struct saver *saver = &save_tier(store)->saver;
    store_lock(store);
    if (ticket > saver->last_ticket) ticket = saver->last_ticket;
    bool done = saver->done >= ticket;
    if (!done) saver_note_waiting(saver, user);
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

/* ---- The thread ---- */

static struct job *take_job(struct saver *saver)
{
    struct job *job = saver->first;
    saver->first = job->next;
    if (saver->first == NULL) saver->end = &saver->first;
    saver->current = job;
    return job;
}

/* There is room again: those that wait may try. */
static void finish_job(struct tier *tier, struct job *job)
{
    struct store *store = tier->store;
    struct saver *saver = &tier->saver;
    const struct store_user **users;
    bool scan = tier->backend->wants_scan != NULL && tier->backend->wants_scan(tier->backend);
    buffers_give_back(store, job->raw);
    store_lock(store);
    saver->current = NULL;
    saver->done = job->ticket;
    saver->backlog -= job->size;
    metric_add(&store->stats.backlog_bytes, -(int64_t)job->size);
    if (scan && tier->scan_at == CLOCK_NEVER) {
        tier->scan_at = 0;
        pthread_cond_signal(&tier->attend);
    }
    size_t n = saver_take_waiting(tier, &users);
    pthread_cond_broadcast(&store->changed);
    store_unlock(store);
    users_wake(store, users, n);
    job_free(job);
}

static void tidy(struct tier *tier)
{
    store_lock(tier->store);
    bool trim = tier->to_trim;
    tier->to_trim = false;
    store_unlock(tier->store);
    tier_tidy(tier);
    if (trim) tier_trim(tier);
}

/* With the mutex: a job may be begun. At the end what is queued is still saved, in the time that is left. */
static bool may_begin(const struct tier *tier)
{
    const struct store *store = tier->store;
    if (tier->saver.first == NULL) return false;
    bool over = store->closing && clock_now(clock_monotonic()) >= store->close_by;
    bool comes = tier->state == TIER_OPENING || (tier->state == TIER_LOST && tier->open_at == 0 && !store->closing);
    return over || !comes;
}

/* With the mutex: the tier was lost while it was written, and is about to be opened again. */
static void put_back(struct saver *saver, struct job *job)
{
    job->retried = true;
    job->next = saver->first;
    if (saver->first == NULL) saver->end = &job->next;
    saver->first = job;
    saver->current = NULL;
}

/* With the mutex: what is to be done now, if anything. */
static bool do_one(struct tier *tier)
{
    struct store *store = tier->store;
    bool wanted = tier == save_tier(store) && store->buffers.wanted > 0 && !store->closing;
    bool untidy = (tier->damaged != NULL || tier->found != NULL || tier->to_trim) && tier->state == TIER_OPEN;
    struct job *job = !wanted && !untidy && may_begin(tier) ? take_job(&tier->saver) : NULL;
    if (!wanted && !untidy && job == NULL) return false;
    store_unlock(store);
    if (wanted) {
        buffers_make_wanted(store);
    } else if (untidy) {
        tidy(tier);
    } else if (job_write(store, tier, job) || job->retried) {
        finish_job(tier, job);
        job = NULL;
    }
    store_lock(store);
    if (job != NULL) put_back(&tier->saver, job);
    return true;
}

/* Nobody waits for most saves, but who computes on all processors waits for each of them: this thread gives way. */
static void give_way(void)
{
    enum { NICE = 10 };
    setpriority(PRIO_PROCESS, (id_t)gettid(), NICE); /* of this thread alone, on Linux; elsewhere it may not be had */
}

void *saver_main(void *ud)
{
    struct tier *tier = ud;
    struct store *store = tier->store;
    struct clock *clock = clock_monotonic();
    give_way();
    store_lock(store);
    for (;;) {
        if (do_one(tier)) continue;
        if (store->closing && tier->saver.first == NULL) break;
        clock->wait(clock, &tier->saver.work, &store->mutex, store->closing ? store->close_by : CLOCK_NEVER);
    }
    tier->saver.ended = true;
    store_unlock(store);
    store_end_thread(store);
    return NULL;
}

void saver_init(struct saver *saver)
{
    saver->end = &saver->first;
    clock_cond_init(&saver->work);
}

void saver_release(struct saver *saver)
{
    free(saver->waiting);
    pthread_cond_destroy(&saver->work);
}
