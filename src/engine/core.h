/* The engine from inside: what engine.c, place.c, residency.c, tick.c and finish.c share. All of it belongs to the
 * engine's thread, but for what is marked. */
#ifndef ENGINE_CORE_H
#define ENGINE_CORE_H

#include "engine/engine.h"
#include "engine/pace.h"
#include "engine/plan.h"
#include "engine/reply.h"

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
    struct tokens tokens;
    int32_t n_cells;
    int32_t n_exact;   /* leading cells that were computed in whole pieces */
    int32_t last_slot; /* the slot that computed on it last */
    uint64_t uses;     /* counts the requests that it was used for */
    uint64_t hash;     /* of the cells, while resident */
    int64_t last_used, last_used_unix_ms;
};

enum slot_state {
    SLOT_IDLE,
    SLOT_PENDING, /* waits for cells of its prefix that another slot is computing; has no sequence yet */
    SLOT_PREFILL,
    SLOT_GENERATE
};

/* The right to take part in a tick, and the request that has it. */
struct slot {
    int32_t id;
    enum slot_state state;
    struct seq *seq;           /* NULL when idle or pending */
    struct job *job;           /* NULL when idle */
    const struct seq *awaited; /* while pending: whose cells, in which of its uses, and how many of them */
    uint64_t awaited_use;
    int32_t awaited_cells;
    bool deferred;         /* gave its cells to others; begins again when some request ends */
    int32_t suspect_until; /* was in a call that failed: computed by itself until it has so many cells */
    struct llm_sampler *sampler;
    struct reply reply;
    int32_t n_prompt, n_cached, n_predicted, max_tokens;
    int64_t started_at, first_token_at, last_token_at, last_used;
};

struct engine {
    char *name;
    struct llm_model *model;
    struct llm_context *context;
    struct clock *clock;
    int32_t window, n_batch;
    bool deterministic;

    bool unified;       /* one pool of cells; else sequence i has the stream i, and there are as many as slots */
    bool cuts_anywhere; /* cells can be cut and shared at any length */
    struct seq *seqs;
    size_t n_seqs;
    struct slot *slots;
    size_t n_slots;
    struct job_list waiting; /* have no slot yet */
    struct pace pace;
    struct plan plan;
    struct plan_need *needs;
    struct llm_row *rows;
    struct buf token_bytes; /* of the token being sampled; kept so that none is allocated for each */
    size_t turn;
    struct engine_stats stats;
    pthread_t thread;

    /* What the running decode is for; read by the abort callback on llama.cpp's threads, written between decodes. */
    struct plan_share *running;
    size_t n_running;

    pthread_mutex_t mutex; /* guards the mailbox: */
    pthread_cond_t mail;   /* something came in */
    pthread_cond_t calm;   /* a drained engine has nothing left to do */
    struct job_list inbox;
    bool poked, draining, closing, busy;
    size_t drained_pending; /* jobs without a slot that a drain failed */
    _Atomic bool stop_now;  /* running requests are to end; any thread may read it */

    pthread_mutex_t status_mutex; /* guards the snapshot: */
    hearth_slot *status;
};

/* residency.c: what the cells hold, and what goes when there is no room. */

/* Cuts the sequence's cells back to `n`; those that cannot be cut there are cleared. */
void seq_keep(struct engine *engine, struct seq *seq, int32_t n);

/* After a decode that broke off: sequences that have other cells than they should are cut back or cleared. */
void seq_verify_all(struct engine *engine);

/* No slot computes on it any more: it stays resident with the cells it has. */
void seq_retire(struct engine *engine, struct seq *seq);

/* An empty sequence that nobody uses; the one unused for longest makes way if need be. There always is one, since
 * there are at least as many sequences as slots. */
struct seq *seq_take_free(struct engine *engine, const struct seq *but_not);

/* A resident copy of the sequence as it stands, which can be gone back to when the sequence itself has moved on. Does
 * nothing where cells can be cut anyway, or where there is no sequence to spare. */
void seq_remember(struct engine *engine, const struct seq *seq);

/* Gives up cells of what is unused for longest, some `rows` of them. False: nothing resident is left. */
bool seq_make_room(struct engine *engine, int32_t rows);

/* place.c: gives waiting jobs their slots, and pending slots their sequences. */
void place_jobs(struct engine *engine);

/* tick.c: computes one batch. */
void tick(struct engine *engine);

/* finish.c: a slot's request ends, one way or the other; the slot is idle afterwards. */
void finish_done(struct engine *engine, struct slot *slot, hearth_finish finish, const char *stop_string);
void finish_failed(struct engine *engine, struct slot *slot, const hearth_error *error);
void finish_cancelled(struct engine *engine);

#endif
