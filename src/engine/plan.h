/* The plan of one tick. Every slot that generates has one batch token, with its draft. Then come chunks of prompts,
 * shared out in turn so that no prompt starves another (chunked prefill). It is the plan of one set of adapters, since
 * a decode call runs under one: adapter_turns.h says which. A pure function of what the slots need, so that it can be
 * printed and tested by itself. */
#ifndef ENGINE_PLAN_H
#define ENGINE_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In deterministic mode prompts are computed in chunks of exactly so many positions, whatever was cached and whoever
 * else is there, so that every run computes the same. 64 tokens reach 95 % of the prefill speed of large batches. */
#define PREFILL_CHUNK 64

/* The positions [from, to) that a slot must compute before its next token can be sampled. */
struct plan_need {
    int32_t from, to; /* equal: the slot is idle */
    bool generating;  /* its reply is being streamed and it needs one batch token, or a few where drafts were wrong */
    bool rows;        /* they are rows of a medium, for which llama.cpp has decode calls of their own */
    bool at_once;     /* rows that see each other: in one decode call, however many they are */
    bool scored;      /* the logits of every token are wanted: score.c */
    int32_t drafted;  /* generating: so many drafted tokens follow the last one: draft.h */
    size_t set;       /* of adapters, that the slot is computed under */
};

struct plan_limits {
    size_t set;             /* whose slots are computed; the others wait */
    int32_t n_batch;        /* tokens of a decode call at most */
    int32_t budget;         /* prompt tokens of a tick at most; 0: replies alone */
    int32_t scored;         /* of them, those of scored prompts at most, all together; whole chunks have more */
    bool streaming;         /* some reply is being streamed, under whichever set */
    bool deterministic;     /* whole chunks only */
    bool one_slot_per_call; /* one slot per decode call */
    size_t first;           /* the slot whose prompt comes first */
};

/* The tokens of one slot in one decode call: positions [from, to), and as many drafted ones behind them. */
struct plan_share {
    size_t slot;
    int32_t from, to, drafted;
};

/* The batch tokens of a share. */
static inline int32_t plan_rows(const struct plan_share *share)
{
    return share->to - share->from + share->drafted;
}

/* The decode calls of a tick, one after the other: call i has the shares [calls[i], calls[i + 1]). Those of rows come
 * last. */
struct plan {
    struct plan_share *shares; /* room for n_slots */
    size_t n_shares;
    size_t *calls; /* room for n_slots + 1 */
    size_t n_calls;
    size_t first;                                 /* the slot whose prompt comes first in the set's next tick */
    int32_t n_prompt_tokens, n_drafted, n_tokens; /* of prompts; of replies beyond one each, for their drafts; all */
};

void plan_init(struct plan *plan, size_t n_slots);
void plan_release(struct plan *plan);
void plan_make(struct plan *plan, const struct plan_need *needs, size_t n_slots, const struct plan_limits *limits);

#endif
