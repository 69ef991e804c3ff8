/* How many prompt rows a tick may take while somebody's reply is being streamed, so that the tick ends before the
 * max_ns between two tokens grows too long. Learned from the ticks themselves, as a fixed cost and a cost for each row:
 * both differ by a factor of a thousand between machines and models, and grow with the depth of the context. */
#ifndef ENGINE_TICK_BUDGET_H
#define ENGINE_TICK_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

/* With flash attention on a CPU llama.cpp computes attention in tiles of so many rows, and pads the last one. In a call
 * of less than a tile a row costs more than twice as much once the context is some thousand tokens deep; one row more
 * than a tile costs as much as two. Prompts and replies together should therefore fill whole tiles. */
#define ATTENTION_TILE 64

struct tick_budget {
    double max_ns;  /* nanoseconds that a tick may take */
    int32_t first;  /* rows to begin with, before anything was measured */
    double call_ns; /* a tick without prompt rows; 0: not known yet */
    double
        token_ns[2]; /* what a prompt row adds: in a tick of less than a tile, of a tile and more; 0: not known yet */
    int32_t last;    /* rows of the last budget */
    bool was_slow;   /* the last tick took longer than it should have */
};

void tick_budget_init(struct tick_budget *tick_budget, int64_t max_token_gap_ns, int32_t first_tokens);

/* Prompt rows that the next tick may have, beside so many rows of replies; at least 1, at most `most`. */
int32_t tick_budget_next(struct tick_budget *tick_budget, int32_t reply_tokens, int32_t most);

/* What a prompt row takes in a tick that has many, in nanoseconds; 0: not known yet. */
double tick_budget_token_ns(const struct tick_budget *tick_budget);

/* A tick has taken `ns`. */
struct tick_cost {
    int32_t prompt_tokens, reply_tokens;
    int32_t allowed; /* prompt rows that it might have had */
};
void tick_budget_observe(struct tick_budget *tick_budget, const struct tick_cost *tick, int64_t ns);

#endif
