/* Which set of adapters a tick computes, and for how long. A decode call runs under one set, and where the set is
 * another than that of the call before, llama.cpp builds its graphs and reserves its buffers anew. So the loaded set
 * keeps its turn for several ticks, until switching takes a small part of the time. It keeps it no longer than the
 * inter-token gaps of the other sets' streams allow. Then the set comes that has waited longest, so that none starves.
 *
 * A switch and a tick of each set are timed: the two differ by a factor of a thousand between machines and models.
 * Pure: no clock of its own; the engine's thread owns and feeds it. */
#ifndef ENGINE_ADAPTER_TURNS_H
#define ENGINE_ADAPTER_TURNS_H

#include "engine/plan.h"

/* The cost of a switch is the median of so many measurements: a single slow tick is the machine's. */
#define SWITCHES_MEASURED 3

/* A set of adapters that slots are computed under. */
struct adapter_set {
    double *scales; /* one for each adapter; NULL: none is applied */
    int32_t slots;  /* that have it */
    size_t first;   /* the slot whose prompt comes first in its next tick */

    int32_t replies, prompts; /* slots with a token of a reply, or with a prompt, to be computed next */
    bool has_work;            /* there are such slots */
    int64_t waits_since;      /* the end of its last tick; if it had nothing to compute then, when it first had */

    /* Nanoseconds that a tick of its replies alone takes; 0: not known yet. */
    double tick_ns, first_ns; /* without a switch; the first of a turn, with it */
    int32_t tick_tokens;      /* that the one without had */
};

struct adapter_turns {
    struct adapter_set *sets;
    size_t n_sets, n_adapters;
    double max_ns; /* nanoseconds that a stream is to wait for its next token at most */

    size_t current;       /* the set whose turn it is */
    bool switches;        /* the next tick has to switch to it */
    int64_t began;        /* when its turn began; or when other sets began to wait for its end, if that was later */
    int32_t ticks;        /* since then */
    double last_ns;       /* nanoseconds that the last of them took without a switch */
    bool prompts_are_due; /* the last of them had the set's replies alone, although it has prompts */

    double measured_ns[SWITCHES_MEASURED]; /* the last measurements of a switch, in nanoseconds */
    int32_t n_measured;                    /* all of them */
    double switch_ns;                      /* their median; 0: not known yet */
};

void adapter_turns_init(struct adapter_turns *turns, size_t n_slots, size_t n_adapters, double max_ns);
void adapter_turns_release(struct adapter_turns *turns);

/* The index of the set with these scales (NULL: none is applied), which a slot has from now on, until it leaves. */
size_t adapter_turns_join(struct adapter_turns *turns, const double *scales);
void adapter_turns_leave(struct adapter_turns *turns, size_t set);

/* The turn that the next tick belongs to. */
struct adapter_turn {
    size_t set;
    bool replies_only; /* its streams have waited for other sets' turns: their tokens come before any prompt */
    double ns;         /* nanoseconds that the tick may take */
};
struct adapter_turn adapter_turns_next(struct adapter_turns *turns, const struct plan_need *needs, size_t n_slots,
                                       int64_t now);

/* Nanoseconds that the next tick takes for a switch; 0: it needs none, or that is not known yet. */
double adapter_turns_switch_ns(const struct adapter_turns *turns);

/* Notes a tick: of so many tokens, which has taken `ns` nanoseconds, with the switch, and has ended now. */
struct adapter_tick {
    int32_t reply_tokens, prompt_tokens;
    int64_t ns, now;
};
void adapter_turns_observe(struct adapter_turns *turns, const struct adapter_tick *tick);

#endif
