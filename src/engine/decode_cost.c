/* The regression of decode_cost.h: normal equations, solved after each call. */
#include "engine/decode_cost.h"

#include <stdbool.h>
#include <string.h>

/* A call of fewer tokens is one of replies. */
#define FEW_TOKENS 16

/* The weight of all former calls when another one is added: some two hundred count. */
#define KEPT 0.995

/* Calls before which nothing is concluded. */
#define ENOUGH_CALLS 24

/* The diagonal is raised by these parts. Where terms grew together the times do not tell which of them costs, and then
 * idle cells are the last to be blamed. */
#define RIDGE      1e-4
#define RIDGE_IDLE 1e-2

struct equations {
    double a[COST_TERMS][COST_TERMS], b[COST_TERMS];
};

/* Gaussian elimination among the terms in use. The matrix is positive definite but for terms that are always 0. */
static void solve(struct equations e, const bool used[COST_TERMS], double x[COST_TERMS])
{
    double scale[COST_TERMS];
    for (int i = 0; i < COST_TERMS; i++) scale[i] = e.a[i][i];
    for (int i = 0; i < COST_TERMS; i++) {
        bool usable = used[i] && e.a[i][i] > 1e-12 * scale[i];
        for (int row = i + 1; row < COST_TERMS && usable; row++) {
            double factor = e.a[row][i] / e.a[i][i];
            for (int k = i; k < COST_TERMS; k++) e.a[row][k] -= factor * e.a[i][k];
            e.b[row] -= factor * e.b[i];
        }
    }
    for (int i = COST_TERMS; i-- > 0;) {
        bool usable = used[i] && e.a[i][i] > 1e-12 * scale[i];
        double rest = e.b[i];
        for (int k = i + 1; k < COST_TERMS; k++) rest -= e.a[i][k] * x[k];
        x[i] = usable ? rest / e.a[i][i] : 0;
    }
}

/* Solves the equations of all calls, without the term that is most below 0, until none is. */
static void fit(struct decode_cost *cost)
{
    struct equations e;
    double *x = cost->ns;
    bool used[COST_TERMS];
    memset(used, true, sizeof used);
    for (int i = 0; i < COST_TERMS; i++) {
        for (int k = 0; k < COST_TERMS; k++) e.a[i][k] = cost->few.terms[i][k] + cost->many.terms[i][k];
        e.b[i] = cost->few.times[i] + cost->many.times[i];
        e.a[i][i] *= 1 + (i == COST_MASKED || i == COST_USED ? RIDGE_IDLE : RIDGE);
    }
    for (int round = 0; round <= COST_TERMS; round++) {
        int worst = -1;
        solve(e, used, x);
        for (int i = 0; i < COST_TERMS; i++)
            if (x[i] < 0 && (worst < 0 || x[i] * e.b[i] < x[worst] * e.b[worst])) worst = i;
        if (worst < 0) return;
        used[worst] = false;
    }
}

void decode_cost_observe(struct decode_cost *cost, const struct decode_call *call, int64_t ns)
{
    if (ns <= 0 || call->n_tokens <= 0) return;
    const double x[COST_TERMS] = {[COST_CALL] = 1,
                                  [COST_TOKEN] = call->n_tokens,
                                  [COST_ATTENDED] = call->attended,
                                  [COST_MASKED] = call->n_tokens * call->used - call->attended,
                                  [COST_USED] = call->used};
    /* Each call counts by its relative error: else long calls would decide what short ones cost. A call that the
     * machine slowed down counts less by that. */
    double took = (double)ns, weight = 1 / (took * took);
    struct decode_sums *sums = call->n_tokens < FEW_TOKENS ? &cost->few : &cost->many;
    for (int i = 0; i < COST_TERMS; i++) {
        for (int k = 0; k < COST_TERMS; k++) sums->terms[i][k] = KEPT * sums->terms[i][k] + weight * x[i] * x[k];
        sums->times[i] = KEPT * sums->times[i] + weight * x[i] * took;
    }
    if (++cost->n_calls >= ENOUGH_CALLS) fit(cost);
}

double decode_cost_of_idle(const struct decode_cost *cost, double cells, double n_calls, double n_tokens)
{
    return cells * (cost->ns[COST_MASKED] * n_tokens + cost->ns[COST_USED] * n_calls);
}
