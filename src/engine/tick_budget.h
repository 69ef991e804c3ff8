/* How many prompt tokens a tick may compute while a reply is being streamed, so that the inter-token gap stays below
 * its limit. Learned from measured ticks, as a fixed cost and a cost per token. Both differ by a factor of a thousand
 * between machines and models, and grow with the depth of the context. Pure: no clock of its own; the engine's thread
 * feeds it. */
#ifndef ENGINE_TICK_BUDGET_H
#define ENGINE_TICK_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

/* With flash attention on a CPU llama.cpp computes attention in tiles of so many batch tokens, and pads the last one.
 * In a call of less than a tile a token costs more than twice as much once the context is some thousand tokens deep.
 * One token more than a tile costs as much as two tiles. Prompts and replies together should therefore fill whole
 * tiles. */
#define ATTENTION_TILE 64

/* Weights that lie in the machine's memory are copied to a device for a call of many tokens, whatever their number: a
 * cost of the call. Smaller calls use them where they are. A line through what such calls took has it. Sums of the last
 * ones: */
struct tick_copies {
    double n, tokens, ns, tokens_squared, product;
};

struct tick_budget {
    double max_ns;      /* nanoseconds that a tick is to take at most, somewhat less than the token gap */
    int32_t first;      /* tokens to begin with, before anything was measured */
    double call_ns;     /* nanoseconds of a tick without prompt tokens; 0: not known yet */
    double token_ns[2]; /* nanoseconds that a prompt token adds: in a tick of less than a tile; of a tile and more; 0:
                           not known yet */
    /* Tokens of a call from which weights are copied for it, 0: never; and for how many they are copied once. Set after
     * tick_budget_init(). */
    int32_t copies_from, copied_tokens;
    struct tick_copies copies;
    double copy_ns; /* nanoseconds that it takes, once it was seen */
    int32_t last;   /* tokens of the last budget */
    bool was_slow;  /* the last tick took longer than expected */
};

/* Takes another measurement into account. */
static inline void engine_blend(double *estimate, double value)
{
    *estimate = *estimate > 0 ? (*estimate + value) / 2 : value;
}

void tick_budget_init(struct tick_budget *tick_budget, int64_t max_token_gap_ns, int32_t first_tokens);

/* The room of a tick: */
struct tick_room {
    double ns;            /* nanoseconds that it may take, tick_budget.max_ns at most */
    int32_t reply_tokens; /* that it has beside prompt tokens */
    int32_t most;         /* prompt tokens at most */
};

/* How many prompt tokens the next tick may have; at least 1. */
int32_t tick_budget_next(struct tick_budget *tick_budget, const struct tick_room *room);

/* Nanoseconds that a prompt token takes in a tick with many; 0: not known yet. */
double tick_budget_token_ns(const struct tick_budget *tick_budget);

/* Notes that a tick has taken `ns` nanoseconds. */
struct tick_cost {
    int32_t prompt_tokens, reply_tokens;
    int32_t allowed; /* prompt tokens that it was allowed */
};
void tick_budget_observe(struct tick_budget *tick_budget, const struct tick_cost *tick, int64_t ns);

#endif
