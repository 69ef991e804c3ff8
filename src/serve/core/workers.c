/* The answering threads and their queue: see workers.h. */
#include "serve/core/workers.h"

#include "base/memory.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

/* One that is held up, by the memory of a large answer perhaps, leaves another for the streams. */
enum { N_WORKERS = 2 };

struct workers {
    pthread_t threads[N_WORKERS];
    size_t n_threads;
    pthread_mutex_t mutex; /* guards the members below */
    pthread_cond_t changed;
    struct queue {
        struct work *first, **tail;
    } queues[N_WORK_LANES];
    bool in_route; /* a thread is in one */
    bool stopping;
};

static struct work *take_from(struct queue *queue)
{
    struct work *work = queue->first;
    if (work == NULL) return NULL;
    queue->first = work->next;
    if (queue->first == NULL) queue->tail = &queue->first;
    return work;
}

static struct work *take_work(struct workers *workers)
{
    struct work *work = workers->in_route ? NULL : take_from(&workers->queues[WORK_ROUTE]);
    if (work != NULL) workers->in_route = true;
    return work != NULL ? work : take_from(&workers->queues[WORK_TURN]);
}

static void *run_works(void *ud)
{
    struct workers *workers = ud;
    struct work *work;
    pthread_mutex_lock(&workers->mutex);
    while (true) {
        while ((work = take_work(workers)) == NULL && !workers->stopping)
            pthread_cond_wait(&workers->changed, &workers->mutex);
        if (work == NULL) break;
        const bool is_route = work->lane == WORK_ROUTE;
        pthread_mutex_unlock(&workers->mutex);
        work->run(work->ud);
        pthread_mutex_lock(&workers->mutex);
        if (is_route) workers->in_route = false;
    }
    pthread_mutex_unlock(&workers->mutex);
    return NULL;
}

struct workers *workers_open(hearth_error *error)
{
    struct workers *workers = mem_alloc(sizeof *workers);
    for (int i = 0; i < N_WORK_LANES; i++) workers->queues[i].tail = &workers->queues[i].first;
    pthread_mutex_init(&workers->mutex, NULL);
    pthread_cond_init(&workers->changed, NULL);
    for (; workers->n_threads < N_WORKERS; workers->n_threads++) {
        if (thread_start(&workers->threads[workers->n_threads], run_works, workers, "makes answers", error) ==
            HEARTH_OK)
            continue;
        workers_stop(workers);
        workers_close(workers);
        return NULL;
    }
    return workers;
}

void workers_stop(struct workers *workers)
{
    if (workers == NULL) return;
    pthread_mutex_lock(&workers->mutex);
    workers->stopping = true;
    pthread_cond_broadcast(&workers->changed);
    pthread_mutex_unlock(&workers->mutex);
    while (workers->n_threads > 0) pthread_join(workers->threads[--workers->n_threads], NULL);
}

void workers_close(struct workers *workers)
{
    if (workers == NULL) return;
    pthread_cond_destroy(&workers->changed);
    pthread_mutex_destroy(&workers->mutex);
    free(workers);
}

void workers_do(struct workers *workers, struct work *work)
{
    pthread_mutex_lock(&workers->mutex);
    const bool stopping = workers->stopping;
    if (!stopping) {
        struct queue *queue = &workers->queues[work->lane];
        work->next = NULL;
        *queue->tail = work;
        queue->tail = &work->next;
        pthread_cond_signal(&workers->changed);
    }
    pthread_mutex_unlock(&workers->mutex);
    if (stopping) work->run(work->ud);
}

struct release {
    struct work work;
    void (*release)(void *owned);
    void *owned;
};

static void run_release(void *ud)
{
    struct release *release = ud;
    release->release(release->owned);
    free(release);
}

void workers_release(struct workers *workers, void (*release)(void *owned), void *owned)
{
    struct release *made = mem_alloc(sizeof *made);
    *made = (struct release){.release = release, .owned = owned};
    made->work = (struct work){.lane = WORK_TURN, .run = run_release, .ud = made};
    workers_do(workers, &made->work);
}
