/* A pool of contexts for vectors and scores: `n_contexts` embedders on one model's weights, each with a thread.
 *
 * A job is a list of inputs. It waits at the door until a place is free (at most `places` jobs are in flight, as for
 * chats). Its inputs are prepared on the pool's threads, about a call's worth at a time, and call_input out: whichever
 * context is free takes as many inputs, of one job or of several, as fit one call. When none is free they wait. Jobs
 * come in from any thread. */
#ifndef EMBED_POOL_H
#define EMBED_POOL_H

#include "base/clock.h"
#include "base/metrics.h"
#include "base/tokens.h"
#include "llm/embedder.h"

#include <stdatomic.h>

struct embed_input {
    struct tokens tokens;
    float *vectors; /* the job's, filled in by the pool: n_vectors of the model's width */
    int32_t n_vectors;
};

/* Whoever makes a job fills in the first part and keeps it alive until on_end(), which is called exactly once. */
struct embed_job {
    /* Fills in one of the inputs, with 1 token to the window; a failure is the job's end. One after the other, each on
     * some thread of the pool. */
    int (*prepare)(struct embed_job *job, size_t input, hearth_error *error);
    /* Without an error every input has its vectors. On a thread of the pool. */
    void (*on_end)(struct embed_job *job, const hearth_error *error);
    struct embed_input *inputs;
    size_t n_inputs;
    _Atomic bool cancelled;
    int64_t submitted_at; /* clock of the pool */

    /* The pool's: */
    bool preparing, failed; /* preparing: some thread does, and counts as one of n_running */
    hearth_error error;     /* where it failed: the first fault */
    size_t n_prepared, n_assigned,
        n_running; /* inputs; n_assigned: contexts took them; n_running: their vectors are to come */
    struct embed_job *next;
};

struct embed_pool;

struct embed_params {
    const char *name; /* of the model, for logs */
    struct llm_model *model;
    enum llm_pooling pooling;
    int32_t n_contexts;
    struct llm_context_params context; /* of one of them, as llm_embedder_open() takes it; abort and ud are set here */
    size_t permits;                    /* jobs in flight */
    int64_t timeout_ns;                /* a job waits so long for its place */
    struct clock *clock;
    struct embed_stats *stats; /* where to count on from; NULL: the pool has its own. Borrowed */
};

struct embed_pool *embed_open(const struct embed_params *params, hearth_error *error);

/* False: the pool is being drained, and the job stays the caller's. */
bool embed_submit(struct embed_pool *pool, struct embed_job *job);

/* Some job's `cancelled` was set: look at once, also in the middle of a call. */
void embed_poke(struct embed_pool *pool);

/* Closes the door and fails the jobs before it. */
void embed_stop(struct embed_pool *pool);

/* The same, and waits until those in flight have ended; at `deadline` they are failed.
 */
void embed_drain(struct embed_pool *pool, int64_t deadline);

/* Drains without patience, ends the threads, frees everything. NULL is fine. */
void embed_close(struct embed_pool *pool);

int32_t embed_window(const struct embed_pool *pool); /* tokens of one input */
int32_t embed_width(const struct embed_pool *pool);  /* numbers of a vector */
enum llm_pooling embed_pooling(const struct embed_pool *pool);
size_t embed_waiting(struct embed_pool *pool); /* jobs at the door */

struct embed_stats {
    metric_value calls, inputs, tokens, jobs_done, jobs_failed, jobs_cancelled, contexts_busy;
};

const struct embed_stats *embed_stats(const struct embed_pool *pool);

#endif
