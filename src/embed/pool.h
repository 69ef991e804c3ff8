/* A pool of contexts for embeddings and reranking scores: `n_contexts` embedders on one model's weights, each with a
 * thread.
 *
 * A job is a list of inputs. The pool takes every job, in the order in which they come, as long as the texts of all of
 * them have room. An indexer sends hundreds of requests at once, each with one input. The pool's threads prepare
 * inputs, about a call's worth at a time, and assign them. A free context takes as many inputs, of one job or of
 * several, as fit one call. Jobs come in from any thread. */
#ifndef EMBED_POOL_H
#define EMBED_POOL_H

#include "base/clock.h"
#include "base/metrics.h"
#include "base/tokens.h"
#include "llm/embedder.h"

#include <stdatomic.h>

struct embed_input {
    struct tokens tokens;
    float *vectors; /* allocated by the pool, then the job's: n_vectors of the model's width */
    int32_t n_vectors;
};

/* The maker of a job fills in the first part and keeps it alive until on_end(), which is called exactly once. */
struct embed_job {
    /* Tokenises one of the inputs, to between 1 token and the window; a failure ends the job. Called for one input
     * after the other, each on some thread of the pool. */
    int (*prepare)(struct embed_job *job, size_t input, hearth_error *error);
    /* Called on a thread of the pool. Without an error every input has its vectors. */
    void (*on_end)(struct embed_job *job, const hearth_error *error);
    struct embed_input *inputs;
    size_t n_inputs;
    size_t bytes; /* of the texts and tokens that it holds until its end */
    _Atomic bool cancelled;
    _Atomic int64_t n_computed; /* tokens, by the pool; also of a job that fails */

    /* The pool's: */
    bool preparing, failed; /* preparing: a thread prepares inputs, and counts as one of n_running */
    hearth_error error;     /* where it failed: the first fault */
    size_t n_prepared, n_assigned,
        n_running; /* inputs; n_assigned: given to calls; n_running: their vectors are not there yet */
    struct embed_job *next;
};

struct embed_pool;

struct embed_params {
    const char *name; /* of the model, for logs */
    struct llm_model *model;
    hearth_pooling pooling;
    int32_t n_contexts;
    struct llm_context_params context; /* of one context, as llm_embedder_open() takes it; the pool sets abort and ud */
    size_t most_bytes;                 /* of all jobs together; one that is alone may have more */
    struct clock *clock;
    struct embed_stats *stats; /* counters to continue; NULL: the pool has its own. Borrowed */
};

struct embed_pool *embed_open(const struct embed_params *params, hearth_error *error);

/* Queues the job; if it is not taken, it stays the caller's. */
enum embed_submitted {
    EMBED_TAKEN,
    EMBED_FULL,   /* its texts have no room beside those that wait */
    EMBED_STOPPED /* the pool is being drained */
};
enum embed_submitted embed_submit(struct embed_pool *pool, struct embed_job *job);

/* Some job's `cancelled` was set: the pool looks at once, also in the middle of a call. */
void embed_poke(struct embed_pool *pool);

/* Takes no more jobs, and fails those of which nothing was prepared. */
void embed_stop(struct embed_pool *pool);

/* The same, and waits until the jobs in flight have ended; those left at `deadline` are failed. */
void embed_drain(struct embed_pool *pool, int64_t deadline);

/* Drains with a deadline that has passed, ends the threads, frees everything. NULL is fine. */
void embed_close(struct embed_pool *pool);

int32_t embed_window(const struct embed_pool *pool); /* tokens of one input */
int32_t embed_width(const struct embed_pool *pool);  /* numbers of a vector */
hearth_pooling embed_pooling(const struct embed_pool *pool);
size_t embed_waiting(struct embed_pool *pool); /* jobs of which nothing was given to a call */

struct embed_stats {
    metric_value calls, inputs, tokens, jobs_done, jobs_failed, jobs_cancelled, contexts_busy;
};

const struct embed_stats *embed_stats(const struct embed_pool *pool);

#endif
