/* Which job has a slot: placing those that wait, and preempting for those that have waited too long. */
#ifndef ENGINE_SCHEDULE_H
#define ENGINE_SCHEDULE_H

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

#endif
