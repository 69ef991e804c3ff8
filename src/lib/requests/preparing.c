/* A table of jobs and a mutex: see preparing.h. */
#include "lib/requests/preparing.h"

#include "base/clock.h"
#include "base/memory.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

struct place {
    struct job *job; /* NULL: it is free */
};

struct preparing {
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t ended;
    bool stopped;
    size_t most, n;
    struct place places[];
};

struct preparing *preparing_open(size_t most)
{
    struct preparing *all = mem_alloc(sizeof *all + most * sizeof *all->places);
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
    while (i < all->most && all->places[i].job != job) i++;
    assert(i < all->most);
    return i;
}

static void cancel(struct job *job)
{
    atomic_store(&job->cancelled, true);
}

void preparing_begin(struct preparing *all, struct job *job)
{
    pthread_mutex_lock(&all->mutex);
    all->places[place_of(all, NULL)].job = job;
    all->n++;
    if (all->stopped) cancel(job);
    pthread_mutex_unlock(&all->mutex);
}

void preparing_end(struct preparing *all, const struct job *job)
{
    pthread_mutex_lock(&all->mutex);
    all->places[place_of(all, job)].job = NULL;
    all->n--;
    pthread_cond_broadcast(&all->ended);
    pthread_mutex_unlock(&all->mutex);
}

void preparing_stop(struct preparing *all)
{
    pthread_mutex_lock(&all->mutex);
    all->stopped = true;
    for (size_t i = 0; i < all->most; i++)
        if (all->places[i].job != NULL) cancel(all->places[i].job);
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
