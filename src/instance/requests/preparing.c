/* A table of jobs with a mutex, and the queue of the slow lane with its threads: see preparing.h. */
#include "instance/requests/preparing.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

struct preparing {
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t ended;
    bool stopped;
    size_t most, n;
    struct job *jobs[]; /* NULL: the place is free */
};

struct preparing *preparing_open(size_t most)
{
    struct preparing *all = mem_alloc(sizeof *all + most * sizeof(struct job *));
    all->most = most;
    pthread_mutex_init(&all->mutex, NULL);
    clock_cond_init(&all->ended);
    return all;
}

void preparing_close(struct preparing *all)
{
    if (all == NULL) return;
    pthread_cond_destroy(&all->ended);
    pthread_mutex_destroy(&all->mutex);
    free(all);
}

static size_t place_of(const struct preparing *all, const struct job *job)
{
    size_t i = 0;
    while (i < all->most && all->jobs[i] != job) i++;
    assert(i < all->most);
    return i;
}

void preparing_begin(struct preparing *all, struct job *job)
{
    pthread_mutex_lock(&all->mutex);
    all->jobs[place_of(all, NULL)] = job;
    all->n++;
    if (all->stopped) atomic_store(&job->cancelled, true);
    pthread_mutex_unlock(&all->mutex);
}

void preparing_end(struct preparing *all, const struct job *job)
{
    pthread_mutex_lock(&all->mutex);
    all->jobs[place_of(all, job)] = NULL;
    all->n--;
    pthread_cond_broadcast(&all->ended);
    pthread_mutex_unlock(&all->mutex);
}

void preparing_stop(struct preparing *all)
{
    pthread_mutex_lock(&all->mutex);
    all->stopped = true;
    for (size_t i = 0; i < all->most; i++)
        if (all->jobs[i] != NULL) atomic_store(&all->jobs[i]->cancelled, true);
    pthread_mutex_unlock(&all->mutex);
}

bool preparing_wait(struct preparing *all, int64_t patience)
{
    struct clock *clock = clock_monotonic();
    const int64_t deadline = clock_now(clock) + patience;
    pthread_mutex_lock(&all->mutex);
    while (all->n > 0 && clock_now(clock) < deadline) clock->wait(clock, &all->ended, &all->mutex, deadline);
    bool none = all->n == 0;
    pthread_mutex_unlock(&all->mutex);
    return none;
}

/* ---- The slow lane ---- */

struct slow_lane {
    void (*prepare)(struct job *job);
    pthread_t threads[SLOW_LANE_THREADS];
    int n_threads;
    pthread_mutex_t mutex; /* guards what follows */
    bool closing;
    pthread_cond_t changed;
    struct job_list jobs;
};

#define GIVES_WAY 5

static void *run(void *ud)
{
    struct slow_lane *lane = ud;
    thread_give_way(GIVES_WAY);
    pthread_mutex_lock(&lane->mutex);
    while (!lane->closing) {
        struct job *job = job_list_take_first(&lane->jobs);
        if (job == NULL) {
            pthread_cond_wait(&lane->changed, &lane->mutex);
            continue;
        }
        pthread_mutex_unlock(&lane->mutex);
        lane->prepare(job);
        pthread_mutex_lock(&lane->mutex);
    }
    pthread_mutex_unlock(&lane->mutex);
    return NULL;
}

struct slow_lane *slow_lane_open(void (*prepare)(struct job *job), hearth_error *error)
{
    struct slow_lane *lane = mem_alloc(sizeof *lane);
    lane->prepare = prepare;
    pthread_mutex_init(&lane->mutex, NULL);
    pthread_cond_init(&lane->changed, NULL);
    for (; lane->n_threads < SLOW_LANE_THREADS; lane->n_threads++) {
        if (thread_start(&lane->threads[lane->n_threads], run, lane, "reads documents", error) == HEARTH_OK) continue;
        slow_lane_close(lane);
        return NULL;
    }
    return lane;
}

void slow_lane_add(struct slow_lane *lane, struct job *job)
{
    pthread_mutex_lock(&lane->mutex);
    bool taken = !lane->closing;
    if (taken) job_list_append(&lane->jobs, job);
    pthread_cond_signal(&lane->changed);
    pthread_mutex_unlock(&lane->mutex);
    if (!taken) job_fail_with(job, HEARTH_UNAVAILABLE, "engine shutting down");
}

void slow_lane_stop(struct slow_lane *lane)
{
    if (lane == NULL) return;
    pthread_mutex_lock(&lane->mutex);
    struct job_list left = lane->jobs;
    lane->jobs = (struct job_list){0};
    lane->closing = true;
    pthread_cond_broadcast(&lane->changed);
    pthread_mutex_unlock(&lane->mutex);
    job_list_fail(&left, HEARTH_UNAVAILABLE, "engine shutting down");
}

void slow_lane_close(struct slow_lane *lane)
{
    if (lane == NULL) return;
    slow_lane_stop(lane);
    while (lane->n_threads > 0) pthread_join(lane->threads[--lane->n_threads], NULL);
    pthread_mutex_destroy(&lane->mutex);
    pthread_cond_destroy(&lane->changed);
    free(lane);
}
