#include "engine/plan.h"

#include "base/memory.h"

#include <stdlib.h>

void plan_init(struct plan *plan, size_t n_slots)
{
    *plan = (struct plan){.shares = mem_alloc(n_slots * sizeof *plan->shares),
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
    plan->rows += to - from;
    if (prompt) plan->prompt_rows += to - from;
}

static bool needs_prompt(const struct plan_need *need)
{
    return need->from < need->to && !need->generating;
}

/* Deterministic: a prompt advances to the end of its piece, whatever else goes on. While somebody's
 * reply is being streamed one prompt does so, else all of them. */
static void share_pieces(struct plan *plan, const struct plan_need *needs, size_t n_slots, size_t turn)
{
    for (size_t i = 0; i < n_slots; i++) {
        size_t slot = (turn + i) % n_slots;
        if (!needs_prompt(&needs[slot])) continue;
        int32_t end = (needs[slot].from / PLAN_PIECE + 1) * PLAN_PIECE;
        add_share(plan, slot, needs[slot].from, end < needs[slot].to ? end : needs[slot].to, true);
        if (plan->generating) return;
    }
}

/* Each prompt in turn takes an equal part of what room is left; what one does not need is left to the next. */
static void share_room(struct plan *plan, const struct plan_need *needs, size_t n_slots, size_t turn, int32_t room)
{
    int32_t prompts = 0;
    for (size_t i = 0; i < n_slots; i++) prompts += needs_prompt(&needs[i]);
    for (size_t i = 0; i < n_slots && room > 0; i++) {
        size_t slot = (turn + i) % n_slots;
        if (!needs_prompt(&needs[slot])) continue;
        int32_t part = room / (prompts > 1 ? prompts : 1);
        if (part < PLAN_PIECE) part = room < PLAN_PIECE ? room : PLAN_PIECE;
        int32_t end = needs[slot].to - needs[slot].from > part ? needs[slot].from + part : needs[slot].to;
        add_share(plan, slot, needs[slot].from, end, true);
        room -= end - needs[slot].from;
        prompts--;
    }
}

static void divide_into_calls(struct plan *plan, bool one_slot_a_call)
{
    plan->n_calls = 0;
    for (size_t i = 0; i < plan->n_shares; i++)
        if (i == 0 || one_slot_a_call) plan->calls[plan->n_calls++] = i;
    plan->calls[plan->n_calls] = plan->n_shares;
}

void plan_make(struct plan *plan, const struct plan_need *needs, size_t n_slots, const struct plan_limits *limits)
{
    plan->n_shares = 0;
    plan->rows = plan->prompt_rows = 0;
    plan->generating = false;
    for (size_t slot = 0; slot < n_slots; slot++) {
        if (!needs[slot].generating) continue;
        plan->generating = true;
        add_share(plan, slot, needs[slot].from, needs[slot].to, false);
    }
    if (limits->deterministic) {
        share_pieces(plan, needs, n_slots, limits->turn);
    } else {
        int32_t room = limits->n_batch - plan->rows;
        if (plan->generating && limits->budget < room) room = limits->budget;
        share_room(plan, needs, n_slots, limits->turn, room);
    }
    divide_into_calls(plan, limits->apart);
}
