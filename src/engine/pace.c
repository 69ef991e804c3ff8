#include "engine/pace.h"

/* The part of the permitted gap to aim for: what is left covers sampling, sending and noise. */
#define AIM 0.9

void pace_init(struct pace *p, int64_t max_gap_ns, int32_t first_rows)
{
    *p = (struct pace){.gap = (int64_t)((double)max_gap_ns * AIM), .first = first_rows, .last = first_rows};
}

int32_t pace_budget(struct pace *p, int32_t most)
{
    double rows = p->row_ns > 0 ? (double)p->gap / p->row_ns : (double)p->first;
    /* Grow by doubling only: the estimate may come from ticks of another size or from a shallower context. */
    if (rows > 2.0 * p->last) rows = 2.0 * p->last;
    if (rows > most) rows = most;
    if (rows < 1) rows = 1;
    p->last = (int32_t)rows;
    return p->last;
}

void pace_observe(struct pace *p, int32_t prompt_rows, int32_t allowed, int64_t ns)
{
    /* A row of a small tick costs many times that of a full one: only ticks that used their budget tell something. */
    if (prompt_rows == 0 || prompt_rows * 2 < allowed) return;
    double cost = (double)ns / prompt_rows;
    /* Up at once, for the stream's sake; down step by step, as one quick tick proves little. */
    p->row_ns = cost > p->row_ns ? cost : (p->row_ns + cost) / 2;
}
