/* The batch engine: one thread that owns a llama context, `n_slots` slots, and a tick that computes the rows of all
 * of them together.
 *
 * engine_open() starts the thread; it sleeps when there is nothing to do. Jobs come in from any thread, have been
 * admitted and prepared, and are answered through their events on the engine's thread. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "base/buf.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "engine/job.h"
#include "llm/context.h"
#include "store/store.h"

struct engine;

/* What of a request is kept for later ones. */
enum engine_caching {
    ENGINE_CACHES_NOTHING,
    ENGINE_CACHES_SYSTEM,       /* SPC: the state of its system prompt, outside the cells */
    ENGINE_CACHES_CONVERSATIONS /* IMC: all its cells */
};

struct engine_params {
    const char *name; /* of the model, for logs and metrics */
    struct llm_model *model;
    struct llm_adapter *const *adapters; /* of the model; borrowed */
    size_t n_adapters;
    int32_t n_slots;                   /* requests computed at once */
    struct llm_context_params context; /* n_seq: at least n_slots, exactly as many unless unified; abort and ud are set
                                          by the engine */
    int64_t max_token_gap_ns;          /* a tick with a prompt in it may take so long while a reply is being streamed */
    bool deterministic;                /* fixed cuts, one slot a decode call */
    int32_t n_gpu_layers;              /* as the model was opened with: tells deterministic runs apart */
    enum engine_caching caching;
    int32_t cache_min_tokens;           /* less than that is not worth going on from */
    int64_t slot_timeout_ns;            /* a job that waited so long takes the slot of another */
    bool preempt_fails;                 /* which then fails; else it is parked and goes on later */
    uint64_t snapshot_budget;           /* bytes of states kept outside the context */
    struct store *store;                /* where cells go that are evicted; NULL: nowhere. Borrowed */
    struct identity identity;           /* under which they are stored; the engine adds what its context depends on */
    int32_t stride, continued_interval; /* tokens: of the store; between two saves of what is growing */
    int64_t evict_timeout_ns;           /* saving may hold up who waits for an eviction, and the end, for so long */
    bool logs_words;                    /* the log may hold words of prompts */
    struct clock *clock;
    struct engine_stats *stats; /* where to count on from; NULL: the engine has its own. Borrowed */
};

struct engine *engine_open(const struct engine_params *params, hearth_error *error);

/* Whether jobs should come with checkpoints: only where cells cannot be cut anywhere. */
bool engine_wants_checkpoints(const struct engine *engine);

/* As whom jobs ask the store, and the identity that theirs are made of; NULL: they do not. Any thread. */
const struct store_user *engine_store_user(const struct engine *engine);

/* Takes the job. After engine_drain() it fails at once. */
void engine_submit(struct engine *engine, struct job *job);

/* Some job's `cancelled` was set: look at once, also in the middle of a decode. */
void engine_poke(struct engine *engine);

/* Fails the jobs that have no slot yet and waits until those that run have ended; at `deadline` they are failed. */
void engine_drain(struct engine *engine, int64_t deadline);

/* Drains without patience, ends the thread, frees everything. */
void engine_close(struct engine *engine);

/* Fills up to `max` entries; returns the number of slots. From any thread; tells the state after the last tick. */
size_t engine_slots(struct engine *engine, hearth_slot *slots, size_t max);

/* Tokens that one request may have, prompt and reply together. */
int32_t engine_window(const struct engine *engine);

/* Numbers for metrics; updated by the engine's thread, read by any. */
struct engine_stats {
    metric_value requests_done, requests_failed, requests_cancelled;
    metric_value prompt_tokens, cached_tokens, generated_tokens;
    metric_value decode_calls, ticks, slots_busy, jobs_waiting;
    metric_value preemptions, snapshots_saved, snapshots_restored, snapshot_bytes;
    metric_value threads; /* that computed the last tick */
    struct histogram queue_wait, first_token, tick, batch;
};

const struct engine_stats *engine_stats(const struct engine *engine);

#endif
