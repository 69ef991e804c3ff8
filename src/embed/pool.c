/* The worker threads of a pool of embedding contexts, and their queue. One mutex guards the queue and the pool's part
 * of every job; it is never held while a job is prepared, computed or ended.
 *
 * A worker takes the first of these that there is to do. It ends a finished job. If the prepared inputs do not fill a
 * call, it prepares more, which costs far less than computing them. It computes a call. So at most one call's worth is
 * prepared ahead, and a long list of inputs delays no other job by its length. A job is finished when it has all its
 * vectors, or has failed and no thread works on it any more. */
#include "embed/pool.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct queue {
    struct embed_job *first, **tail;
    size_t len;
};

/* One input of a call. */
struct call_input {
    struct embed_job *job;
    struct embed_input *input;
};

/* A context and its thread. */
struct worker {
    struct embed_pool *pool;
    struct llm_embedder *embedder;
    pthread_t thread;
    bool started;
    struct call_input *call; /* guarded while it is filled; then the thread's own */
    struct llm_input *batch;
    int32_t n;
    _Atomic bool abort;
};

struct embed_pool {
    char name[128];
    struct clock *clock;
    size_t most_bytes;
    int32_t window, width;
    hearth_pooling pooling;
    struct embed_stats *stats, own_stats; /* where the pool counts; own_stats: if the caller gave no stats */

    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    struct queue jobs;
    size_t bytes;    /* of these */
    size_t n_ending; /* jobs out of the queue whose on_end() is still running */
    bool draining, past_deadline, closing;

    int32_t n_workers;
    struct worker workers[];
};

/* ---- The queue ---- */

static void queue_append(struct queue *list, struct embed_job *job)
{
    if (list->first == NULL) list->tail = &list->first;
    job->next = NULL;
    *list->tail = job;
    list->tail = &job->next;
    list->len++;
}

/* Takes out the job that the link points to; the link then points to the next one. */
static struct embed_job *queue_take(struct queue *list, struct embed_job **link)
{
    struct embed_job *job = *link;
    *link = job->next;
    if (list->tail == &job->next) list->tail = link;
    list->len--;
    return job;
}

/* ---- Faults ---- */

/* Keeps the first fault, which is the one reported. */
static void fail(struct embed_job *job, hearth_code code, const char *message)
{
    if (job->failed) return;
    job->failed = true;
    error_set(&job->error, code, "%s", message);
}

static void fail_cancelled(struct queue *list)
{
    for (struct embed_job *job = list->first; job != NULL; job = job->next)
        if (atomic_load(&job->cancelled)) fail(job, HEARTH_CANCELLED, "request was cancelled");
}

/* ---- What to do next ---- */

/* The room that a call still has. */
struct capacity {
    int32_t inputs, tokens;
};

static struct capacity capacity_of_call(const struct worker *worker)
{
    return (struct capacity){llm_embedder_max_inputs(worker->embedder), llm_embedder_max_tokens(worker->embedder)};
}

/* False: no further input fits. */
static bool fit(struct capacity *capacity, const struct embed_input *input)
{
    int32_t n = (int32_t)input->tokens.len;
    if (capacity->inputs == 0 || n > capacity->tokens) return false;
    capacity->inputs--;
    capacity->tokens -= n;
    return true;
}

static bool is_call_full(const struct embed_pool *pool, const struct worker *worker)
{
    struct capacity capacity = capacity_of_call(worker);
    for (const struct embed_job *job = pool->jobs.first; job != NULL; job = job->next) {
        if (job->failed) continue;
        for (size_t i = job->n_assigned; i < job->n_prepared; i++)
            if (!fit(&capacity, &job->inputs[i])) return true;
    }
    return capacity.inputs == 0 || capacity.tokens == 0;
}

/* Assigns inputs to the worker for one call. A job that gave some and has more left moves to the end of the queue, so
 * that long lists do not delay short ones. The first input that does not fit ends the call, so that none is
 * overtaken. */
static bool fill_call(struct embed_pool *pool, struct worker *worker)
{
    struct capacity capacity = capacity_of_call(worker);
    struct embed_job **link = &pool->jobs.first;
    bool fits = true;
    worker->n = 0;
    for (size_t left = pool->jobs.len; fits && left > 0 && *link != NULL; left--) {
        struct embed_job *job = *link;
        size_t before = job->n_assigned;
        while (!job->failed && job->n_assigned < job->n_prepared) {
            struct embed_input *input = &job->inputs[job->n_assigned];
            fits = fit(&capacity, input);
            if (!fits) break;
            worker->call[worker->n] = (struct call_input){job, input};
            worker->batch[worker->n++] = (struct llm_input){input->tokens.v, (int32_t)input->tokens.len};
            job->n_assigned++;
            job->n_running++;
        }
        if (job->n_assigned > before && job->n_assigned < job->n_inputs)
            queue_append(&pool->jobs, queue_take(&pool->jobs, link));
        else
            link = &job->next;
    }
    return worker->n > 0;
}

/* ---- A call ---- */

/* Copies the vectors of one of the call's inputs. */
static bool keep_vectors(struct worker *worker, int32_t index, struct embed_input *input)
{
    size_t width = (size_t)worker->pool->width;
    input->n_vectors = worker->pool->pooling == HEARTH_POOLING_NONE ? (int32_t)input->tokens.len : 1;
    input->vectors = mem_grow(NULL, (size_t)input->n_vectors * width, sizeof *input->vectors);
    for (int32_t at = 0; at < input->n_vectors; at++) {
        const float *v = llm_embedding(worker->embedder, index, at);
        bool finite = v != NULL;
        for (size_t i = 0; finite && i < width; i++) finite = isfinite(v[i]);
        if (!finite) return false;
        memcpy(input->vectors + (size_t)at * width, v, width * sizeof *v);
    }
    return true;
}

static enum llm_decoded compute_part(struct worker *worker, int32_t from, int32_t n)
{
    struct embed_stats *stats = worker->pool->stats;
    enum llm_decoded decoded = llm_embed(worker->embedder, worker->batch + from, n);
    metric_add(&stats->calls, 1);
    if (decoded != LLM_DECODED) return decoded;
    for (int32_t i = 0; i < n; i++) {
        struct call_input *call_input = &worker->call[from + i];
        metric_add(&stats->inputs, 1);
        metric_add(&stats->tokens, worker->batch[from + i].n);
        atomic_fetch_add(&call_input->job->n_computed, worker->batch[from + i].n);
        if (keep_vectors(worker, i, call_input->input)) continue;
        free(call_input->input->vectors);
        call_input->input->vectors = NULL;
    }
    return decoded;
}

/* Aborts the calls whose inputs nobody wants any more. */
static void abort_unwanted(struct embed_pool *pool)
{
    fail_cancelled(&pool->jobs);
    for (int32_t w = 0; w < pool->n_workers; w++) {
        struct worker *worker = &pool->workers[w];
        bool wanted = worker->n == 0;
        for (int32_t i = 0; i < worker->n; i++) wanted = wanted || !worker->call[i].job->failed;
        if (!wanted) atomic_store(&worker->abort, true);
    }
}

/* ---- Threads ---- */

/* Takes a finished job out of the queue and ends it. The mutex is held when called and on return, not between. */
static bool end_finished(struct embed_pool *pool)
{
    struct embed_stats *stats = pool->stats;
    fail_cancelled(&pool->jobs);
    struct embed_job **link = &pool->jobs.first, *job;
    while ((job = *link) != NULL && (job->n_running > 0 || (!job->failed && job->n_assigned < job->n_inputs)))
        link = &job->next;
    if (job == NULL) return false;
    queue_take(&pool->jobs, link);
    pool->bytes -= job->bytes;
    pool->n_ending++;
    pthread_mutex_unlock(&pool->mutex);
    hearth_error error = job->error;
    metric_add(!job->failed                          ? &stats->jobs_done
               : job->error.code == HEARTH_CANCELLED ? &stats->jobs_cancelled
                                                     : &stats->jobs_failed,
               1);
    job->on_end(job, job->failed ? &error : NULL);
    pthread_mutex_lock(&pool->mutex);
    pool->n_ending--;
    return true;
}

/* Prepares inputs of the job until they fill a call. The mutex is held when called and on return, not between. */
static void prepare_some(struct embed_pool *pool, const struct worker *worker, struct embed_job *job)
{
    struct capacity capacity = capacity_of_call(worker);
    size_t n = job->n_prepared;
    hearth_error error;
    int rc = HEARTH_OK;
    bool fits = true;
    job->preparing = true;
    job->n_running++; /* so that it is not finished meanwhile */
    pthread_mutex_unlock(&pool->mutex);
    for (; rc == HEARTH_OK && fits && n < job->n_inputs && !atomic_load(&job->cancelled); n++) {
        rc = job->prepare(job, n, &error);
        if (rc == HEARTH_OK) fits = fit(&capacity, &job->inputs[n]);
    }
    pthread_mutex_lock(&pool->mutex);
    job->n_running--;
    job->preparing = false;
    job->n_prepared = n;
    if (rc == HEARTH_OK || job->failed) return;
    job->failed = true;
    job->error = error;
}

/* Computes what the worker was assigned, whose inputs its thread alone touches meanwhile. Those that could not be
 * computed have no vectors afterwards. A call that fails is repeated for each of its inputs, so that one which cannot
 * be computed fails no other. The mutex is held when called and on return, not between. */
static void run_embed_call(struct embed_pool *pool, struct worker *worker)
{
    metric_add(&pool->stats->contexts_busy, 1);
    pthread_mutex_unlock(&pool->mutex);
    enum llm_decoded decoded = compute_part(worker, 0, worker->n);
    if (decoded != LLM_DECODED && decoded != LLM_ABORTED && worker->n > 1) {
        log_event(LOG_WARN, "embed", "a call failed: its inputs are computed one by one", log_str("model", pool->name),
                  log_int("inputs", worker->n));
        for (int32_t i = 0; i < worker->n && !atomic_load(&worker->abort); i++) compute_part(worker, i, 1);
    }
    pthread_mutex_lock(&pool->mutex);
    metric_add(&pool->stats->contexts_busy, -1);
    for (int32_t i = 0; i < worker->n; i++) {
        struct embed_job *job = worker->call[i].job;
        job->n_running--;
        if (worker->call[i].input->vectors == NULL) /* in an aborted call, its job has failed already */
            fail(job, HEARTH_INTERNAL, "an input could not be computed: the log has more");
    }
    worker->n = 0;
    atomic_store(&worker->abort, false);
}

/* False: there is nothing to do. */
static bool step(struct embed_pool *pool, struct worker *worker)
{
    if (end_finished(pool)) {
        pthread_cond_broadcast(&pool->changed);
        return true;
    }
    struct embed_job *job = is_call_full(pool, worker) ? NULL : pool->jobs.first;
    while (job != NULL && (job->preparing || job->failed || job->n_prepared == job->n_inputs)) job = job->next;
    if (job != NULL)
        prepare_some(pool, worker, job);
    else if (fill_call(pool, worker))
        run_embed_call(pool, worker);
    else
        return false;
    pthread_cond_broadcast(&pool->changed);
    return true;
}

static void *run_worker(void *ud)
{
    struct worker *worker = ud;
    struct embed_pool *pool = worker->pool;
    llm_embedder_begin_computing(worker->embedder);
    pthread_mutex_lock(&pool->mutex);
    while (!pool->closing)
        if (!step(pool, worker)) pool->clock->wait(pool->clock, &pool->changed, &pool->mutex, CLOCK_NEVER);
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

static bool is_to_abort(void *ud)
{
    return atomic_load_explicit(&((struct worker *)ud)->abort, memory_order_relaxed);
}

/* ---- Life ---- */

struct embed_pool *embed_open(const struct embed_params *params, hearth_error *error)
{
    size_t n = (size_t)params->n_contexts;
    struct embed_pool *pool = mem_alloc(sizeof *pool + n * sizeof *pool->workers);
    snprintf(pool->name, sizeof pool->name, "%s", params->name);
    pool->clock = params->clock;
    pool->stats = params->stats != NULL ? params->stats : &pool->own_stats;
    pool->most_bytes = params->most_bytes;
    pool->window = params->context.window;
    pool->pooling = params->pooling;
    pthread_mutex_init(&pool->mutex, NULL);
    clock_cond_init(&pool->changed);
    for (; pool->n_workers < params->n_contexts; pool->n_workers++) {
        struct worker *worker = &pool->workers[pool->n_workers];
        struct llm_context_params context = params->context;
        worker->pool = pool;
        context.abort = is_to_abort;
        context.ud = worker;
        worker->embedder = llm_embedder_open(params->model, &context, params->pooling, error);
        if (worker->embedder == NULL) {
            embed_close(pool);
            return NULL;
        }
        size_t most = (size_t)llm_embedder_max_inputs(worker->embedder);
        worker->call = mem_alloc(most * sizeof *worker->call);
        worker->batch = mem_alloc(most * sizeof *worker->batch);
    }
    pool->width = llm_embedder_width(pool->workers[0].embedder);
    for (int32_t i = 0; i < pool->n_workers; i++) {
        struct worker *worker = &pool->workers[i];
        worker->started = thread_start(&worker->thread, run_worker, worker, "computes vectors", error) == HEARTH_OK;
        if (worker->started) continue;
        embed_close(pool);
        return NULL;
    }
    return pool;
}

enum embed_submitted embed_submit(struct embed_pool *pool, struct embed_job *job)
{
    enum embed_submitted submitted = EMBED_TAKEN;
    pthread_mutex_lock(&pool->mutex);
    bool full = pool->bytes > 0 && (pool->bytes >= pool->most_bytes || job->bytes > pool->most_bytes - pool->bytes);
    if (pool->draining)
        submitted = EMBED_STOPPED;
    else if (full)
        submitted = EMBED_FULL;
    if (submitted == EMBED_TAKEN) {
        queue_append(&pool->jobs, job);
        pool->bytes += job->bytes;
        pthread_cond_broadcast(&pool->changed);
    }
    pthread_mutex_unlock(&pool->mutex);
    return submitted;
}

void embed_poke(struct embed_pool *pool)
{
    pthread_mutex_lock(&pool->mutex);
    abort_unwanted(pool);
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->mutex);
}

void embed_stop(struct embed_pool *pool)
{
    pthread_mutex_lock(&pool->mutex);
    pool->draining = true;
    for (struct embed_job *job = pool->jobs.first; job != NULL; job = job->next)
        if (!job->preparing && job->n_prepared == 0) fail(job, HEARTH_UNAVAILABLE, "engine shutting down");
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->mutex);
}

void embed_drain(struct embed_pool *pool, int64_t deadline)
{
    embed_stop(pool);
    pthread_mutex_lock(&pool->mutex);
    while (pool->jobs.len + pool->n_ending > 0) {
        if (clock_now(pool->clock) >= deadline && !pool->past_deadline) {
            pool->past_deadline = true;
            for (struct embed_job *job = pool->jobs.first; job != NULL; job = job->next)
                fail(job, HEARTH_CANCELLED, "engine shutting down");
            abort_unwanted(pool);
            pthread_cond_broadcast(&pool->changed);
        }
        pool->clock->wait(pool->clock, &pool->changed, &pool->mutex, pool->past_deadline ? CLOCK_NEVER : deadline);
    }
    pthread_mutex_unlock(&pool->mutex);
}

void embed_close(struct embed_pool *pool)
{
    if (pool == NULL) return;
    embed_drain(pool, clock_now(pool->clock));
    pthread_mutex_lock(&pool->mutex);
    pool->closing = true;
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->mutex);
    for (int32_t i = 0; i < pool->n_workers; i++) {
        struct worker *worker = &pool->workers[i];
        if (worker->started) pthread_join(worker->thread, NULL);
        llm_embedder_close(worker->embedder);
        free(worker->call);
        free(worker->batch);
    }
    pthread_cond_destroy(&pool->changed);
    pthread_mutex_destroy(&pool->mutex);
    free(pool);
}

/* ---- What is there ---- */

int32_t embed_window(const struct embed_pool *pool)
{
    return pool->window;
}

int32_t embed_width(const struct embed_pool *pool)
{
    return pool->width;
}

hearth_pooling embed_pooling(const struct embed_pool *pool)
{
    return pool->pooling;
}

size_t embed_waiting(struct embed_pool *pool)
{
    pthread_mutex_lock(&pool->mutex);
    size_t n = 0;
    for (const struct embed_job *job = pool->jobs.first; job != NULL; job = job->next) n += job->n_assigned == 0;
    pthread_mutex_unlock(&pool->mutex);
    return n;
}

const struct embed_stats *embed_stats(const struct embed_pool *pool)
{
    return pool->stats;
}
