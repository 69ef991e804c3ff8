/* Internal declarations of the batch engine: sequences, slots, placements, and what each file of this folder offers to
 * the others. The engine's thread owns all of it, except for the fields that a comment gives to another thread.
 *
 * The files call each other in cycles because they work on one struct engine on one thread. engine.c runs the loop,
 * which calls preempt.c, place.c and tick.c in turn. place.c calls preempt.c when a job that was held up gets its slot.
 * preempt.c calls place.c to give the victim's slot to the job that waited, before another job can take it, and
 * reuse_plan.c asks it where a suspended request's cells are. victim.c asks save.c what is stored. place.c and tick.c
 * call reuse_log.c at the two moments it logs: a placement was chosen, a conversation's messages are in the cells.
 * engine.c calls orders.c for what it finds in the mailbox, which calls evict.c; reuse_plan.c and place.c ask orders.c
 * about kept conversations. reuse_log.c calls slot_status.c for the sequence that an idle slot computed on last, so
 * that the log and the slot status name the same one. */
#ifndef ENGINE_CORE_H
#define ENGINE_CORE_H

#include "base/thread.h"
#include "engine/adapter_turns.h"
#include "engine/cache_policy.h"
#include "engine/checkpoint_grid.h"
#include "engine/copy_turn.h"
#include "engine/decode_cost.h"
#include "engine/engine.h"
#include "engine/plan.h"
#include "engine/reply.h"
#include "engine/sharing.h"
#include "engine/snapshots.h"
#include "engine/states.h"
#include "engine/thread_scaling.h"
#include "engine/tick_budget.h"
#include "llm/adapter.h"
#include "llm/cell_map.h"
#include "llm/logprobs.h"
#include "llm/state_slices.h"

/* The scope of cells that no other request may reuse. */
#define SCOPE_PRIVATE UINT64_MAX

/* A position up to which cells are to be saved: the KV rows up to `to`, and the checkpoint, which was copied out when
 * the sequence had exactly `to` cells. */
struct save_event {
    int32_t to;
    enum slab_reason reason;
    void *checkpoint; /* store_buffer(); NULL: the model needs none */
    size_t checkpoint_size;
};

#define SAVE_EVENTS 8

/* What of a sequence is being saved to the store. */
struct saving {
    int32_t n;            /* leading tokens whose KV rows were stored, or copied out, at the last event */
    int32_t n_checkpoint; /* the position at which a checkpoint was copied out last */
    int32_t last_end;     /* the position of the last event: intervals are counted from there */
    uint64_t ticket;      /* of the last save job that was queued; once it is done, the store's own answer counts */
    struct save_event events[SAVE_EVENTS]; /* still to be copied out, ascending */
    size_t n_events;
    struct identity identity; /* of the request that computed the sequence */
};

/* Where an idle sequence ends in the store, as it was when the store was asked last: slot_status.c. */
struct stored_end {
    bool known;
    uint64_t uses, ticket; /* of the sequence then, and of its saves */
    int32_t n_cells;
    struct stored_mark mark;
};

/* The eviction of a sequence that leaves, which waits until its cells are stored or until its deadline. */
struct pending_eviction {
    bool ordered;               /* it leaves although nobody needs the room, but not unsaved */
    int32_t keep;               /* cells that stay */
    int attempts;               /* how often the engine asked for what the store lacked */
    int64_t began_at, deadline; /* when it began, and when the cells are dropped unsaved; clock of the engine */
};

/* How often a save is tried: what was damaged or failed is copied out once more. */
#define SAVE_ATTEMPTS 2

/* What an idle sequence has cost others: idle.c. */
struct idle_account {
    double paid_ns;   /* time of others' decode calls since it was used last, as far as its cells caused it */
    double ask_at_ns; /* the store is asked once it has cost so much */
    double back_ns;   /* what bringing it back costs, when the store was asked last */
    int32_t cells;    /* that no other sequence needs */
};

/* Cells in use when they were counted last: idle.c. */
struct idle_count {
    uint64_t signature; /* of the sequences, but for how many cells the running ones have */
    double used, running;
};

/* Moving rows into free cells below them: compaction.c. */
struct compaction {
    double paid_ns; /* what the free cells have cost since nothing was left that could be moved */
    double row_ns;  /* what moving a row takes, as measured lately; 0: not known yet */
};

/* A sequence of KV cells and its tokens. There are more sequences than slots: one that no slot computes on stays
 * resident while there is room, and later requests reuse its prefix.
 *
 * While a slot computes on it, `tokens` is everything that the request wants in its cells, prompt and reply, and the
 * first `n_cells` of them are computed. The slot needs batch tokens while n_cells < tokens.len; once they are equal,
 * the logits of the last token give the next one. Recomputing after a failure therefore only means a smaller n_cells.
 * When no slot computes on it, tokens.len == n_cells. */
struct seq {
    int32_t id;
    enum seq_state state;
    struct slot *slot; /* SEQ_RUNNING: computes on it; else NULL */
    bool pinned;       /* a placement that is being carried out uses it: it is not evicted meanwhile */
    bool kept;         /* by order: it is evicted last, and does not leave for its price */
    struct tokens tokens;
    struct media_spans media; /* among the tokens; those behind them, of a request that was cut, mean nothing */
    int32_t n_cells;
    int32_t n_exact;   /* leading cells that were computed in whole prefill chunks, and so are exact to the last bit */
    int32_t last_slot; /* the slot that computed on it last */
    uint64_t uses;     /* counts the requests that it was used for */
    uint64_t scope;    /* of the request that computed it; SCOPE_PRIVATE if other requests may not reuse it */
    uint64_t hash;     /* of the tokens in its cells, while resident */
    int64_t last_used; /* when a slot computed on it, or another sequence was given its prefix; the LRU order */
    int64_t retired_at, retired_at_unix_ms;

    /* The conversation whose messages, all but the last, lie in the first cells. For logs and status only; reuse
     * compares tokens. */
    size_t n_messages;
    int32_t message_tokens;
    uint64_t message_hash;

    struct run *suspended; /* SEQ_SUSPENDED, leaving or not: the request that resumes on these cells; else NULL */
    struct idle_account idle;
    struct saving saving;
    struct stored_end stored;
    struct pending_eviction eviction; /* of one that leaves */
};

/* How far a request has come. It moves with its job when the job is suspended, and back into a slot when it resumes. */
struct run {
    struct llm_sampler *sampler;
    struct reply reply;
    int32_t n_prompt, n_cached, n_kept, n_too_short, n_predicted, max_tokens;
    int64_t started_at, first_token_at, last_token_at;
    int64_t held_until; /* its sampling takes long: while others compute, it computes nothing before */
    bool continues;     /* the placement continued a conversation that was in the cells: for the log */
    bool started_sent;
    int32_t n_told;    /* tokens of the prompt that the last progress event told of; -1: there was none */
    double restore_ms; /* milliseconds that restoring its cells took */

    /* While the request is suspended: its prompt and its reply so far, until these are the tokens of a sequence again;
     * and its cells, if they are in no sequence (seq.suspended), as a pinned snapshot. */
    struct tokens wanted;
    const struct snapshot *snapshot;
};

/* A slot: a share in every tick, and the request that has it. */
struct slot {
    int32_t id;
    enum slot_state state;
    struct seq *seq;           /* NULL when idle or pending */
    struct job *job;           /* NULL when idle */
    size_t set;                /* of adapters, of the job: adapter_turns.h */
    const struct seq *awaited; /* SLOT_AWAITS_PREFIX: the sequence whose cells it waits for, in which of its uses, and
                                  how many cells; else NULL */
    uint64_t awaited_use;
    int32_t awaited_cells;
    int32_t suspect_until; /* was in a call that failed: computed in calls of its own until it has so many cells */
    struct run *run;       /* NULL when idle */
    struct fetching {      /* SLOT_FETCHES, SLOT_FETCH_AWAITS_ROOM: what comes from the store, job->hit */
        int32_t n;         /* tokens */
        int64_t began_at;
        bool piece_held; /* `piece` was taken from the store, and there was no room for it yet */
        struct store_piece piece;
    } fetching;
    struct job_list queue; /* jobs that wait for this very slot, because it computes on their conversation */
    int64_t taken_at, last_used;
};

/* Whether it has a share in the ticks. */
static inline bool slot_computes(const struct slot *slot)
{
    return slot->state == SLOT_PREFILLS || slot->state == SLOT_GENERATES;
}

static inline bool slot_is_fetching(const struct slot *slot)
{
    return slot->state == SLOT_FETCHES || slot->state == SLOT_FETCH_AWAITS_ROOM;
}

/* Whether it waits until an eviction has freed cells. */
static inline bool slot_awaits_room(const struct slot *slot)
{
    return slot->state == SLOT_AWAITS_LOAD || slot->state == SLOT_FETCH_AWAITS_ROOM ||
           slot->state == SLOT_PREFILL_AWAITS_ROOM;
}

static inline bool slot_has_yielded(const struct slot *slot)
{
    return slot->state == SLOT_PREFILL_YIELDED || slot->state == SLOT_REPLY_YIELDED;
}

/* The reuse plan of a request: which cached prefix it begins with, and from where. reuse_plan.c chooses it, place.c
 * carries it out. */
struct placement {
    enum {
        PLACE_FRESH,
        PLACE_CONTINUE, /* compute on the source sequence itself, which keeps n cells */
        PLACE_SHARE,    /* share the first n cells of the source with a sequence of its own */
        PLACE_RESTORE,  /* load the snapshot */
        PLACE_FETCH, /* read the first n cells from the store, job->hit; `shared` of them come from the source, if any
                      */
        PLACE_WAIT,  /* in a slot, until the source has n cells */
        PLACE_QUEUE  /* in the queue of the slot that computes on the source */
    } how;
    struct seq *source;
    const struct snapshot *snapshot;
    int32_t n;         /* leading tokens that are reused, or that the source must have first */
    int32_t shared;    /* of a fetch: leading tokens that lie in the source's cells */
    int32_t too_short; /* of PLACE_FRESH: tokens that could be reused, but fewer than cache_min_tokens */
    int64_t cost;      /* in tokens: those to compute, and those evicted that a later request may want */
};

/* A preemption: one round of the loop decides on it, the next one carries it out before it plans a tick. */
struct preemption {
    struct slot *victim; /* NULL: none is scheduled */
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

/* Takes another measurement into account. */
static inline void engine_blend(double *estimate, double value)
{
    *estimate = *estimate > 0 ? (*estimate + value) / 2 : value;
}

/* A turn of copying between two ticks: so many bytes, and a sixteenth of the longest gap that a stream may have; the
 * whole gap where nobody would notice. */
static inline struct copy_turn engine_copy_turn(const struct engine *engine, size_t bytes, bool noticed)
{
    double ns = noticed ? engine->tick_budget.max_ns / 16 : engine->tick_budget.max_ns;
    return (struct copy_turn){.bytes = bytes, .until = clock_now(engine->clock) + (int64_t)ns};
}

/* residency.c: the cells of sequences: cutting, sharing, saving snapshots and checkpoints. */

/* Cuts the sequence's cells back to `n`, or before the medium that n lies in. Where the cells cannot be cut there, they
 * are all cleared. */
void seq_keep(struct engine *engine, struct seq *seq, int32_t n);

/* The largest number of cells, at most `n`, that seq_keep() can cut the sequence back to. */
int32_t seq_can_keep(const struct engine *engine, const struct seq *seq, int32_t n);

/* Gives the empty sequence `to` the first n cells of `from`. On failure `to` may have some of them, and must be
 * cleared. */
enum llm_loaded seq_share(struct engine *engine, const struct seq *from, struct seq *to, int32_t n);

/* Clears the sequence's cells, whatever it had. */
void seq_clear(struct engine *engine, struct seq *seq);

/* The checkpoint in memory that takes the sequence's cells back to n. NULL: there is none, or none is needed. */
const struct snapshot *seq_checkpoint_at(const struct engine *engine, const struct seq *seq, int32_t n);

/* After a decode call that broke off: cuts back or clears sequences whose cells are not what n_cells says. */
void seq_verify_all(struct engine *engine);

/* No slot computes on the sequence any more: it stays resident with the cells it has. */
void seq_retire(struct engine *engine, struct seq *seq);

/* Truncates the resident sequence's tokens to those of its cells. */
void seq_truncate_tokens(struct seq *seq);

/* Saves what is needed to resume at this position after the sequence has moved on: a snapshot of a system prompt, or a
 * checkpoint. Called when a sequence has reached a checkpoint position of its request. */
void seq_save_checkpoint(struct engine *engine, const struct seq *seq);

/* How many checkpoints of one prompt its grid may have (checkpoint_grid.h); 0: none is wanted. */
int32_t seq_grid_most(const struct engine *engine, const struct job *job);

/* Copies the whole sequence out of the context, as a pinned snapshot. NULL: there is no room. */
const struct snapshot *seq_save_pinned(struct engine *engine, const struct seq *seq);

/* victim.c: which sequence is taken next. */

enum room { ROOM_FOR_CELLS, ROOM_FOR_SEQ };

struct victim {
    struct seq *seq; /* NULL: all are in use, or their eviction is pending. For ROOM_FOR_SEQ it may be free already */
    bool safe;       /* nothing is lost with its cells */
};

/* The sequence (not one that runs) has other cells, or none: its claim ends where they are fewer than `had`, its
 * eviction where they are gone. */
void seq_settle(struct seq *seq, int32_t had);

struct victim next_victim(const struct engine *engine, enum room room, const struct seq *but_not);

/* The least recently used of the sequences whose eviction is pending. NULL: there is none. */
struct seq *next_pending_victim(const struct engine *engine);

/* Whether a sequence other than this one is free, or can be evicted sooner or later. */
bool can_have_seq(const struct engine *engine, const struct seq *but_not);

/* Whether another sequence shares all its cells, so that a request can reuse them there: evicting it loses nothing, and
 * frees nothing but the sequence. Recurrent and SWA state is not shared with the cells. */
bool seq_is_shared_whole(const struct engine *engine, const struct seq *seq);

/* evict.c: how many of a sequence's cells are evicted when there is no room, and when. */

/* Finds or makes an empty sequence that nobody uses. NULL: there is none yet; an eviction is pending for each slot that
 * awaits one. */
struct seq *evict_for_seq(struct engine *engine);

/* Whether no sequence is free, and as many evictions are pending as slots await one. */
bool evict_is_pending(const struct engine *engine);

/* The outcome of an eviction that was to free so many cells, or at least some of them. */
enum evict_outcome {
    EVICT_DONE,
    EVICT_PENDING, /* an eviction is pending, and ends when the cells are stored: the slot waits for room */
    EVICT_NOTHING  /* no cells are resident */
};
enum evict_outcome evict_for_cells(struct engine *engine, int32_t n);

/* Evicts for a load of so many KV rows that found no room. True: the load can be tried again now; else `outcome` says
 * why not. */
bool evict_for_load(struct engine *engine, enum llm_loaded loaded, int32_t n, enum evict_outcome *outcome);

/* Evicts for the next tokens of replies, which wait for no disk. False: no cells are resident. */
bool evict_now(struct engine *engine, int32_t n);

/* Evicts a stored sequence whole, although nobody needs the room. */
void evict_stored(struct engine *engine, struct seq *seq);

/* The idle sequence leaves by order, as soon as it is stored. False: that cannot be, and it stays. */
bool evict_ordered(struct engine *engine, struct seq *seq);

/* The sequence (NULL is fine) is wanted again: if its eviction is pending, the eviction is cancelled. */
void evict_cancel(struct engine *engine, struct seq *seq);

/* Carries out the pending evictions that are stored, or past their deadline. */
void evict_step(struct engine *engine);

/* The first deadline of a pending eviction; CLOCK_NEVER. */
int64_t evict_deadline(const struct engine *engine);

/* idle.c: how long idle sequences stay in the cells. */

/* After a decode call of these shares that took `ns`: notes what it cost, and charges the idle sequences. */
void idle_observe(struct engine *engine, const struct plan_share *shares, size_t n, int64_t ns);

/* Evicts the idle sequences that cost others more than bringing them back would. */
void idle_step(struct engine *engine);

/* Prompt tokens that the slots have yet to compute. */
double idle_tokens_to_come(const struct engine *engine);

/* Counts the cells that each sequence has and no other one needs (seq.idle.cells); returns how many are in use. */
double idle_count_cells(struct engine *engine);

/* compaction.c: free cells below those in use. After a decode call of so many tokens: charges what they cost. */
void compaction_observe(struct engine *engine, const struct llm_cell_map *map, int32_t n_tokens);

/* Moves some rows into them, once they have cost more than that. */
void compaction_step(struct engine *engine);

/* reuse_plan.c: chooses the cheapest reuse plan for a job that has come as far as `run` (NULL: it has not begun). A job
 * that has its slot already may not queue for another. */
struct placement find_placement(struct engine *engine, const struct job *job, const struct run *run, bool may_queue);

/* How many leading tokens of the prompt lie in cells, or in snapshots in memory. */
int32_t find_resident(const struct engine *engine, const struct job *job);

/* How many leading tokens of the prompt need not be computed, if everything there is were reused; `resident`:
 * find_resident(). */
int32_t find_reusable(const struct engine *engine, const struct job *job, int32_t resident);

/* How many leading tokens of the prompt a request for the same could reuse afterwards. */
int32_t find_kept(const struct engine *engine, const struct job *job);

/* The position where the prompt diverges from the most similar sequence. */
int32_t find_divergence(const struct engine *engine, const struct job *job);

/* lookup_nearest.c: answers a cache lookup: how much of the prompt is cached, and where it diverges from the most
 * similar token list. Changes nothing. */
void lookup_answer(struct engine *engine, struct job *job);

/* nearest_note(), before a job is placed, notes the most similar token list where most of a long prompt is to be
 * computed. nearest_log(), at the request's end, logs it if that is what happened: positions, and words only where the
 * configuration allows them. */
void nearest_note(const struct engine *engine, struct job *job, const struct placement *placement);
void nearest_log(const struct engine *engine, const struct slot *slot);

/* Whether a slot is computing its prompt. */
bool seq_is_prefilling(const struct seq *seq);

/* slot_status.c: renews the copy of slots and sequences that other threads see. */
void status_publish(struct engine *engine);

/* The short hash that the status shows for a resident sequence: of its conversation's messages, else of its tokens. */
void seq_put_hash(const struct seq *seq, char text[17]);

/* The sequence that an idle slot computed on last, if it is still resident: the slot status reports it as the
 * slot's own. */
const struct seq *slot_last_seq(const struct engine *engine, const struct slot *slot);

/* orders.c: orders about resident sequences. Carries a list of them out. */
void orders_carry_out(struct engine *engine, struct engine_order *first);

/* Whether a prompt that has its first n tokens in common with the resident sequence goes on with what is in it. */
bool orders_continue(const struct job *job, const struct seq *seq, int32_t n);

/* Whether the placement, before it is carried out, continues a kept conversation; and once `seq` is the one that the
 * job is computed on: it is the kept one from now on, if so. */
bool orders_move_with(const struct job *job, const struct placement *p);
void orders_move(const struct placement *p, struct seq *seq, bool moves);

/* place.c: gives waiting jobs their slots, and pending slots their sequences. */
void place_jobs(struct engine *engine);

/* Gives the job this idle slot. */
void place_in(struct engine *engine, struct slot *slot, struct job *job);

/* preempt.c: what happens to jobs that have waited too long. */
void preempt_decide(struct engine *engine);
void preempt_carry_out(struct engine *engine);
void preempt_note_unblocked(struct job *job); /* it is no longer held up by prompts, if it was */

/* The sequence with the cells of the suspended request. NULL: there is none. */
struct seq *suspended_in(const struct engine *engine, const struct run *run);

/* media.c: media in prompts. */

/* Looks which slots have to wait for the rows of their next medium, and has those of the one after encoded as well. */
void media_step(struct engine *engine);

/* What the slot needs next, where that is a medium's rows. False: it is text, which ends before *to, where the next
 * medium begins. */
bool media_need(const struct slot *slot, struct plan_need *need, int32_t *to);

/* Computes a share of a medium's rows: a decode call of its own. */
enum llm_decoded media_decode(struct engine *engine, const struct plan_share *share);

/* The slot's sequence has grown by a share: media that are whole now need their rows no more. */
void media_computed(const struct slot *slot, const struct plan_share *share);

/* score.c: the logprobs of prompts' tokens. */

/* Whether the logits at the position are to give the logprob of the prompt's token behind it. */
bool score_wants(const struct job *job, int32_t position);

/* Whether some of what the slot needs next is scored. */
bool score_needs(const struct job *job, const struct plan_need *need);

/* How many of n leading tokens may be reused: those that have no logits to give any more. */
int32_t score_reusable(const struct job *job, int32_t n);

/* How many rows of logits become logprobs in a tick of `ns` nanoseconds at most, beside streams. */
int32_t score_rows(const struct engine *engine, double ns);

/* The share was computed, its first token with this index in the call: emits the logprobs. */
void score_share(struct engine *engine, struct slot *slot, const struct plan_share *share, int32_t first_token);

/* invariants.c: asserts what holds between two rounds of the loop. */
void engine_check(const struct engine *engine);

/* tick.c: plans and computes one batch. */
void tick(struct engine *engine);

/* finish.c: how far the slot's request has come. */
hearth_result slot_result(const struct slot *slot);

/* Tells a client that asked for it how much of the prompt is in the cells: first what is reused of it, then more with
 * each decode call. */
void slot_tell_progress(const struct engine *engine, struct slot *slot);

/* End a slot's request, with its last event; the slot is idle afterwards. */
void finish_done(struct engine *engine, struct slot *slot, hearth_finish finish, const char *stop_string);
void finish_failed(struct engine *engine, struct slot *slot, const hearth_error *error);
void finish_cancelled(struct engine *engine);

/* Clears the sequences that kept their cells only until a system prompt was copied out. */
void finish_clear_saved(struct engine *engine);

/* Fails a job that has no slot, whether it began earlier or not. */
void finish_waiting(struct engine *engine, struct job *job, const hearth_error *error);

/* Whether the request's cells stay resident for other requests after its end. */
bool keeps_cells(const struct engine *engine, const struct job *job);

/* There may be room again: slots that wait for it try again; after a request's end also those that gave their cells
 * away. */
void slots_try_again(struct engine *engine, bool yielded);

/* Takes the request off its slot, which is idle afterwards. `keep` of its cells stay resident. */
struct job *slot_release(struct engine *engine, struct slot *slot, int32_t keep);

/* save.c: when cells are saved to the store, and copying them out. All of it does nothing where there is no store. */

/* A request begins on the sequence. */
void save_begin(struct engine *engine, struct seq *seq, const struct job *job);

/* The sequence shares the first n cells of `from`, and with them what was copied out of those. */
void save_inherit(struct seq *seq, const struct seq *from, int32_t n);

/* The sequence was cut back to n cells. */
void save_cut(struct seq *seq, int32_t n);

/* Tokens were computed; `at_checkpoint`: the sequence has reached a checkpoint position of the prompt. */
void save_progress(struct engine *engine, struct slot *slot, bool at_checkpoint);

/* The request ends; its cells stay. */
void save_finished(struct engine *engine, struct seq *seq);

/* What an eviction of the resident sequence would lose. */
enum save_status {
    SAVE_COMPLETE, /* nothing: it is in the store, or nothing of it is to be stored */
    SAVE_PENDING,  /* nothing once its save jobs are done: it is being copied out or written, and the store wakes the
                      engine afterwards */
    SAVE_MISSING   /* something: its save jobs have ended, and the store does not have it */
};
enum save_status save_status(const struct engine *engine, const struct seq *seq);

/* Whether saves of it are copied out or written: the store wakes the engine afterwards. Compares no tokens. */
bool save_is_under_way(const struct engine *engine, const struct seq *seq);

/* The sequence is to be evicted: queues what the store lacks to be copied out. */
void save_before_eviction(struct engine *engine, struct seq *seq);

/* The sequence is evicted now: copies out what is queued, as far as the backlog takes it. False: some is left. */
bool save_flush(struct engine *engine, struct seq *seq);

/* The engine ends: the only time its thread waits for the store, for evict_timeout_ns at most. */
void save_all(struct engine *engine);
void save_release(struct seq *seq);

/* Copies out a bounded number of bytes of what is queued. False: nothing could be copied. */
bool save_step(struct engine *engine);

/* fetch.c: reading cells from the store. */

/* The store reads the bytes into memory while the job waits for a slot. */
void fetch_ahead(struct engine *engine, struct job *job);

/* The slot's sequence, which is empty, gets its first n tokens from the store. */
void fetch_begin(struct engine *engine, struct slot *slot, int32_t n);

/* Ends the fetch: the slot computes what has not come. */
void fetch_stop(struct engine *engine, struct slot *slot);

/* Copies a bounded number of bytes of what has come into the cells. False: no slot got anything. */
bool fetch_step(struct engine *engine);

/* The request needs the store no more. */
void fetch_release(struct job *job);

/* forget.c: forgets what was computed of other weights, if they have changed since the last time. */
void forget_changed(struct engine *engine);

/* codec.c: how the store splits and joins states of this format. */
struct store_codec codec_of(const struct llm_state_format *format);

/* reuse_log.c: logs what was found for a request and what is reused of it, in the words of the source documents.
 * Returns whether a conversation is continued. */
bool reuse_log(const struct engine *engine, const struct job *job, const struct placement *placement);
void reuse_log_built(const struct slot *slot);

#endif
