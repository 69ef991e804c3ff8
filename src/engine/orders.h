/* Orders about resident sequences. */
#ifndef ENGINE_ORDERS_H
#define ENGINE_ORDERS_H

#include "engine/engine.h"

/* Carries a list of them out. */
void orders_carry_out(struct engine *engine, struct engine_order *first);

/* Whether a prompt that has its first n tokens in common with the resident sequence goes on with what is in it. */
bool orders_continue(const struct job *job, const struct seq *seq, int32_t n);

#endif
