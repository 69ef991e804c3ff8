#include "engine/pace.h"

/* The part of the permitted gap to aim for: what is left covers sampling, sending and noise. */
#define AIM 0.9

void pace_init(struct pace *p, int64_t max_gap_ns, int32_t first_rows)
{
    *p = (struct pace){.gap = (double)max_gap_ns * AIM, .first = first_rows, .last = first_rows};
}

int32_t pace_budget(struct pace *p, int32_t most)
{
    double rows = p->first;
    if (p->row_ns > 0) {
        double room = p->gap - p->call_ns;
        /* Where a tick takes longer than the gap even without prompts, or nearly so, prompts must get on all the same:
         * they may add half of what the tick costs anyway. */
        if (room < p->call_ns / 2) room = p->call_ns / 2;
        rows = room / p->row_ns;
    }
    /* Grow by doubling only: the estimate may come from ticks of another size or from a shallower context. */
    if (rows > 2.0 * p->last) rows = 2.0 * p->last;
    if (rows > most) rows = most;
    if (rows < 1) rows = 1;
    p->last = (int32_t)rows;
    return p->last;
}

/* One tick out of the ordinary must not decide: the machine may have been busy elsewhere. */
static void blend(double *estimate, double value)
{
    *estimate = *estimate > 0 ? (*estimate + value) / 2 : value;
}

void pace_observe(struct pace *p, int32_t prompt_rows, int32_t allowed, int64_t ns)
{
    if (prompt_rows == 0) {
        blend(&p->call_ns, (double)ns);
        return;
    }
    /* The rows of a small tick tell little about those of a full one: only ticks that used their budget count. */
    if (prompt_rows * 2 < allowed) return;
    double extra = (double)ns - p->call_ns;
    if (extra < (double)ns / 4) extra = (double)ns / 4; /* the fixed part cannot be nearly all: it was overestimated */
    blend(&p->row_ns, extra / prompt_rows);
}
