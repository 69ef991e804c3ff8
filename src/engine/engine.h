/* The batch engine: continuous batching on one thread, which owns a llama context and `n_slots` slots. Each tick
 * computes one batch with the tokens of all slots, prefill and decode together.
 *
 * engine_open() starts the thread; it sleeps when there is nothing to do. Jobs come in from any thread, admitted and
 * prepared; the engine answers them through their events, on its own thread. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "base/buf.h"
#include "base/clock.h"
#include "base/file_watch.h"
#include "base/metrics.h"
#include "engine/cache_policy.h"
#include "engine/draft.h"
#include "engine/job.h"
#include "llm/context.h"
#include "store/store.h"

struct engine;

struct engine_params {
    const char *name; /* of the model, for logs and metrics */
    struct llm_model *model;
    struct llm_adapter *const *adapters; /* of the model; borrowed */
    size_t n_adapters;
    int32_t n_slots; /* requests computed at once */
    struct llm_context_params
        context; /* n_seq: at least n_slots, exactly as many unless unified; the engine sets abort and ud */
    int64_t max_token_gap_ns;  /* how long a tick with prompt tokens may take while a reply is being streamed: the
                                  largest inter-token gap */
    bool deterministic;        /* prefill in fixed chunks, one slot a decode call */
    struct draft_params draft; /* none where the engine is deterministic */
    int32_t n_gpu_layers;      /* as the model was opened with: part of the identity of deterministic runs */
    enum engine_caching caching;
    enum engine_idle idle;
    int32_t cache_min_tokens; /* a shorter common prefix is not reused */
    int64_t slot_timeout_ns;  /* a job that waited so long preempts another */
    bool preempt_fails;       /* the preempted request fails; else it is suspended and resumes later */
    uint64_t snapshot_budget; /* bytes of snapshots and checkpoints kept in host memory */
    struct store *store;      /* where cells are saved, also on eviction; NULL: nowhere. Borrowed */
    int store_sharers;        /* models that share the store; 0: this one alone */
    /* Sets the identity under which cells are stored, to which the engine adds what depends on its context; false: they
     * are not stored. Asked when the context is open, since it may wait for the digest of the weights; NULL: all zeros.
     */
    bool (*identify)(void *ud, struct identity *identity);
    void *identify_ud;
    /* Watches the files of the weights; NULL: nothing does. Borrowed. Once they have changed nothing is stored or
     * fetched any more; with each change what was computed before is forgotten, from the next job on that comes in. */
    struct file_watch *watch;
    int32_t stride, continued_interval; /* tokens: the store's block; between two saves of a growing sequence */
    int64_t evict_timeout_ns; /* how long saving may delay an eviction that a slot waits for, and the engine's end */
    bool logs_words;          /* the log may hold words of prompts */
    struct clock *clock;
    struct engine_stats *stats; /* counters to continue; NULL: the engine has its own. Borrowed */
};

struct engine *engine_open(const struct engine_params *params, hearth_error *error);

/* Whether jobs should have checkpoint positions: only where cells cannot be cut at any position. */
bool engine_wants_checkpoints(const struct engine *engine);

/* The identity under which jobs query the store; NULL: they do not. Any thread. */
const struct store_user *engine_store_user(const struct engine *engine);

/* Whether jobs should bring what followed their prompts in the store: job.past. Any thread. */
bool engine_drafts_from_store(const struct engine *engine);

/* Queues the job. After engine_drain() the job fails at once. Any thread. */
void engine_submit(struct engine *engine, struct job *job);

/* Some job's `cancelled` was set: the engine looks at once, also in the middle of a decode call. Any thread. */
void engine_poke(struct engine *engine);

/* An order about a resident sequence: orders.c. The caller owns it, and leaves it alone until `done`. */
struct engine_order {
    int32_t seq_id; /* as engine_residents() says */
    char hash[17];
    hearth_order order;
    void (*done)(struct engine_order *order); /* on the engine's thread; the order is the giver's again */
    hearth_error error;                       /* for `done`: its code is HEARTH_OK, or why it was refused */
    struct engine_order *next;                /* the engine's */
};

/* Queues the order. False: the engine is being drained; `done` is not called. Any thread. */
bool engine_give_order(struct engine *engine, struct engine_order *order);

/* Fails the jobs that have no slot yet and waits for the running ones; those still running at `deadline` are failed. */
void engine_drain(struct engine *engine, int64_t deadline);

/* Drains with a deadline that has passed, ends the thread, frees everything. */
void engine_close(struct engine *engine);

/* Fills up to `max` entries with the slots' status after the last tick; returns the number of slots. Any thread. */
size_t engine_slots(struct engine *engine, hearth_slot *slots, size_t max);

/* The same of the sequences that have cells; at most as many as the engine has sequences. */
size_t engine_residents(struct engine *engine, hearth_resident *residents, size_t max);

/* Where the idle ones of them end in the store; at most as many again. */
size_t engine_stored(struct engine *engine, struct stored_mark *marks, size_t max);

/* Tokens that one request may have, prompt and reply together. */
int32_t engine_window(const struct engine *engine);

/* Counters for metrics; the engine's thread updates them, any thread reads them. */
struct engine_stats {
    metric_value requests_done, requests_failed, requests_cancelled;
    metric_value prompt_tokens, cached_tokens, generated_tokens;
    metric_value drafted_tokens[DRAFT_SOURCES], accepted_tokens[DRAFT_SOURCES]; /* computed as drafts; sampled then */
    metric_value draft_model_calls;
    metric_value decode_calls, ticks, slots_busy, jobs_waiting;
    metric_value preemptions, idle_evictions, moved_rows, snapshots_saved, snapshots_restored, snapshot_bytes;
    metric_value threads; /* that computed the last tick */
    struct histogram queue_wait, first_token, tick, batch;
};

const struct engine_stats *engine_stats(const struct engine *engine);

#endif
