/* A sequence of KV cells: its tokens, what of it is being saved, what it costs others, and cutting, sharing and saving
 * its cells. The engine's thread owns all sequences of its engine. */
#ifndef ENGINE_SEQ_H
#define ENGINE_SEQ_H

#include "base/media_spans.h"
#include "base/tokens.h"
#include "draft/suffix_index.h"
#include "engine/states.h"
#include "llm/context.h"
#include "store/store.h"

struct conversation;
struct engine;
struct job;
struct slot;
struct run;
struct snapshot;

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

/* The tokens of a sequence that are being saved to the store. */
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

/* The cost of an idle sequence to others: idle.c. */
struct idle_account {
    double paid_ns;   /* time of others' decode calls since it was used last, as far as its cells caused it */
    double ask_at_ns; /* the store is asked once it has cost so much */
    double back_ns;   /* what bringing it back costs, when the store was asked last */
    int32_t cells;    /* that no other sequence needs */
};

/* The facts that decide which cells a sequence shares, as they were at the last count: idle.c. */
struct counted_seq {
    uint64_t uses;
    int32_t n_cells; /* of a running one 1: those that it adds are its own */
    bool idle;
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
    struct media_spans media;     /* among the tokens; those behind them, of a request that was cut, mean nothing */
    struct suffix_index suffixes; /* of tokens: for drafts */
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
    struct counted_seq counted;
    struct saving saving;
    struct stored_end stored;
    struct pending_eviction eviction; /* of one that leaves */
};

/* ---- Cells ---- */

/* Cuts the sequence's cells back to `n`, or before the medium that n lies in. Where the cells cannot be cut there, they
 * are all cleared. */
void seq_cut_to(struct engine *engine, struct seq *seq, int32_t n);

/* The largest number of cells, at most `n`, that seq_cut_to() can cut the sequence back to. */
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

/* The sequence (not one that runs) has other cells, or none: its claim ends where they are fewer than `had`, its
 * eviction where they are gone. */
void seq_settle(struct seq *seq, int32_t had);

/* Whether the conversation begins with the messages in its first cells, and goes on. */
bool seq_has_messages_of(const struct seq *seq, const struct conversation *c);

/* Whether a slot is computing its prompt. */
bool seq_is_prefilling(const struct seq *seq);

#endif
