/* Internal declarations of the embedding pool: the pool, its queue, its workers. */
#ifndef EMBED_EMBED_PARTS_H
#define EMBED_EMBED_PARTS_H

#include "embed/pool.h"

#include <pthread.h>

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
    struct embed_stats *stats,
        own_stats; /* where the pool counts; own_stats: where it does if the caller gave no stats */

    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    struct queue jobs;
    size_t bytes;    /* of these */
    size_t n_ending; /* jobs out of the queue whose on_end() is still running */
    bool draining, past_deadline, closing;

    int32_t n_workers;
    struct worker workers[];
};

/* embed_call.c: computes the worker's call, on its thread. Inputs that could not be computed have no vectors
 * afterwards. */
void embed_compute(struct worker *worker);

#endif
