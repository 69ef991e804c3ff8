#include "crew.h"

#include "base/memory.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

struct helper {
    struct crew *crew;
    pthread_t thread;
    int worker;
};

struct crew {
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    crew_fn run;
    void *ud;
    int next, n; /* the next job, and how many there are */
    int busy;    /* jobs being done */
    bool closing;
    int threads; /* constant, as are the helpers */
    struct helper helpers[];
};

/* Does jobs until none is left. The mutex is held before and after. */
static void work(struct crew *crew, int worker)
{
    while (crew->next < crew->n) {
        int job = crew->next++;
        crew->busy++;
        pthread_mutex_unlock(&crew->mutex);
        crew->run(crew->ud, worker, job);
        pthread_mutex_lock(&crew->mutex);
        crew->busy--;
    }
    if (crew->busy == 0) pthread_cond_broadcast(&crew->changed);
}

static void *help(void *ud)
{
    struct helper *helper = ud;
    struct crew *crew = helper->crew;
    pthread_mutex_lock(&crew->mutex);
    while (!crew->closing) {
        work(crew, helper->worker);
        while (!crew->closing && crew->next >= crew->n) pthread_cond_wait(&crew->changed, &crew->mutex);
    }
    pthread_mutex_unlock(&crew->mutex);
    return NULL;
}

struct crew *crew_open(int threads, hearth_error *error)
{
    struct crew *crew = mem_alloc(sizeof *crew + (size_t)threads * sizeof *crew->helpers);
    pthread_mutex_init(&crew->mutex, NULL);
    pthread_cond_init(&crew->changed, NULL);
    for (crew->threads = 1; crew->threads < threads; crew->threads++) {
        struct helper *helper = &crew->helpers[crew->threads];
        *helper = (struct helper){.crew = crew, .worker = crew->threads};
        if (thread_start(&helper->thread, help, helper, "trains the model", error) < 0) {
            crew_close(crew);
            return NULL;
        }
    }
    return crew;
}

void crew_close(struct crew *crew)
{
    if (crew == NULL) return;
    pthread_mutex_lock(&crew->mutex);
    crew->closing = true;
    pthread_cond_broadcast(&crew->changed);
    pthread_mutex_unlock(&crew->mutex);
    for (int i = 1; i < crew->threads; i++) pthread_join(crew->helpers[i].thread, NULL);
    pthread_cond_destroy(&crew->changed);
    pthread_mutex_destroy(&crew->mutex);
    free(crew);
}

int crew_size(const struct crew *crew)
{
    return crew->threads;
}

void crew_run(struct crew *crew, int n, crew_fn run, void *ud)
{
    pthread_mutex_lock(&crew->mutex);
    crew->run = run;
    crew->ud = ud;
    crew->next = 0;
    crew->n = n;
    pthread_cond_broadcast(&crew->changed);
    work(crew, 0);
    while (crew->busy > 0) pthread_cond_wait(&crew->changed, &crew->mutex);
    pthread_mutex_unlock(&crew->mutex);
}
