/* A queue and its threads: see slow_lane.h. */
#include "lib/requests/slow_lane.h"

#include "base/memory.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdlib.h>

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
