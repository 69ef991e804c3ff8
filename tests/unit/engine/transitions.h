/* Which transitions of the tables in engine/states.h which test makes: the random workload of test_differential.c makes
 * all but the rare ones, and test_states.c has a scenario for each of those. */
#ifndef UNIT_ENGINE_TRANSITIONS_H
#define UNIT_ENGINE_TRANSITIONS_H

#include "fakes/cmocka_all.h"

#include "engine/states.h"

#include <inttypes.h>

struct transition {
    const struct state_table *table;
    int from, to;
};

/* Made seldom or never at random. */
static const struct transition rare_transitions[] = {
    {&slot_states, SLOT_AWAITS_SEQ, SLOT_AWAITS_LOAD},
    {&slot_states, SLOT_AWAITS_SEQ, SLOT_IDLE},
    {&slot_states, SLOT_AWAITS_PREFIX, SLOT_IDLE},
    {&slot_states, SLOT_AWAITS_LOAD, SLOT_AWAITS_SEQ},
    {&slot_states, SLOT_AWAITS_LOAD, SLOT_IDLE},
    {&slot_states, SLOT_FETCHES, SLOT_FETCH_AWAITS_ROOM},
    {&slot_states, SLOT_FETCH_AWAITS_ROOM, SLOT_FETCHES},
    {&slot_states, SLOT_FETCH_AWAITS_ROOM, SLOT_PREFILLS},
    {&slot_states, SLOT_PREFILL_AWAITS_ROOM, SLOT_IDLE},
    {&slot_states, SLOT_PREFILL_AWAITS_ROWS, SLOT_PREFILL_YIELDED},
    {&slot_states, SLOT_PREFILL_AWAITS_ROWS, SLOT_IDLE},
    {&slot_states, SLOT_PREFILL_YIELDED, SLOT_IDLE},
    {&slot_states, SLOT_GENERATES, SLOT_REPLY_AWAITS_ROWS},
    {&slot_states, SLOT_REPLY_AWAITS_ROWS, SLOT_GENERATES},
    {&slot_states, SLOT_REPLY_AWAITS_ROWS, SLOT_IDLE},
    {&slot_states, SLOT_REPLY_YIELDED, SLOT_IDLE},

    {&seq_states, SEQ_SUSPENDED, SEQ_SUSPENDED_LEAVES},
    {&seq_states, SEQ_SUSPENDED, SEQ_IDLE},
    {&seq_states, SEQ_SUSPENDED_LEAVES, SEQ_SUSPENDED},
    {&seq_states, SEQ_SUSPENDED_LEAVES, SEQ_IDLE_LEAVES},
    {&seq_states, SEQ_SUSPENDED_LEAVES, SEQ_IDLE},
    {&seq_states, SEQ_SUSPENDED_LEAVES, SEQ_FREE},
    {&seq_states, SEQ_SPENT, SEQ_RUNNING},
    {&seq_states, SEQ_SPENT, SEQ_SPENT_LEAVES},
    {&seq_states, SEQ_SPENT, SEQ_FREE},
    {&seq_states, SEQ_SPENT_LEAVES, SEQ_SPENT},
    {&seq_states, SEQ_SPENT_LEAVES, SEQ_FREE},
};

#define N_RARE (sizeof rare_transitions / sizeof *rare_transitions)

/* Its index among the n; n: it is not among them. */
static inline size_t transition_find(const struct transition *t, const struct transition *among, size_t n)
{
    size_t i = 0;
    while (i < n && (among[i].table != t->table || among[i].from != t->from || among[i].to != t->to)) i++;
    return i;
}

static inline bool transition_is_rare(const struct transition *t)
{
    return transition_find(t, rare_transitions, N_RARE) < N_RARE;
}

/* Calls `look` with each transition that a table allows, and how often it was made in this process. */
static inline void each_transition(const struct state_table *table,
                                   void (*look)(const struct transition *t, uint64_t n))
{
    for (int from = 0; from < (int)table->n; from++)
        for (int to = 0; to < (int)table->n; to++)
            if (state_may_follow(table, from, to))
                look(&(struct transition){table, from, to}, state_transitions(table, from, to));
}

static inline void print_transition(const char *what, const struct transition *t, uint64_t n)
{
    print_message("%s: %s: %s -> %s (%" PRIu64 " times)\n", what, t->table->of, t->table->rows[t->from].name,
                  t->table->rows[t->to].name, n);
}

#endif
