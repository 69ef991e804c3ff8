/* A slot, and the request in it: how far it has come, what it waits for, and its end. The engine's thread owns all
 * slots of its engine. */
#ifndef ENGINE_SLOT_H
#define ENGINE_SLOT_H

#include "engine/draft.h"
#include "engine/job.h"
#include "engine/reply.h"
#include "engine/seq.h"

/* Whether the reply goes on behind the token that was sampled last, or how it ends. */
struct ending {
    enum { GOES_ON, STOPS, HAS_NO_TOKEN } how;
    hearth_finish finish;
    const char *stop; /* the stop string; NULL: none */
};

/* How far a request has come. It moves with its job when the job is suspended, and back into a slot when it resumes. */
struct run {
    struct llm_sampler *sampler;
    struct reply reply;
    int32_t n_prompt, n_cached, n_kept, n_too_short, n_predicted, max_tokens;
    int64_t started_at, first_token_at, last_token_at;
    int64_t held_until; /* its sampling takes long: while others compute, it computes nothing before */
    int64_t sampled_ns; /* nanoseconds that sampling took in the last tick */
    struct draft draft;
    struct ending ending;
    bool continues; /* the placement continued a conversation that was in the cells: for the log */
    bool started_sent;
    int32_t n_told;    /* tokens of the prompt that the last progress event told of; -1: there was none */
    double restore_ms; /* milliseconds that restoring its cells took */

    /* While the request is suspended: its prompt and its reply so far, until these are the tokens of a sequence again.
     * Also its cells, if they are in no sequence (seq.suspended), as a pinned snapshot. */
    struct tokens wanted;
    const struct snapshot *snapshot;
};

/* A slot: a share in every tick, and the request that has it. */
struct slot {
    int32_t id;
    enum slot_state state;     /* states.h; docs/design.md says what ends each */
    struct seq *seq;           /* NULL when idle or pending */
    struct job *job;           /* NULL when idle */
    size_t set;                /* of adapters, of the job: adapter_turns.h */
    const struct seq *awaited; /* SLOT_AWAITS_PREFIX: the sequence whose cells it waits for, in which of its uses, and
                                  how many cells; else NULL */
    uint64_t awaited_use;
    int32_t awaited_cells;
    int32_t suspect_until; /* was in a call that failed: computed in calls of its own until it has so many cells */
    struct run *run;       /* NULL when idle */
    struct fetching {      /* SLOT_FETCHES, SLOT_FETCH_AWAITS_ROOM: the fetch of job->hit from the store */
        int32_t n;         /* tokens */
        int64_t began_at;
        bool piece_held; /* `piece` was taken from the store, and there was no room for it yet */
        struct store_piece piece;
    } fetching;
    struct job_list queue;  /* jobs that wait for this very slot, because it computes on their conversation */
    struct draft_mark mark; /* of models whose state cannot be cut */
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

/* ---- The request's way ---- */

/* How far the slot's request has come. */
hearth_result slot_result(const struct slot *slot);

/* Tells a client that asked for it how much of the prompt is in the cells: first what is reused of it, then more with
 * each decode call. */
void slot_tell_progress(const struct engine *engine, struct slot *slot);

/* End a slot's request, with its last event; the slot is idle afterwards. */
void finish_done(struct engine *engine, struct slot *slot, hearth_finish finish, const char *stop_string);
void finish_failed(struct engine *engine, struct slot *slot, const hearth_error *error);
void finish_cancelled(struct engine *engine);

/* Clears the sequences that kept their cells only until a system prompt was copied out. Returns whether there were any.
 */
bool finish_clear_saved(struct engine *engine);

/* Fails a job that has no slot, whether it began earlier or not. */
void finish_waiting(struct engine *engine, struct job *job, const hearth_error *error);

/* Whether the request's cells stay resident for other requests after its end. */
bool keeps_cells(const struct engine *engine, const struct job *job);

/* There may be room again: slots that wait for it try again; after a request's end also those that gave their cells
 * away. */
void slots_try_again(struct engine *engine, bool yielded);

/* Takes the request off its slot, which is idle afterwards. `keep` of its cells stay resident. */
struct job *slot_release(struct engine *engine, struct slot *slot, int32_t keep);

#endif
