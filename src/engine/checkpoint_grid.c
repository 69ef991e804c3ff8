/* Two grids, one within the other: see checkpoint_grid.h. */
#include "engine/checkpoint_grid.h"

/* Parts of a prompt; tokens between the positions of the last part. */
#define PARTS    8
#define NEAR_END 256

/* Positions are multiples of it, as are the chunks of deterministic runs. */
#define UNIT 64

/* A shorter prompt is computed again. */
#define SHORT 512

static int32_t next_multiple(int32_t from, int32_t step)
{
    return (from / step + 1) * step;
}

int32_t checkpoint_grid_after(int32_t n, int32_t most, int32_t from)
{
    if (n < SHORT || most < 1) return INT32_MAX;
    int32_t parts = most < PARTS ? most : PARTS, step = (n / parts + UNIT - 1) / UNIT * UNIT;
    int32_t next = next_multiple(from, step), last_part = n - n / PARTS;
    if (most >= PARTS + n / PARTS / NEAR_END) {
        int32_t near = next_multiple(from < last_part ? last_part : from, NEAR_END);
        if (near < next) next = near;
    }
    return next < n ? next : INT32_MAX;
}

int32_t checkpoint_grid_before(int32_t n, int32_t most, int32_t at)
{
    int32_t last = 0;
    for (int32_t next = 0; (next = checkpoint_grid_after(n, most, last)) <= at;) last = next;
    return last;
}
