/* The engine from inside: what engine.c, place.c, tick.c and finish.c share. All of it belongs to the engine's thread,
 * but for what is marked. */
#ifndef ENGINE_CORE_H
#define ENGINE_CORE_H

#include "engine/engine.h"
#include "engine/pace.h"
#include "engine/plan.h"
#include "engine/reply.h"

enum slot_state { SLOT_IDLE, SLOT_PREFILL, SLOT_GENERATE };

/* The right to take part in a tick, and the sequence of cells it stands on.
 *
 * `tokens` is what the slot's request wants in its cells, prompt and reply; the first `n_cells` of them are there.
 * A slot needs rows as long as n_cells < tokens.len; once they are equal, the logits of the last row give the next
 * token. Recomputing after a failure is therefore nothing but a smaller n_cells. When idle, tokens.len == n_cells. */
struct slot {
    int32_t id, seq;
    enum slot_state state;
    struct tokens tokens;
    int32_t n_cells;
    bool deferred;   /* gave its cells to others; begins again when some request ends */
    int32_t n_exact; /* leading cells that were computed in whole pieces */
    uint64_t hash;   /* of the cells, while idle */
    int64_t last_used, last_used_unix_ms;

    struct job *job; /* NULL when idle */
    struct llm_sampler *sampler;
    struct reply reply;
    int32_t n_prompt, n_cached, n_predicted, max_tokens;
    int64_t started_at, first_token_at, last_token_at;
};

struct engine {
    char *name;
    struct llm_model *model;
    struct llm_context *context;
    struct clock *clock;
    int32_t window, n_batch;
    bool deterministic;

    struct slot *slots;
    size_t n_slots;
    struct job_list waiting; /* have no slot yet */
    struct pace pace;
    struct plan plan;
    struct plan_need *needs;
    struct llm_row *rows;
    size_t turn;
    bool apart; /* the last tick met a failure that cost whole sequences: the next computes each slot by itself */
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
    _Atomic bool stop_now; /* running requests are to end; any thread may read it */

    pthread_mutex_t status_mutex; /* guards the snapshot: */
    hearth_slot *status;
};

/* place.c: gives waiting jobs their slots. */
void place_jobs(struct engine *engine);

/* tick.c: computes one batch. */
void tick(struct engine *engine);

/* finish.c: a slot's request ends, one way or the other; the slot is idle afterwards. */
void finish_done(struct engine *engine, struct slot *slot, hearth_finish finish, const char *stop_string);
void finish_failed(struct engine *engine, struct slot *slot, const hearth_error *error);
void finish_cancelled(struct engine *engine);

/* finish.c: cuts the slot's cells back to `n`; those that cannot be cut there are cleared. */
void slot_keep(struct engine *engine, struct slot *slot, int32_t n);

#endif
