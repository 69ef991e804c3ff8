/* Orders about resident sequences. */
#ifndef ENGINE_ORDERS_H
#define ENGINE_ORDERS_H

#include "engine/engine.h"
#include "engine/reuse_plan.h"

/* Carries a list of them out. */
void orders_carry_out(struct engine *engine, struct engine_order *first);

/* Whether a prompt that has its first n tokens in common with the resident sequence goes on with what is in it. */
bool orders_continue(const struct job *job, const struct seq *seq, int32_t n);

/* Whether the placement, before it is carried out, continues a kept conversation. Once the job is computed on `seq`,
 * that is the kept one from now on, if so. */
bool orders_move_with(const struct job *job, const struct placement *p);
void orders_move(const struct placement *p, struct seq *seq, bool moves);

#endif
