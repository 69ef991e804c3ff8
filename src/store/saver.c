/* The queue of saves, the thread that carries them out one after the other, and the memory that they are copied to. */
#include "base/memory.h"
#include "store/private.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define POOL_BYTES ((size_t)128 << 20)

/* Smaller ones are touched as fast as anybody could ask for them. */
#define SPARE_BYTES ((size_t)1 << 20)

/* ---- Memory ----
 * Touching fresh pages takes several times as long as copying to them, and whoever copies out has other things to do: a
 * few buffers are kept, the one given back last is taken first, and where there is none left of a size that was asked
 * for, this thread touches one beforehand. A buffer never stands for one of less than half its size. */

/* With the mutex: the place of a buffer for that size; n_pool: there is none. */
static size_t find_buffer(const struct saver *saver, size_t size)
{
    for (size_t i = saver->n_pool; i-- > 0;) {
        size_t usable = malloc_usable_size(saver->pool[i]);
        if (usable >= size && usable / 2 <= size) return i;
    }
    return saver->n_pool;
}

static void *take_buffer(struct saver *saver, size_t i)
{
    void *buffer = saver->pool[i];
    saver->pool_bytes -= malloc_usable_size(buffer);
    saver->n_pool--;
    memmove(saver->pool + i, saver->pool + i + 1, (saver->n_pool - i) * sizeof(void *));
    return buffer;
}

/* With the mutex: there should be one more of that size soon. */
static void ask_for_spare(struct saver *saver, size_t size)
{
    if (size < SPARE_BYTES || size > POOL_BYTES / 2 || find_buffer(saver, size) < saver->n_pool) return;
    saver->spare = size;
    pthread_cond_signal(&saver->work);
}

void *store_buffer(struct store *store, size_t size)
{
    struct saver *saver = &store->saver;
    store_lock(store);
    size_t i = find_buffer(saver, size);
    void *found = i < saver->n_pool ? take_buffer(saver, i) : NULL;
    ask_for_spare(saver, size);
    store_unlock(store);
    return found != NULL ? found : malloc(size);
}

void store_expect(struct store *store, size_t size)
{
    store_lock(store);
    ask_for_spare(&store->saver, size);
    store_unlock(store);
}

/* Those kept longest make room. */
static void give_back(struct store *store, void *buffer)
{
    struct saver *saver = &store->saver;
    size_t usable = malloc_usable_size(buffer);
    if (usable > POOL_BYTES) {
        free(buffer);
        return;
    }
    void *gone[POOLED_BUFFERS];
    size_t n_gone = 0;
    store_lock(store);
    while (saver->n_pool - n_gone == POOLED_BUFFERS || saver->pool_bytes + usable > POOL_BYTES) {
        gone[n_gone] = saver->pool[n_gone];
        saver->pool_bytes -= malloc_usable_size(gone[n_gone++]);
    }
    saver->n_pool -= n_gone;
    memmove(saver->pool, saver->pool + n_gone, saver->n_pool * sizeof(void *));
    saver->pool[saver->n_pool++] = buffer;
    saver->pool_bytes += usable;
    store_unlock(store);
    while (n_gone > 0) free(gone[--n_gone]);
}

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

static void note_refused(struct saver *saver, const struct store_user *user)
{
    for (size_t i = 0; i < saver->n_refused; i++)
        if (saver->refused[i] == user) return;
    if (saver->n_refused == saver->refused_cap) {
        saver->refused_cap = saver->refused_cap == 0 ? 8 : 2 * saver->refused_cap;
        saver->refused = mem_grow(saver->refused, saver->refused_cap, sizeof(struct store_user *));
    }
    saver->refused[saver->n_refused++] = user;
}

static bool is_on(const struct store *store)
{
    return store->tiers[store->params.save_tier].on && !store->closing;
}

/* What is larger than all of the backlog is taken when nothing else is under way. */
static bool has_room(const struct store *store, size_t size)
{
    uint64_t limit = store->params.backlog, taken = store->saver.backlog;
    return taken == 0 || (taken <= limit && size <= limit - taken);
}

static uint64_t enqueue(struct store *store, struct job *job)
{
    struct saver *saver = &store->saver;
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
    struct job *job = job_of(save);
    uint64_t ticket = 0;
    store_lock(store);
    if (is_on(store)) {
        if (save->synchronous || has_room(store, save->size))
            ticket = enqueue(store, job);
        else
            note_refused(&store->saver, save->user);
    }
    store_unlock(store);
    if (ticket != 0) return ticket;
    metric_add(&store->stats.saves_dropped, 1);
    give_back(store, save->raw);
    job_free(job);
    return 0;
}

bool store_is_on(struct store *store)
{
    store_lock(store);
    bool on = is_on(store);
    store_unlock(store);
    return on;
}

bool store_has_room(struct store *store, const struct store_user *user, size_t size)
{
    store_lock(store);
    bool on = is_on(store), room = on && has_room(store, size);
    if (on && !room) note_refused(&store->saver, user);
    store_unlock(store);
    return room;
}

bool store_wait(struct store *store, uint64_t ticket, int64_t deadline)
{
    struct saver *saver = &store->saver;
    store_lock(store);
    if (ticket > saver->last_ticket) ticket = saver->last_ticket;
    while (saver->done < ticket && store_wait_changed(store, deadline)) {
    }
    bool done = saver->done >= ticket;
    store_unlock(store);
    return done;
}

bool store_is_done(struct store *store, const struct store_user *user, uint64_t ticket)
{
    struct saver *saver = &store->saver;
    store_lock(store);
    if (ticket > saver->last_ticket) ticket = saver->last_ticket;
    bool done = saver->done >= ticket;
    if (!done) note_refused(saver, user);
    store_unlock(store);
    return done;
}

/* ---- The thread ---- */

/* What cannot be removed now is tried again before the next slab is written. */
static void tidy_all(struct store *store)
{
    for (enum store_tier i = 0; i < STORE_TIERS; i++) {
        hearth_error error = {0};
        if (store->tiers[i].index == NULL) continue;
        if (tier_tidy(store, &store->tiers[i], &error) != 0) tier_trouble(store, &store->tiers[i], error.message);
    }
}

/* Without the mutex. */
static void make_spare(struct store *store, size_t size)
{
    void *buffer = malloc(size);
    if (buffer == NULL) return;
    memset(buffer, 0, size);
    give_back(store, buffer);
}

static struct job *take_job(struct saver *saver)
{
    struct job *job = saver->first;
    saver->first = job->next;
    if (saver->first == NULL) saver->end = &saver->first;
    saver->current = job;
    return job;
}

/* There is room again: those that were refused may try. */
static void finish_job(struct store *store, struct job *job)
{
    struct saver *saver = &store->saver;
    give_back(store, job->raw);
    store_lock(store);
    saver->current = NULL;
    saver->done = job->ticket;
    saver->backlog -= job->size;
    metric_add(&store->stats.backlog_bytes, -(int64_t)job->size);
    const struct store_user **refused = saver->refused;
    size_t n_refused = saver->n_refused;
    for (size_t i = 0; i < n_refused; i++) user_enter(store, refused[i]);
    saver->refused = NULL;
    saver->n_refused = saver->refused_cap = 0;
    pthread_cond_broadcast(&store->changed);
    store_unlock(store);
    users_wake(store, refused, n_refused);
    free(refused);
    job_free(job);
}

/* Nobody waits for most saves, but who computes on all processors waits for each of them: this thread gives way. */
static void give_way(void)
{
    enum { NICE = 10 };
    setpriority(PRIO_PROCESS, (id_t)gettid(), NICE); /* of this thread alone, on Linux; elsewhere it may not be had */
}

/* Until its folder has been looked through, a tier is not written to: what it holds counts. */
static void *run(void *ud)
{
    struct store *store = ud;
    struct saver *saver = &store->saver;
    struct tier *tier = &store->tiers[store->params.save_tier];
    give_way();
    store_lock(store);
    for (;;) {
        while (saver->first == NULL && !saver->tidy && saver->spare == 0 && !store->closing)
            pthread_cond_wait(&saver->work, &store->mutex);
        if (saver->spare > 0 && !store->closing) {
            size_t size = saver->spare;
            saver->spare = 0;
            store_unlock(store);
            make_spare(store, size);
            store_lock(store);
            continue;
        }
        if (saver->tidy) {
            saver->tidy = false;
            store_unlock(store);
            tidy_all(store);
            store_lock(store);
            continue;
        }
        if (saver->first == NULL) break;
        struct job *job = take_job(saver);
        while (!tier->ready) pthread_cond_wait(&store->changed, &store->mutex);
        store_unlock(store);
        job_write(store, job);
        finish_job(store, job);
        store_lock(store);
    }
    store_unlock(store);
    return NULL;
}

void saver_open(struct store *store)
{
    struct saver *saver = &store->saver;
    saver->end = &saver->first;
    pthread_cond_init(&saver->work, NULL);
    pthread_create(&saver->thread, NULL, run, store);
}

void saver_close(struct store *store)
{
    struct saver *saver = &store->saver;
    store_lock(store);
    pthread_cond_signal(&saver->work);
    store_unlock(store);
    pthread_join(saver->thread, NULL);
    while (saver->n_pool > 0) free(saver->pool[--saver->n_pool]);
    free(saver->refused);
    pthread_cond_destroy(&saver->work);
}
