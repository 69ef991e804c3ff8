/* The cost of idle cells to those that compute, and the ways to end it: conversations leave, and rows move into free
 * cells below them. */
#ifndef ENGINE_IDLE_H
#define ENGINE_IDLE_H

#include "engine/decode_cost.h"
#include "engine/plan.h"
#include "llm/cell_map.h"

struct engine;

/* Cells in use when they were counted last: idle.c. */
struct idle_count {
    double used, running;
};

/* Moving rows into free cells below them: compaction.c. */
struct compaction {
    double paid_ns; /* what the free cells have cost since nothing was left that could be moved */
    double row_ns;  /* what moving a row takes, as measured lately; 0: not known yet */
};

/* After a decode call of these shares that took `ns`: notes what it cost, and charges the idle sequences. */
void idle_observe(struct engine *engine, const struct plan_share *shares, size_t n, int64_t ns);

/* Evicts the idle sequences that cost others more than bringing them back would. */
void idle_step(struct engine *engine);

/* Prompt tokens that the slots have yet to compute. */
double idle_tokens_to_come(const struct engine *engine);

/* Counts the cells that each sequence has and no other one needs (seq.idle.cells); returns how many are in use. */
double idle_count_cells(struct engine *engine);

/* Free cells below those in use. After a decode call of so many tokens: charges what they cost. */
void compaction_observe(struct engine *engine, const struct llm_cell_map *map, int32_t n_tokens);

/* Moves some rows into them, once they have cost more than that. */
void compaction_step(struct engine *engine);

#endif
