/* The plan of one tick, continuous batching with chunked prefill: see plan.h. */
#include "engine/plan.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

void plan_init(struct plan *plan, size_t n_slots)
{
    *plan = (struct plan){.shares = mem_alloc(2 * n_slots * sizeof *plan->shares),
                          .calls = mem_alloc((n_slots + 1) * sizeof *plan->calls)};
}

void plan_release(struct plan *plan)
{
    free(plan->shares);
    free(plan->calls);
    *plan = (struct plan){0};
}

static void add_share(struct plan *plan, size_t slot, int32_t from, int32_t to, bool prompt)
{
    plan->shares[plan->n_shares++] = (struct plan_share){.slot = slot, .from = from, .to = to};
    plan->n_tokens += to - from;
    if (prompt) plan->n_prompt_tokens += to - from;
}

static bool needs_prompt(const struct plan_need *need)
{
    return need->from < need->to && !need->generating;
}

/* Deterministic: a prompt advances to the end of its chunk, whatever else is computed. While a reply is being streamed
 * one prompt does so, else all of them. */
static void share_chunks(struct plan *plan, const struct plan_need *needs, size_t n_slots, size_t turn)
{
    for (size_t i = 0; i < n_slots; i++) {
        size_t slot = (turn + i) % n_slots;
        if (!needs_prompt(&needs[slot])) continue;
        int32_t end = (needs[slot].from / PREFILL_CHUNK + 1) * PREFILL_CHUNK;
        add_share(plan, slot, needs[slot].from, end < needs[slot].to ? end : needs[slot].to, true);
        if (plan->generating) return;
    }
}

/* Each prompt in turn gets an equal part of the tokens left; what one does not need is left to the next. */
static void share_room(struct plan *plan, const struct plan_need *needs, size_t n_slots, size_t turn, int32_t room)
{
    int32_t prompts = 0;
    for (size_t i = 0; i < n_slots; i++) prompts += needs_prompt(&needs[i]);
    for (size_t i = 0; i < n_slots && room > 0; i++) {
        size_t slot = (turn + i) % n_slots;
        if (!needs_prompt(&needs[slot])) continue;
        int32_t part = room / (prompts > 1 ? prompts : 1);
        if (part < PREFILL_CHUNK) part = room < PREFILL_CHUNK ? room : PREFILL_CHUNK;
        int32_t end = needs[slot].to - needs[slot].from > part ? needs[slot].from + part : needs[slot].to;
        add_share(plan, slot, needs[slot].from, end, true);
        room -= end - needs[slot].from;
        prompts--;
    }
}

/* The slot after the one whose prompt came first this time. */
static size_t next_turn(const struct plan *plan, const struct plan_need *needs, size_t n_slots, size_t turn)
{
    for (size_t i = 0; i < plan->n_shares; i++)
        if (!needs[plan->shares[i].slot].generating) return (plan->shares[i].slot + 1) % n_slots;
    return turn;
}

static bool is_before(const struct plan *plan, const struct plan_need *needs, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (needs[plan->shares[k].slot].group == needs[plan->shares[i].slot].group) return true;
    return false;
}

/* Puts the shares of a group side by side; groups and shares keep the order in which they came. */
static void sort_into_groups(struct plan *plan, const struct plan_need *needs)
{
    size_t n = plan->n_shares, n_sorted = 0;
    struct plan_share *sorted = plan->shares + n;
    for (size_t i = 0; i < n; i++) {
        if (is_before(plan, needs, i)) continue;
        for (size_t k = i; k < n; k++)
            if (needs[plan->shares[k].slot].group == needs[plan->shares[i].slot].group)
                sorted[n_sorted++] = plan->shares[k];
    }
    memcpy(plan->shares, sorted, n * sizeof *sorted);
}

static void divide_into_calls(struct plan *plan, const struct plan_need *needs, bool one_slot_per_call)
{
    plan->n_calls = 0;
    for (size_t i = 0; i < plan->n_shares; i++) {
        bool begins =
            i == 0 || one_slot_per_call || needs[plan->shares[i].slot].group != needs[plan->shares[i - 1].slot].group;
        if (begins) plan->calls[plan->n_calls++] = i;
    }
    plan->calls[plan->n_calls] = plan->n_shares;
}

void plan_make(struct plan *plan, const struct plan_need *needs, size_t n_slots, const struct plan_limits *limits)
{
    plan->n_shares = 0;
    plan->n_tokens = plan->n_prompt_tokens = 0;
    plan->generating = false;
    for (size_t slot = 0; slot < n_slots; slot++) {
        if (!needs[slot].generating) continue;
        plan->generating = true;
        add_share(plan, slot, needs[slot].from, needs[slot].to, false);
    }
    if (limits->deterministic) {
        share_chunks(plan, needs, n_slots, limits->turn);
    } else {
        int32_t room = limits->n_batch - plan->n_tokens;
        if (limits->budget < room) room = limits->budget;
        share_room(plan, needs, n_slots, limits->turn, room);
    }
    plan->turn = next_turn(plan, needs, n_slots, limits->turn);
    sort_into_groups(plan, needs);
    divide_into_calls(plan, needs, limits->one_slot_per_call);
}
