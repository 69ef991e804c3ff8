/* The tables of transitions, and the only functions that change a state: see states.h. */
#include "engine/states.h"

#include "engine/core.h"

#include <assert.h>

static_assert(SEQ_RUNNING % 2 == 1 && SEQ_IDLE_LEAVES == SEQ_IDLE + 1 && SEQ_SUSPENDED_LEAVES == SEQ_SUSPENDED + 1 &&
                  SEQ_SPENT_LEAVES == SEQ_SPENT + 1 && SEQ_IDLE == SEQ_RUNNING + 1,
              "seq_state_leaves() and its like count on the order");

#define TO(state) (UINT32_C(1) << (state))

/* A request takes a slot as one that needs a sequence; it is planned again from there each time that what it waited
 * for may have come. It ends in any state but those of a fetch, which is stopped first. */
static const struct state_row slot_rows[SLOT_STATES] = {
    [SLOT_IDLE] = {"idle", TO(SLOT_AWAITS_SEQ)},
    [SLOT_AWAITS_SEQ] = {"awaits sequence",
                         TO(SLOT_AWAITS_PREFIX) | TO(SLOT_AWAITS_LOAD) | TO(SLOT_PREFILLS) | TO(SLOT_IDLE)},
    [SLOT_AWAITS_PREFIX] = {"awaits prefix", TO(SLOT_AWAITS_SEQ) | TO(SLOT_IDLE)},
    [SLOT_AWAITS_LOAD] = {"awaits load", TO(SLOT_AWAITS_SEQ) | TO(SLOT_IDLE)},
    [SLOT_FETCHES] = {"fetches", TO(SLOT_FETCH_AWAITS_ROOM) | TO(SLOT_PREFILLS)},
    [SLOT_FETCH_AWAITS_ROOM] = {"fetch awaits room", TO(SLOT_FETCHES) | TO(SLOT_PREFILLS)},
    [SLOT_PREFILLS] = {"prefills", TO(SLOT_FETCHES) | TO(SLOT_PREFILL_AWAITS_ROOM) | TO(SLOT_PREFILL_AWAITS_ROWS) |
                                       TO(SLOT_PREFILL_YIELDED) | TO(SLOT_GENERATES) | TO(SLOT_IDLE)},
    [SLOT_PREFILL_AWAITS_ROOM] = {"prefill awaits room", TO(SLOT_PREFILLS) | TO(SLOT_IDLE)},
    [SLOT_PREFILL_AWAITS_ROWS] = {"prefill awaits rows", TO(SLOT_PREFILLS) | TO(SLOT_PREFILL_YIELDED) | TO(SLOT_IDLE)},
    [SLOT_PREFILL_YIELDED] = {"prefill yielded", TO(SLOT_PREFILLS) | TO(SLOT_IDLE)},
    [SLOT_GENERATES] = {"generates", TO(SLOT_REPLY_AWAITS_ROWS) | TO(SLOT_REPLY_YIELDED) | TO(SLOT_IDLE)},
    [SLOT_REPLY_AWAITS_ROWS] = {"reply awaits rows", TO(SLOT_GENERATES) | TO(SLOT_IDLE)},
    [SLOT_REPLY_YIELDED] = {"reply yielded", TO(SLOT_GENERATES) | TO(SLOT_IDLE)},
};

/* A claim ends where the cells are cut: a suspended request cannot resume on a part of them. */
static const struct state_row seq_rows[SEQ_STATES] = {
    [SEQ_FREE] = {"free", TO(SEQ_RUNNING)},
    [SEQ_RUNNING] = {"running", TO(SEQ_IDLE) | TO(SEQ_FREE)},
    [SEQ_IDLE] = {"idle", TO(SEQ_RUNNING) | TO(SEQ_SUSPENDED) | TO(SEQ_SPENT) | TO(SEQ_IDLE_LEAVES) | TO(SEQ_FREE)},
    [SEQ_IDLE_LEAVES] = {"idle, leaves", TO(SEQ_IDLE) | TO(SEQ_FREE)},
    [SEQ_SUSPENDED] = {"suspended", TO(SEQ_RUNNING) | TO(SEQ_SUSPENDED_LEAVES) | TO(SEQ_IDLE) | TO(SEQ_FREE)},
    [SEQ_SUSPENDED_LEAVES] = {"suspended, leaves",
                              TO(SEQ_SUSPENDED) | TO(SEQ_IDLE_LEAVES) | TO(SEQ_IDLE) | TO(SEQ_FREE)},
    [SEQ_SPENT] = {"spent", TO(SEQ_RUNNING) | TO(SEQ_SPENT_LEAVES) | TO(SEQ_FREE)},
    [SEQ_SPENT_LEAVES] = {"spent, leaves", TO(SEQ_SPENT) | TO(SEQ_FREE)},
};

/* From admission a job goes back to a thread outside, which submits it to the engine or ends it. A lookup comes back
 * from there without having been queued. */
static const struct state_row job_rows[JOB_STATES] = {
    [JOB_OUTSIDE] = {"outside",
                     TO(JOB_WAITING) | TO(JOB_POSTPONED) | TO(JOB_DECIDED) | TO(JOB_SUBMITTED) | TO(JOB_ENDED)},
    [JOB_WAITING] = {"waiting", TO(JOB_DECIDED) | TO(JOB_OUTSIDE)},
    [JOB_POSTPONED] = {"postponed", TO(JOB_DECIDED) | TO(JOB_OUTSIDE)},
    [JOB_DECIDED] = {"decided", TO(JOB_OUTSIDE)},
    [JOB_SUBMITTED] = {"submitted", TO(JOB_QUEUED) | TO(JOB_OUTSIDE) | TO(JOB_ENDED)},
    [JOB_QUEUED] = {"queued", TO(JOB_RUNNING) | TO(JOB_ENDED)},
    [JOB_RUNNING] = {"running", TO(JOB_SUSPENDED) | TO(JOB_ENDED)},
    [JOB_SUSPENDED] = {"suspended", TO(JOB_RUNNING) | TO(JOB_ENDED)},
    [JOB_ENDED] = {"ended", 0},
};

const struct state_table slot_states = {"slot", slot_rows, SLOT_STATES};
const struct state_table seq_states = {"sequence", seq_rows, SEQ_STATES};
const struct state_table job_states = {"job", job_rows, JOB_STATES};

bool state_may_follow(const struct state_table *table, int from, int to)
{
    return table->rows[from].next >> to & 1;
}

void state_table_draw(const struct state_table *table, struct buf *out)
{
    buf_puts(out, "stateDiagram-v2\n");
    for (size_t i = 0; i < table->n; i++) buf_printf(out, "    s%zu: %s\n", i, table->rows[i].name);
    for (size_t from = 0; from < table->n; from++)
        for (size_t to = 0; to < table->n; to++)
            if (state_may_follow(table, (int)from, (int)to)) buf_printf(out, "    s%zu --> s%zu\n", from, to);
}

/* ---- Changing a state ---- */

#ifndef NDEBUG
/* Made by several engines' threads. */
static _Atomic uint64_t made[3][SLOT_STATES][SLOT_STATES];

static size_t index_of(const struct state_table *table)
{
    return table == &slot_states ? 0 : table == &seq_states ? 1 : 2;
}

static void note_transition(const struct state_table *table, int from, int to)
{
    assert(state_may_follow(table, from, to));
    atomic_fetch_add_explicit(&made[index_of(table)][from][to], 1, memory_order_relaxed);
}
#else
static void note_transition(const struct state_table *table, int from, int to)
{
    (void)table, (void)from, (void)to;
}
#endif

uint64_t state_transitions(const struct state_table *table, int from, int to)
{
#ifndef NDEBUG
    return atomic_load(&made[index_of(table)][from][to]);
#else
    (void)table, (void)from, (void)to;
    return 0;
#endif
}

void slot_enter(struct slot *slot, enum slot_state state)
{
    note_transition(&slot_states, (int)slot->state, (int)state);
    slot->state = state;
}

void seq_enter(struct seq *seq, enum seq_state state)
{
    note_transition(&seq_states, (int)seq->state, (int)state);
    seq->state = state;
}

void job_enter(struct job *job, enum job_state state)
{
    enum job_state from = atomic_exchange_explicit(&job->state, state, memory_order_relaxed);
    note_transition(&job_states, (int)from, (int)state);
}
