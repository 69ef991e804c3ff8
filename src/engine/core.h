/* The engine from inside: what the files of this folder share. All of it belongs to the engine's thread, but for what
 * is marked. */
#ifndef ENGINE_CORE_H
#define ENGINE_CORE_H

#include "engine/engine.h"
#include "engine/plan.h"
#include "engine/reply.h"
#include "engine/sharing.h"
#include "engine/snapshots.h"
#include "engine/thread_scaling.h"
#include "engine/tick_budget.h"
#include "llm/adapter.h"
#include "llm/logprobs.h"
#include "llm/state_slices.h"

/* No request has this scope. */
#define SCOPE_OF_NOBODY UINT64_MAX

/* A moment whose cells are to be stored: rows up to `to`, and what moves, which was copied out at that moment. */
struct save_event {
    int32_t to;
    enum slab_reason reason;
    void *checkpoint; /* store_buffer(); NULL: nothing moves */
    size_t checkpoint_size;
};

#define SAVE_EVENTS 8

/* What of a sequence is on its way to the store. */
struct saving {
    int32_t n;            /* leading tokens whose rows were stored or copied out at the last event */
    int32_t n_checkpoint; /* where what moves was copied out last */
    int32_t last_end;     /* where the last event ended: intervals are counted from there */
    uint64_t ticket;      /* of the last save that was queued: when it is done the store knows better */
    struct save_event events[SAVE_EVENTS]; /* still to be copied out, ascending */
    size_t n_events;
    struct identity identity; /* of the request that computed it */
};

/* A resident sequence that gives up cells as soon as they are stored, or that was given up. */
struct pending_eviction {
    bool on;
    int32_t keep;               /* cells that stay */
    int attempts;               /* how often what the store lacked was to be copied out */
    int64_t began_at, deadline; /* then it is given up; clock of the engine */
};

/* How often: what was damaged or failed is copied once more. */
#define SAVE_ATTEMPTS 2

/* A run of cells and the tokens it stands for. Sequences are more than slots: what is not being computed stays where
 * it is, as long as there is room, and whoever shares a prefix with it goes on from there.
 *
 * While a slot computes on it, `tokens` is everything the request wants in its cells, prompt and reply, and the first
 * `n_cells` of them are there. The slot needs rows as long as n_cells < tokens.len; once they are equal, the logits of
 * the last row give the next token. Recomputing after a failure is therefore nothing but a smaller n_cells. When no
 * slot computes on it, tokens.len == n_cells; 0 is a free sequence. */
struct seq {
    int32_t id;
    struct slot *slot; /* computes on it; NULL: resident, or free */
    bool pinned;       /* a placement that is being carried out needs it: it is not evicted meanwhile */
    bool
        clear_when_saved; /* its request has ended, and it has cells only until a system prompt is copied out of them */
    struct tokens tokens;
    int32_t n_cells;
    int32_t n_exact;   /* leading cells that were computed in whole pieces */
    int32_t last_slot; /* the slot that computed on it last */
    uint64_t uses;     /* counts the requests that it was used for */
    uint64_t scope;    /* of the request that computed it; SCOPE_OF_NOBODY if nothing of that is for others */
    uint64_t hash;     /* of the cells, while resident */
    int64_t last_used; /* computed on, or gone on from by another sequence */
    int64_t retired_at, retired_at_unix_ms;

    /* The conversation whose messages, all but the last, lie in the first cells; for people, and never authority. */
    size_t n_messages;
    int32_t message_tokens;
    uint64_t message_hash;

    struct saving saving;
    struct pending_eviction eviction;
};

/* How far a request has come: goes with its job when that makes way for another and comes back. */
struct run {
    struct llm_sampler *sampler;
    struct reply reply;
    int32_t n_prompt, n_cached, n_too_short, n_predicted, max_tokens;
    int64_t started_at, first_token_at, last_token_at;
    bool continues; /* a conversation that was there: for the log */
    bool started_sent;
    double restore_ms; /* that fetching its cells took */

    /* While it is parked, its cells: resident in this sequence if that was not used since, or this pinned state. */
    struct seq *suspended_in;
    uint64_t suspended_use;
    const struct snapshot *snapshot;
};

enum slot_state {
    SLOT_IDLE,
    SLOT_PENDING, /* has no sequence yet: waits for one, or for cells of its prefix that another slot is computing */
    SLOT_PREFILL,
    SLOT_GENERATE
};

/* The right to take part in a tick, and the request that has it. */
struct slot {
    int32_t id;
    enum slot_state state;
    struct seq *seq;           /* NULL when idle or pending */
    struct job *job;           /* NULL when idle */
    const struct seq *awaited; /* while pending: whose cells, in which of its uses, and how many of them; NULL: none */
    uint64_t awaited_use;
    int32_t awaited_cells;
    bool deferred;    /* gave its cells to others; begins again when some request ends */
    bool lacks_cells; /* has no rows in any batch, or no sequence yet, until one that leaves has given up its cells */
    int32_t suspect_until; /* was in a call that failed: computed by itself until it has so many cells */
    struct run *run;       /* NULL when idle */
    struct fetching {      /* its cells come from the store, job->hit; until then it has no rows in any batch */
        bool on;
        int32_t n; /* tokens */
        int64_t began_at;
        bool piece_held; /* which there was no room for yet */
        struct store_piece piece;
    } fetching;
    struct job_list queue; /* those who wait for this very slot, because it computes on their conversation */
    int64_t taken_at, last_used;
};

/* Where a request begins: a value that place.c works out and carries out. */
struct placement {
    enum {
        PLACE_FRESH,
        PLACE_CONTINUE, /* go on from the source, which keeps n cells */
        PLACE_SHARE,    /* have the first n cells of the source in a sequence of its own */
        PLACE_RESTORE,  /* load the state */
        PLACE_FETCH,    /* have the first n cells from the store, job->hit; of them `shared` from the source, if any */
        PLACE_WAIT,     /* in a slot, until the source has n cells */
        PLACE_QUEUE     /* in the list of the slot that computes on the source */
    } how;
    struct seq *source;
    const struct snapshot *snapshot;
    int32_t n;         /* tokens to go on from, or to wait for */
    int32_t shared;    /* of a fetch: leading tokens that lie in the source's cells */
    int32_t too_short; /* where it begins anew: tokens that are there, but fewer than cache_min_tokens */
    int64_t cost;      /* tokens to compute, and tokens lost that somebody may come back for */
};

/* A slot that is to make way, decided in one round of the loop and carried out at the beginning of the next. */
struct preemption {
    struct slot *victim; /* NULL: none */
    const struct job *for_job;
    int64_t waited;
};

struct engine {
    char *name;
    struct llm_model *model;
    struct llm_context *context;
    struct llm_adapter *const *adapters; /* of the model */
    size_t n_adapters;
    struct clock *clock;
    int32_t window, n_batch;
    bool deterministic, preempt_fails, logs_words;
    bool one_slot_per_call; /* one slot a decode call */
    enum engine_caching caching;
    int32_t cache_min_tokens;
    int64_t slot_timeout_ns;

    bool unified;         /* one pool of cells; else sequence i has the stream i, and there are as many as slots */
    bool cuts_anywhere;   /* cells can be cut and shared at any length */
    bool exact_snapshots; /* what was saved and restored gives the same bits as before */
    struct seq *seqs;
    size_t n_seqs;
    struct sharing sharing; /* of the cells of all sequences */
    struct slot *slots;
    size_t n_slots;
    struct snapshots *snapshots; /* outside the context */
    struct store *store;         /* what outlives the cells; NULL: nothing */
    struct store_user *user;     /* this engine, as the store knows it */
    struct llm_state_format *format;
    int32_t stride, continued_interval;
    int64_t evict_timeout_ns;
    uint64_t last_ticket; /* of all saves that were queued */
    bool store_was_off;   /* when it was last looked at */
    bool hung;            /* an eviction waited in vain for what was queued up to hung_at */
    uint64_t hung_at;
    bool copied;             /* something was copied in or out in the last round: there may be more */
    bool stalled;            /* every busy slot waits for the store, and nothing could be copied */
    struct job_list waiting; /* have no slot yet */
    struct preemption preemption;
    int64_t blocked_at; /* since when every slot has been computing a prompt; 0: some slot is not */
    struct tick_budget tick_budget;
    struct thread_scaling scaling;
    struct scaling_tick computed; /* by the tick's decode calls so far */
    struct plan plan;
    struct plan_need *needs;
    struct llm_batch_token *batch;
    struct buf token_bytes;        /* of the token being sampled; kept so that none is allocated for each */
    struct llm_logprobs *logprobs; /* likewise */
    size_t turn;
    struct engine_stats *stats, own_stats; /* where they are counted; and where, if nobody else keeps them */
    pthread_t thread;

    /* What the running decode is for; read by the abort callback on llama.cpp's threads, written between decodes. */
    struct plan_share *running;
    size_t n_running;

    pthread_mutex_t mutex;  /* guards the mailbox: */
    pthread_cond_t mail;    /* something came in */
    pthread_cond_t drained; /* a drained engine has nothing left to do */
    struct job_list inbox;
    bool poked, draining, closing, busy;
    size_t drained_pending; /* jobs without a slot that a drain failed */
    _Atomic bool stop_now;  /* running requests are to end; any thread may read it */

    pthread_mutex_t status_mutex; /* guards the snapshot: */
    hearth_slot *status;
};

/* residency.c: what the cells hold. */

/* Cuts the sequence's cells back to `n`; those that cannot be cut there are cleared. */
void seq_keep(struct engine *engine, struct seq *seq, int32_t n);

/* The longest part within the first `n` cells that seq_keep() can cut back to. */
int32_t seq_can_keep(const struct engine *engine, const struct seq *seq, int32_t n);

/* Gives the empty sequence `to` the first n cells of another. Else it may have some of them, and must be cleared. */
enum llm_loaded seq_share(struct engine *engine, const struct seq *from, struct seq *to, int32_t n);

/* The sequence has no cells, whatever it had. */
void seq_clear(struct engine *engine, struct seq *seq);

/* The state in memory that takes the sequence's cells back to n. NULL: there is none, or none is needed. */
const struct snapshot *seq_checkpoint_at(const struct engine *engine, const struct seq *seq, int32_t n);

/* After a decode that broke off: sequences that have other cells than they should are cut back or cleared. */
void seq_verify_all(struct engine *engine);

/* No slot computes on it any more: it stays resident with the cells it has. */
void seq_retire(struct engine *engine, struct seq *seq);

/* The resident sequence's tokens are those of its cells. */
void seq_settle(struct seq *seq);

/* The sequence has reached a bound of its request: keeps what is needed to begin there again when the sequence itself
 * has moved on. */
void seq_save_checkpoint(struct engine *engine, const struct seq *seq);

/* Copies the whole sequence out of the context, as a state that nothing drives out. NULL: there is no room. */
const struct snapshot *seq_save_pinned(struct engine *engine, const struct seq *seq);

/* evict.c: what goes when there is no room. */

/* An empty sequence that nobody uses. NULL: some sequence leaves for the slots that await one. */
struct seq *evict_for_seq(struct engine *engine);

/* Whether no sequence is free, and as many leave as are awaited. */
bool evict_is_pending(const struct engine *engine);
bool slot_awaits_seq(const struct slot *slot);

/* Room for so many rows, at least for some of them. */
enum evict_outcome {
    EVICT_DONE,
    EVICT_PENDING, /* when a sequence has left, which it does as soon as it is stored: lacks_cells */
    EVICT_NOTHING  /* nothing resident is left */
};
enum evict_outcome evict_for_cells(struct engine *engine, int32_t rows);

/* Whether a load of so many rows that found no room can be tried again now; `room` says why not. */
bool evict_for_load(struct engine *engine, enum llm_loaded loaded, int32_t rows, enum evict_outcome *outcome);

/* The same for replies, which wait for no disk. False: nothing resident is left. */
bool evict_now(struct engine *engine, int32_t rows);

/* The sequence (NULL is fine) is wanted again: if it was eviction, it stays. */
void evict_cancel(struct engine *engine, struct seq *seq);

/* Cuts what leaves and is stored, or is to be given up. */
void evict_step(struct engine *engine);

/* When something that leaves is to be given up; CLOCK_NEVER. */
int64_t evict_deadline(const struct engine *engine);

/* Whether a request that made way comes back to these cells. */
bool seq_is_suspended(const struct engine *engine, const struct seq *seq);

/* weigh.c: what could be gone on from, and what it costs, for a job that has come as far as `run` (NULL: it has not
 * begun). One that has its slot already may not queue for another. */
struct placement find_placement(struct engine *engine, const struct job *job, const struct run *run, bool may_queue);

/* How many of its tokens lie in cells, or in memory beside them. */
int32_t find_resident(const struct engine *engine, const struct job *job);

/* How many of its tokens would not be computed, if what is there were gone on from; `resident`: find_resident(). */
int32_t find_reusable(const struct engine *engine, const struct job *job, int32_t resident);

/* Where the prompt parts from the one that is most like it. */
int32_t find_divergence(const struct engine *engine, const struct job *job);

/* lookup_nearest.c: answers a cache lookup: what is there of the prompt, and where it diverges from what is most like
 * it. Nothing changes. */
void lookup_answer(struct engine *engine, struct job *job);

/* The job is about to be placed: notes what is most like its prompt, where most of a long one is to be computed; and
 * says so in the log, when the request has ended and that is what came of it: positions, and words only where the
 * configuration wants them there. */
void nearest_note(const struct engine *engine, struct job *job, const struct placement *placement);
void nearest_log(const struct engine *engine, const struct slot *slot);

/* Whether a slot is computing its prompt. */
bool seq_is_coming(const struct seq *seq);

/* engine.c: the sequence that an idle slot computed on last, if it is still there: to the outside that is what the slot
 * holds. */
const struct seq *slot_last_seq(const struct engine *engine, const struct slot *slot);

/* place.c: gives waiting jobs their slots, and pending slots their sequences. */
void place_jobs(struct engine *engine);

/* Gives the job this idle slot. */
void place_in(struct engine *engine, struct slot *slot, struct job *job);

/* preempt.c: what becomes of jobs that have waited too long. */
void preempt_decide(struct engine *engine);
void preempt_carry_out(struct engine *engine);
void preempt_note_unblocked(struct job *job); /* it is no longer held up by prompts, if it was */

/* tick.c: computes one batch. */
void tick(struct engine *engine);

/* finish.c: how far the slot's request has come. */
hearth_result slot_result(const struct slot *slot);

/* A slot's request ends, one way or the other; the slot is idle afterwards. */
void finish_done(struct engine *engine, struct slot *slot, hearth_finish finish, const char *stop_string);
void finish_failed(struct engine *engine, struct slot *slot, const hearth_error *error);
void finish_cancelled(struct engine *engine);

/* Clears sequences that had their cells only until they were copied out. */
void finish_clear_saved(struct engine *engine);

/* A job that has no slot fails, whether it began earlier or not. */
void finish_waiting(struct engine *engine, struct job *job, const hearth_error *error);

/* Whether its cells stay for others when the request has ended. */
bool cells_stay(const struct engine *engine, const struct job *job);

/* While a request waits to go on, its prompt is followed by its reply; then it is the prompt alone again. */
void run_forget_reply(struct job *job, const struct run *run);

/* Takes the request off its slot, which is idle afterwards. Of its cells `keep` stay resident. */
struct job *slot_release(struct engine *engine, struct slot *slot, int32_t keep);

/* save.c: when cells are stored, and copying them out. All of it does nothing where there is no store. */

/* A request begins on a sequence. */
void save_begin(struct engine *engine, struct seq *seq, const struct job *job);

/* It shares the first n cells of another, and what was copied out of them. */
void save_inherit(struct seq *seq, const struct seq *from, int32_t n);

/* The sequence was cut back to n cells. */
void save_cut(struct seq *seq, int32_t n);

/* Rows were computed; `at_checkpoint`: up to a bound of the prompt. */
void save_progress(struct engine *engine, struct slot *slot, bool at_checkpoint);

/* The request ends; its cells stay. */
void save_finished(struct engine *engine, struct seq *seq);

/* What would be lost with the resident sequence's cells. */
enum save_status {
    SAVE_COMPLETE, /* nothing: it is in the store, or nothing of it is to be stored */
    SAVE_PENDING,  /* it is being copied out or written; the engine is woken when that is done */
    SAVE_MISSING   /* something: its saves have ended, and the store does not have it */
};
enum save_status save_status(const struct engine *engine, const struct seq *seq);

/* Its cells are to go: what the store lacks is to be copied out. */
void save_before_eviction(struct engine *engine, struct seq *seq);

/* They go now: what is to be copied out is copied as far as the backlog takes it. False: some is left. */
bool save_flush(struct engine *engine, struct seq *seq);

/* The engine ends: the one time that its thread waits for the store, for evict_timeout_ns at most. */
void save_all(struct engine *engine);
void save_release(struct seq *seq);

/* Copies out a bounded part of what waits for it. False: nothing could be. */
bool save_step(struct engine *engine);

/* fetch.c: cells that come from the store. */

/* The bytes are brought into memory while the request waits. */
void fetch_ahead(struct engine *engine, struct job *job);

/* The slot's sequence, which is empty, gets its first n tokens from the store. */
void fetch_begin(struct engine *engine, struct slot *slot, int32_t n);

/* Whatever has come is what the slot goes on from. */
void fetch_stop(struct engine *engine, struct slot *slot);

/* Copies a bounded part of what has come into the cells. False: no slot got anything. */
bool fetch_step(struct engine *engine);

/* The request needs the store no more. */
void fetch_release(struct job *job);

/* codec.c: how the store takes states of this format apart. */
struct store_codec codec_of(const struct llm_state_format *format);

/* reuse_log.c: says in the log what was found and what comes of it, in the words of the documents. Returns whether a
 * conversation is continued. */
bool reuse_log(const struct engine *engine, const struct job *job, const struct placement *placement);
void reuse_log_built(const struct slot *slot);

#endif
