/* Which job has a slot: placing those that wait, and preempting for those that have waited too long. And the orders
 * about resident sequences. */
#ifndef ENGINE_SCHEDULE_H
#define ENGINE_SCHEDULE_H

#include "engine/engine.h"
#include "engine/slot.h"

/* A preemption: one round of the loop decides on it, the next one carries it out before it plans a tick. */
struct preemption {
    struct slot *victim; /* NULL: none is scheduled */
    const struct job *for_job;
    int64_t waited;
};

/* Gives waiting jobs their slots, and pending slots their sequences. */
void place_jobs(struct engine *engine);

/* Gives the job this idle slot. */
void place_in(struct engine *engine, struct slot *slot, struct job *job);

/* Ends jobs that have waited too long. */
void preempt_decide(struct engine *engine);
void preempt_carry_out(struct engine *engine);
void preempt_note_unblocked(struct job *job); /* it is no longer held up by prompts, if it was */

/* The sequence with the cells of the suspended request. NULL: there is none. */
struct seq *suspended_in(const struct engine *engine, const struct run *run);

/* Carries a list of orders out: orders.c. */
void orders_carry_out(struct engine *engine, struct engine_order *first);

/* Whether a prompt that has its first n tokens in common with the resident sequence goes on with what is in it. */
bool orders_continue(const struct job *job, const struct seq *seq, int32_t n);

#endif
