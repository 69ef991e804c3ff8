/* The plan of one tick: one batch token for every slot that generates, then chunks of prompts, shared out in turn so
 * that no prompt starves another (chunked prefill). A pure function of what the slots need, so that it can be printed
 * and tested by itself. */
#ifndef ENGINE_PLAN_H
#define ENGINE_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In deterministic mode prompts are computed in chunks of exactly so many positions, whatever was cached and whoever
 * else is there, so that every run computes the same. 64 tokens reach 95 % of the prefill speed of large batches. */
#define PREFILL_CHUNK 64

/* What a slot must compute before its next token can be sampled: positions [from, to). */
struct plan_need {
    int32_t from, to; /* equal: the slot is idle */
    bool generating;  /* its reply is being streamed and it needs one batch token */
    size_t group;     /* slots with different adapters are in different groups, and never in the same call */
};

struct plan_limits {
    int32_t n_batch;        /* tokens of a decode call at most */
    int32_t budget;         /* prompt tokens of a tick at most */
    bool deterministic;     /* whole chunks only */
    bool one_slot_per_call; /* one slot per decode call */
    size_t turn;            /* the slot whose prompt comes first */
};

/* The tokens of one slot in one decode call: positions [from, to). */
struct plan_share {
    size_t slot;
    int32_t from, to;
};

/* The decode calls of a tick, one after the other: call i has the shares [calls[i], calls[i + 1]). */
struct plan {
    struct plan_share *shares; /* room for 2 x n_slots: the second half is scratch space of plan_make() */
    size_t n_shares;
    size_t *calls; /* room for n_slots + 1 */
    size_t n_calls;
    size_t turn;                       /* the slot whose prompt comes first in the next tick */
    int32_t n_prompt_tokens, n_tokens; /* of prompts; of prompts and replies */
    bool generating;                   /* some slot generates */
};

void plan_init(struct plan *plan, size_t n_slots);
void plan_release(struct plan *plan);
void plan_make(struct plan *plan, const struct plan_need *needs, size_t n_slots, const struct plan_limits *limits);

#endif
