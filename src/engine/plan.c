/* The plan of one tick, continuous batching with chunked prefill: see plan.h. */
#include "engine/plan.h"

#include "base/memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

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

static void add_share(struct plan *plan, size_t slot, int32_t from, int32_t to)
{
    plan->shares[plan->n_shares++] = (struct plan_share){.slot = slot, .from = from, .to = to};
    plan->n_tokens += to - from;
    plan->n_prompt_tokens += to - from;
}

/* Each has one batch token, what it has to compute again as far as there is room, and its draft: draft_plan() leaves
 * that room. */
static void share_replies(struct plan *plan, const struct plan_need *needs, size_t n_slots,
                          const struct plan_limits *limits)
{
    int32_t room = limits->n_batch;
    for (size_t slot = 0; slot < n_slots; slot++) room -= needs[slot].generating && needs[slot].set == limits->set;
    for (size_t slot = 0; slot < n_slots; slot++) {
        const struct plan_need *need = &needs[slot];
        if (!need->generating || need->set != limits->set) continue;
        int32_t again = need->to - need->from - 1;
        if (again > room) again = room;
        struct plan_share share = {
            .slot = slot, .from = need->from, .to = need->from + 1 + again, .drafted = need->drafted};
        plan->shares[plan->n_shares++] = share;
        room -= again + share.drafted;
        plan->n_tokens += plan_rows(&share);
        plan->n_drafted += plan_rows(&share) - 1;
    }
    assert(plan->n_tokens <= limits->n_batch);
}

/* The slot has a prompt to compute in this tick. */
static bool needs_prompt(const struct plan_need *need, const struct plan_limits *limits)
{
    return need->set == limits->set && need->from < need->to && !need->generating;
}

/* Deterministic: a prompt advances to the end of its chunk, whatever else is computed. While a reply is being streamed
 * one prompt does so, else all of them. */
static void share_chunks(struct plan *plan, const struct plan_need *needs, size_t n_slots,
                         const struct plan_limits *limits)
{
    if (limits->budget == 0) return;
    for (size_t i = 0; i < n_slots; i++) {
        size_t slot = (limits->first + i) % n_slots;
        if (!needs_prompt(&needs[slot], limits)) continue;
        int32_t end = (needs[slot].from / PREFILL_CHUNK + 1) * PREFILL_CHUNK;
        if (end > needs[slot].to || needs[slot].at_once) end = needs[slot].to;
        add_share(plan, slot, needs[slot].from, end);
        if (limits->streaming) return;
    }
}

/* Each prompt in turn gets an equal part of the tokens left, and leaves to the next those that it does not need. Rows
 * that need more at once wait until their prompt comes first, and then have the tick. So do scored prompts, once those
 * before them have all that may be scored. */
static void share_room(struct plan *plan, const struct plan_need *needs, size_t n_slots,
                       const struct plan_limits *limits)
{
    int32_t room = limits->n_batch - plan->n_tokens, prompts = 0, scored = limits->scored;
    if (limits->budget < room) room = limits->budget;
    for (size_t i = 0; i < n_slots; i++) prompts += needs_prompt(&needs[i], limits);
    for (size_t i = 0; i < n_slots && room > 0; i++) {
        size_t slot = (limits->first + i) % n_slots;
        if (!needs_prompt(&needs[slot], limits)) continue;
        int32_t part = room / (prompts > 1 ? prompts : 1);
        if (part < PREFILL_CHUNK) part = room < PREFILL_CHUNK ? room : PREFILL_CHUNK;
        if (needs[slot].scored && part > scored) part = scored;
        if (part == 0) continue;
        int32_t end = needs[slot].to - needs[slot].from > part ? needs[slot].from + part : needs[slot].to;
        if (needs[slot].at_once && end < needs[slot].to) {
            if (plan->n_prompt_tokens > 0) continue;
            end = needs[slot].to;
        }
        add_share(plan, slot, needs[slot].from, end);
        room -= end - needs[slot].from;
        if (needs[slot].scored) scored -= end - needs[slot].from;
        prompts--;
    }
}

void plan_make(struct plan *plan, const struct plan_need *needs, size_t n_slots, const struct plan_limits *limits)
{
    plan->n_shares = 0;
    plan->n_tokens = plan->n_prompt_tokens = plan->n_drafted = 0;
    share_replies(plan, needs, n_slots, limits);
    if (limits->deterministic)
        share_chunks(plan, needs, n_slots, limits);
    else
        share_room(plan, needs, n_slots, limits);
    plan->first = limits->first;
    for (size_t i = plan->n_shares; i-- > 0;) /* after the slot whose prompt came first this time */
        if (!needs[plan->shares[i].slot].generating) plan->first = (plan->shares[i].slot + 1) % n_slots;
    size_t n_text = 0;
    for (size_t i = 0; i < plan->n_shares; i++) { /* moves the shares of rows behind the others, in order otherwise */
        struct plan_share share = plan->shares[i];
        if (needs[share.slot].rows) continue;
        memmove(plan->shares + n_text + 1, plan->shares + n_text, (i - n_text) * sizeof share);
        plan->shares[n_text++] = share;
    }
    plan->n_calls = 0;
    for (size_t i = 0; i < plan->n_shares; i++)
        if (i == 0 || limits->one_slot_per_call || i >= n_text) plan->calls[plan->n_calls++] = i;
    plan->calls[plan->n_calls] = plan->n_shares;
}
