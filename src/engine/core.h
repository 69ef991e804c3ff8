/* The batch engine, as the files of its folder see it. The engine's thread owns all of it, except for the fields that a
 * comment gives to another thread. */
#ifndef ENGINE_CORE_H
#define ENGINE_CORE_H

#include "base/thread.h"
#include "engine/adapter_turns.h"
#include "engine/cache_policy.h"
#include "engine/copy_turn.h"
#include "engine/draft.h"
#include "engine/engine.h"
#include "engine/idle.h"
#include "engine/plan.h"
#include "engine/schedule.h"
#include "engine/sharing.h"
#include "engine/slot.h"
#include "engine/snapshots.h"
#include "engine/thread_scaling.h"
#include "engine/tick_budget.h"
#include "llm/adapter.h"
#include "llm/logprobs.h"
#include "llm/state_slices.h"

struct engine {
    char *name;
    struct llm_model *model;
    struct llm_context *context;
    struct llm_adapter *const *adapters; /* of the model */
    size_t n_adapters;
    struct clock *clock;
    int32_t window, n_batch, n_ubatch;
    bool deterministic, preempt_fails, logs_words;
    bool one_slot_per_call; /* a decode call holds the tokens of one slot only */
    struct cache_policy policy;
    int64_t slot_timeout_ns;

    struct seq *seqs; /* in one pool of cells; else sequence i has stream i of cells, and there are as many as slots */
    size_t n_seqs;
    struct sharing sharing; /* of the cells of all sequences */
    struct slot *slots;
    size_t n_slots;
    struct snapshots *snapshots; /* in host memory, outside the context */
    uint64_t checkpoint_bytes;   /* of the last checkpoint that was to be saved; 0: none was */
    struct file_watch *watch;    /* of the weights' files; NULL: there is none */
    uint64_t changes;            /* of theirs, when the engine looked last */
    struct store *store;         /* keeps what is evicted from the cells; NULL: there is none, or none any more */
    int store_sharers;           /* models that share it */
    struct store *joined;        /* the store that knows `user` */
    struct store_user *user;     /* this engine, as the store identifies it */
    struct llm_state_format *format;
    int32_t stride, continued_interval;
    int64_t evict_timeout_ns;
    uint64_t last_ticket; /* of all save jobs that were queued */
    bool store_was_off;   /* when the engine looked last */
    bool hung;            /* an eviction waited past its deadline for the saves that were queued up to hung_at */
    uint64_t hung_at;
    bool copied;             /* the last round copied KV rows in or out: there may be more */
    bool stalled;            /* every busy slot waits for the store, and nothing could be copied */
    struct job_list waiting; /* jobs that have no slot yet */
    struct preemption preemption;
    int64_t blocked_at; /* since when every slot has been computing a prompt; 0: some slot is not */
    struct tick_budget tick_budget;
    struct adapter_turns turns;
    int64_t switching_ns, switched_ns; /* what the tick's next call will take for a switch of adapters, and what an
                                          earlier one took: measured before, 0 where there is none */
    struct decode_cost decode_cost;
    struct idle_count idle_count;
    struct compaction compaction;
    /* Nanoseconds, as measured lately; 0: not known yet. Of a KV row that is copied into the cells; of a fetch, beside
     * that of its rows; of a byte that is copied out. */
    double load_ns, fetch_ns, save_byte_ns;
    double score_ns;    /* likewise, of making a logprob of a row of logits: score.c */
    int64_t scoring_ns; /* that this took in the tick so far */
    struct thread_scaling scaling;
    struct scaling_tick computed; /* by the tick's decode calls so far */
    bool drafts;                  /* replies have drafts */
    struct drafting drafting;
    struct plan plan;
    struct plan_need *needs;
    struct llm_batch_token *batch;
    struct buf token_bytes;        /* of the token being sampled; kept so that none is allocated for each token */
    struct llm_logprobs *logprobs; /* of the token being sampled; kept likewise */
    struct engine_stats *stats,
        own_stats; /* where the engine counts; own_stats: where it does if the caller gave no stats */
    pthread_t thread;
    struct thread_owner owner; /* the same one, while its loop runs */

    /* The shares that the running decode call computes. The abort callback reads them on llama.cpp's threads; the
     * engine's thread writes them between decode calls only. */
    struct plan_share *running;
    size_t n_running;

    pthread_mutex_t mutex;  /* guards the mailbox: */
    pthread_cond_t mail;    /* signalled when something came in */
    pthread_cond_t drained; /* signalled when a drained engine has nothing left to do */
    struct job_list inbox;
    struct engine_order *orders; /* in the order in which they came */
    bool poked, draining, closing, busy;
    size_t drained_pending; /* jobs without a slot that a drain failed */
    _Atomic bool stop_now;  /* running requests are to end; any thread may read it */

    pthread_mutex_t status_mutex; /* guards what other threads see: */
    hearth_slot *status;
    hearth_resident *residents; /* n_residents of them; room for n_seqs */
    size_t n_residents;
    struct stored_mark *stored; /* likewise: n_stored of them */
    size_t n_stored;
};

/* A turn of copying between two ticks: so many bytes, and a sixteenth of the longest gap that a stream may have; the
 * whole gap where nobody would notice. */
static inline struct copy_turn engine_copy_turn(const struct engine *engine, size_t bytes, bool noticed)
{
    double ns = noticed ? engine->tick_budget.max_ns / 16 : engine->tick_budget.max_ns;
    return (struct copy_turn){.bytes = bytes, .until = clock_now(engine->clock) + (int64_t)ns};
}

/* Asserts what holds between two rounds of the loop. */
void engine_check(const struct engine *engine);

/* Forgets what was computed of other weights, if they have changed since the last time. */
void forget_changed(struct engine *engine);

#endif
