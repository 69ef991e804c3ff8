/* The states of a slot, of a sequence of cells and of a job, by name, and which may follow which.
 *
 * Each of the three has one state at a time, and one function that changes it: slot_enter(), seq_enter(), job_enter().
 * states.c has the tables of transitions; any other one ends a build with assertions. invariants.c has the invariants
 * of each state. docs/design.md (slots) and docs/design/engine.md
 * (sequences, jobs) have the tables as pictures, and a test compares them. */
#ifndef ENGINE_STATES_H
#define ENGINE_STATES_H

#include "base/buf.h"
#include "hearth.h"

#include <stdint.h>

/* A slot: its request does this, or waits for it. The public state, in brackets, follows from it. */
enum slot_state {
    SLOT_IDLE, /* [idle] it has no request */

    /* [pending] Its request has no sequence yet. */
    SLOT_AWAITS_SEQ,    /* a sequence is to become free; the reuse is planned anew then */
    SLOT_AWAITS_PREFIX, /* another slot computes the prefix that it will share */
    SLOT_AWAITS_LOAD,   /* what it reuses found no room in the cells; an eviction is to make some */

    /* [prefill] It computes on a sequence, and has no token of its reply yet. */
    SLOT_FETCHES,             /* its first cells come from the store */
    SLOT_FETCH_AWAITS_ROOM,   /* likewise, and the next of them found no room in the cells */
    SLOT_PREFILLS,            /* it has a share in the ticks; only here and in SLOT_GENERATES it has */
    SLOT_PREFILL_AWAITS_ROOM, /* its next tokens found no room in the cells */
    SLOT_PREFILL_AWAITS_ROWS, /* the rows of its next medium are being encoded */
    SLOT_PREFILL_YIELDED,     /* it gave its cells to other slots, and begins again when some request ends */

    /* [generate] It has tokens of its reply. Where its cells were lost, it computes them anew. */
    SLOT_GENERATES,
    SLOT_REPLY_AWAITS_ROWS,
    SLOT_REPLY_YIELDED,
    SLOT_STATES
};

/* A sequence of cells, by the claim on it. One that leaves is being evicted, which waits until its cells are stored; it
 * keeps the claim that it had until then. */
enum seq_state {
    SEQ_FREE,    /* it has no cells */
    SEQ_RUNNING, /* a slot computes on it */
    SEQ_IDLE,    /* resident, for requests that begin alike */
    SEQ_IDLE_LEAVES,
    SEQ_SUSPENDED, /* a suspended request resumes on it */
    SEQ_SUSPENDED_LEAVES,
    SEQ_SPENT, /* its request has ended; it keeps its cells only until a system prompt is copied out of them */
    SEQ_SPENT_LEAVES,
    SEQ_STATES
};

/* A job, by its owner. Admission changes the three states of its own under its mutex. */
enum job_state {
    JOB_OUTSIDE,   /* with whoever made it, or with a thread that prepares it */
    JOB_WAITING,   /* in admission: for a permit */
    JOB_POSTPONED, /* in admission: for something outside, or a deadline */
    JOB_DECIDED,   /* in admission: for the next thread that asks */
    JOB_SUBMITTED, /* in the engine's mailbox */
    JOB_QUEUED,    /* in the engine: for a slot; it has not begun */
    JOB_RUNNING,   /* in a slot */
    JOB_SUSPENDED, /* in the engine: for a slot; it has begun */
    JOB_ENDED,     /* its last event was sent */
    JOB_STATES
};

/* A table of transitions. */
struct state_row {
    const char *name;
    uint32_t next; /* a bit for each state that may follow */
};

struct state_table {
    const char *of; /* whose states they are */
    const struct state_row *rows;
    size_t n;
};

extern const struct state_table slot_states, seq_states, job_states;

bool state_may_follow(const struct state_table *table, int from, int to);

/* The table as a Mermaid state diagram. */
void state_table_draw(const struct state_table *table, struct buf *out);

struct slot;
struct seq;
struct job;

/* Change the state, to one that may follow. The engine's thread; jobs: their owner. */
void slot_enter(struct slot *slot, enum slot_state state);
void seq_enter(struct seq *seq, enum seq_state state);
void job_enter(struct job *job, enum job_state state);

/* How often the transition was made in this process: for tests, in builds with assertions; else 0. */
uint64_t state_transitions(const struct state_table *table, int from, int to);

/* ---- What follows from a state ---- */

static inline hearth_slot_state slot_state_shown(enum slot_state state)
{
    if (state == SLOT_IDLE) return HEARTH_SLOT_IDLE;
    if (state <= SLOT_AWAITS_LOAD) return HEARTH_SLOT_PENDING;
    return state <= SLOT_PREFILL_YIELDED ? HEARTH_SLOT_PREFILL : HEARTH_SLOT_GENERATE;
}

/* In the order of the enum each claim is followed by its leaving twin. Asked of every sequence in every round. */
static inline bool seq_state_leaves(enum seq_state state)
{
    return state > SEQ_RUNNING && (state & 1) != 0;
}

/* The state with the same claim that leaves, or does not. */
static inline enum seq_state seq_state_leaving(enum seq_state state)
{
    return seq_state_leaves(state) ? state : (enum seq_state)(state + 1);
}

static inline enum seq_state seq_state_staying(enum seq_state state)
{
    return seq_state_leaves(state) ? (enum seq_state)(state - 1) : state;
}

#endif
