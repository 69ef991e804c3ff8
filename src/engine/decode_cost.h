/* A cost model of decode calls, fitted while the server runs. It has the time of a call by its batch tokens, by the
 * cells that these attend to, and by the idle cells, which are masked for them. On a CPU a masked cell costs its entry
 * of the mask. Some GPUs read it like any other, others skip it: only the clock tells.
 *
 * A weighted linear regression without negative costs. Pure: no clock of its own; the engine's thread feeds it. */
#ifndef ENGINE_DECODE_COST_H
#define ENGINE_DECODE_COST_H

#include <stdint.h>

/* A decode call. */
struct decode_call {
    int32_t n_tokens;
    double attended; /* cells that its tokens attend to, added up over the tokens */
    double used;     /* cells that attention looks over: all up to the highest one in use */
};

/* Each is a cost in nanoseconds. */
enum decode_cost_term {
    COST_CALL,     /* of a call */
    COST_TOKEN,    /* of each batch token */
    COST_ATTENDED, /* of each cell that a token attends to */
    COST_MASKED,   /* of each cell that is masked for a token */
    COST_USED,     /* of each cell in use, once a call */
    COST_TERMS
};

/* The sums of a regression: of the products of terms, and of terms and times. */
struct decode_sums {
    double terms[COST_TERMS][COST_TERMS], times[COST_TERMS];
};

/* Calls of few tokens and of many are summed apart, so that a long reply does not make the model forget prompts. */
struct decode_cost {
    struct decode_sums few, many;
    double ns[COST_TERMS]; /* the costs; all 0 until enough was seen */
    int64_t n_calls;
};

/* Notes that a call took `ns` nanoseconds. */
void decode_cost_observe(struct decode_cost *cost, const struct decode_call *call, int64_t ns);

/* The nanoseconds that so many cells, masked for all its tokens, add to calls with n_tokens batch tokens together. */
double decode_cost_of_idle(const struct decode_cost *cost, double cells, double n_calls, double n_tokens);

#endif
