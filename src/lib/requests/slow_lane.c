/* A queue and its thread: see slow_lane.h. */
#include "lib/requests/slow_lane.h"

#include "base/memory.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdlib.h>

struct slow_lane {
    void (*prepare)(struct job *job);
    pthread_t thread;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    struct job_list jobs;
    bool closing;
};

static void *run(void *ud)
{
    struct slow_lane *lane = ud;
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
    if (thread_start(&lane->thread, run, lane, "reads documents", error) == HEARTH_OK) return lane;
    pthread_mutex_destroy(&lane->mutex);
    pthread_cond_destroy(&lane->changed);
    free(lane);
    return NULL;
}

void slow_lane_add(struct slow_lane *lane, struct job *job)
{
    pthread_mutex_lock(&lane->mutex);
    job_list_append(&lane->jobs, job);
    pthread_cond_signal(&lane->changed);
    pthread_mutex_unlock(&lane->mutex);
}

void slow_lane_close(struct slow_lane *lane)
{
    if (lane == NULL) return;
    pthread_mutex_lock(&lane->mutex);
    lane->closing = true;
    pthread_cond_signal(&lane->changed);
    pthread_mutex_unlock(&lane->mutex);
    pthread_join(lane->thread, NULL);
    job_list_fail(&lane->jobs, HEARTH_UNAVAILABLE, "engine shutting down");
    pthread_mutex_destroy(&lane->mutex);
    pthread_cond_destroy(&lane->changed);
    free(lane);
}
