/* Turns of the sets of adapters: see adapter_turns.h. */
#include "engine/adapter_turns.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A turn is long enough once switching takes no more than this part of the time: longer ones would gain next to nothing
 * and make the other sets' streams stutter. */
#define SWITCHING 0.025

/* ---- Sets ---- */

void adapter_turns_init(struct adapter_turns *turns, size_t n_slots, size_t n_adapters, double max_ns)
{
    *turns = (struct adapter_turns){.n_sets = n_slots + 1, /* one that no slot has may be loaded */
                                    .n_adapters = n_adapters,
                                    .max_ns = max_ns};
    turns->sets = mem_alloc(turns->n_sets * sizeof *turns->sets);
}

void adapter_turns_release(struct adapter_turns *turns)
{
    for (size_t i = 0; i < turns->n_sets; i++) free(turns->sets[i].scales);
    free(turns->sets);
    *turns = (struct adapter_turns){0};
}

size_t adapter_turns_join(struct adapter_turns *turns, const double *scales)
{
    size_t i = 0, size = turns->n_adapters * sizeof *scales;
    for (; i < turns->n_sets; i++) {
        const double *known = turns->sets[i].scales;
        if (known == NULL || scales == NULL ? known == scales : memcmp(known, scales, size) == 0) break;
    }
    if (i == turns->n_sets) { /* a set that no slot has, and that is not loaded, becomes another one */
        for (i = 0; turns->sets[i].slots > 0 || i == turns->current;) i++;
        free(turns->sets[i].scales);
        turns->sets[i] = (struct adapter_set){0};
        if (scales != NULL) turns->sets[i].scales = memcpy(mem_alloc(size), scales, size);
    }
    turns->sets[i].slots++;
    return i;
}

void adapter_turns_leave(struct adapter_turns *turns, size_t set)
{
    turns->sets[set].slots--;
}

/* ---- Whose turn it is ---- */

static void count_work(struct adapter_turns *turns, const struct plan_need *needs, size_t n_slots, int64_t now)
{
    for (size_t i = 0; i < turns->n_sets; i++) turns->sets[i].replies = turns->sets[i].prompts = 0;
    for (size_t i = 0; i < n_slots; i++) {
        struct adapter_set *set = &turns->sets[needs[i].set];
        if (needs[i].from == needs[i].to) continue;
        set->replies += needs[i].generating;
        set->prompts += !needs[i].generating;
    }
    for (size_t i = 0; i < turns->n_sets; i++) {
        struct adapter_set *set = &turns->sets[i];
        bool had_work = set->has_work;
        set->has_work = set->replies > 0 || set->prompts > 0;
        if (!had_work || !set->has_work) set->waits_since = now;
    }
}

/* The needs of all sets that have work, added up. */
struct demand {
    int32_t others;           /* sets that have work, beside the one whose turn it is */
    int32_t streams, prompts; /* sets that have replies; prompts */
    size_t longest;           /* of the others, the one that has waited longest */
};

static struct demand demand_of(const struct adapter_turns *turns)
{
    struct demand demand = {.longest = turns->current};
    for (size_t i = 0; i < turns->n_sets; i++) {
        const struct adapter_set *set = &turns->sets[i], *longest = &turns->sets[demand.longest];
        if (!set->has_work) continue;
        demand.streams += set->replies > 0;
        demand.prompts += set->prompts > 0;
        if (i == turns->current) continue;
        demand.others++;
        if (demand.longest == turns->current || set->waits_since < longest->waits_since) demand.longest = i;
    }
    return demand;
}

/* While some set has a prompt, those that have replies alone get one tick a turn: as without adapters, prompts get the
 * time that the inter-token gap leaves. */
static bool holds(const struct adapter_set *set, const struct demand *demand)
{
    return set->has_work && (demand->prompts == 0 || set->prompts > 0);
}

/* Nanoseconds that each turn may take, its switch included, so that no stream waits for more than max_ns. A stream
 * waits for the turns of the other sets that hold, one tick of those that do not, and the first tick of its own. */
static double turn_within_gap(const struct adapter_turns *turns, const struct demand *demand)
{
    if (demand->others == 0 || demand->streams == 0) return INFINITY;
    double room = turns->max_ns, own = 0;
    int32_t holding = 0, waiting = 0;
    for (size_t i = 0; i < turns->n_sets; i++) {
        const struct adapter_set *set = &turns->sets[i];
        bool streams = set->has_work && set->replies > 0;
        if (holds(set, demand)) {
            holding++;
            if (streams && set->first_ns > own) own = set->first_ns;
        } else if (streams) {
            waiting++;
            room -= set->first_ns;
        }
    }
    if (waiting == 0) holding--; /* every stream is of a set that holds, and waits for the other ones' turns alone */
    return (room - own) / holding;
}

/* Whether the set that has the turn keeps it for another tick, although others wait. */
static bool keeps_turn(const struct adapter_turns *turns, const struct demand *demand, int64_t now)
{
    const struct adapter_set *set = &turns->sets[turns->current];
    if (!set->has_work) return false;
    /* Another tick of its turn shows what a switch costs: the first one takes longer by that. */
    bool known = turns->switch_ns > 0 && set->tick_ns > 0;
    bool measures = turns->ticks < 2 && !known && set->replies > 0 && set->prompts == 0;
    if (turns->ticks == 0 || turns->prompts_are_due || measures) return true;
    if (!holds(set, demand)) return false;
    double most = turn_within_gap(turns, demand), enough = turns->switch_ns / SWITCHING;
    if (enough < most) most = enough;
    if (turns->max_ns < most) most = turns->max_ns;
    return (double)(now - turns->began) + turns->last_ns <= most;
}

static void begin_turn(struct adapter_turns *turns, size_t set, int64_t now)
{
    turns->switches = turns->switches || set != turns->current;
    turns->current = set;
    turns->began = now;
    turns->ticks = 0;
    turns->last_ns = 0;
    turns->prompts_are_due = false;
}

struct adapter_turn adapter_turns_next(struct adapter_turns *turns, const struct plan_need *needs, size_t n_slots,
                                       int64_t now)
{
    count_work(turns, needs, n_slots, now);
    struct demand demand = demand_of(turns);
    if (demand.others == 0)
        begin_turn(turns, turns->current, now); /* a turn has no end until others wait for it */
    else if (!keeps_turn(turns, &demand, now))
        begin_turn(turns, demand.longest, now);
    demand = demand_of(turns);
    const struct adapter_set *set = &turns->sets[turns->current];
    struct adapter_turn turn = {.set = turns->current, .ns = turns->max_ns};
    double left = turn_within_gap(turns, &demand) - (double)(now - turns->began) - adapter_turns_switch_ns(turns);
    if (left < turn.ns) turn.ns = left;
    turn.replies_only = demand.others > 0 && turns->switches && set->replies > 0 && set->prompts > 0;
    turns->prompts_are_due = turn.replies_only;
    return turn;
}

/* ---- What it costs ---- */

double adapter_turns_switch_ns(const struct adapter_turns *turns)
{
    return turns->switches ? turns->switch_ns : 0;
}

static void note_switch(struct adapter_turns *turns, double ns)
{
    turns->measured_ns[turns->n_measured++ % SWITCHES_MEASURED] = ns > 1 ? ns : 1;
    double sorted[SWITCHES_MEASURED];
    int n = turns->n_measured < SWITCHES_MEASURED ? turns->n_measured : SWITCHES_MEASURED;
    for (int i = 0; i < n; i++) {
        int k = i;
        for (; k > 0 && sorted[k - 1] > turns->measured_ns[i]; k--) sorted[k] = sorted[k - 1];
        sorted[k] = turns->measured_ns[i];
    }
    turns->switch_ns = sorted[(n - 1) / 2];
}

void adapter_turns_observe(struct adapter_turns *turns, const struct adapter_tick *tick)
{
    struct adapter_set *set = &turns->sets[turns->current];
    double ns = (double)tick->ns;
    bool replies_alone = tick->prompt_tokens == 0 && tick->reply_tokens > 0;
    bool alike = set->tick_ns > 0 && set->tick_tokens == tick->reply_tokens;
    set->waits_since = tick->now;
    turns->ticks++;
    turns->last_ns = ns - adapter_turns_switch_ns(turns);
    if (replies_alone && turns->switches) {
        if (alike) note_switch(turns, ns - set->tick_ns);
        set->first_ns = set->first_ns > 0 ? (set->first_ns + ns) / 2 : ns;
    } else if (replies_alone) {
        set->tick_ns = alike ? (set->tick_ns + ns) / 2 : ns;
        set->tick_tokens = tick->reply_tokens;
    }
    turns->switches = false;
}
