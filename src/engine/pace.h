/* How many prompt rows a tick may take while somebody's reply is being streamed, so that the tick ends before the
 * gap between two tokens grows too long. Learned from the ticks themselves, as a fixed cost and a cost for each row:
 * both differ by a factor of a thousand between machines and models, and grow with the depth of the context. */
#ifndef ENGINE_PACE_H
#define ENGINE_PACE_H

#include <stdint.h>

/* With flash attention on a CPU llama.cpp computes attention in tiles of so many rows; in a smaller call a row costs
 * more than twice as much once the context is some thousand tokens deep. */
#define PACE_TILE 64

struct pace {
    double gap;       /* nanoseconds that a tick may take */
    int32_t first;    /* rows to begin with, before anything was measured */
    double call_ns;   /* a tick without prompt rows; 0: not known yet */
    double row_ns[2]; /* what a prompt row adds: in a tick of less than a tile, of a tile and more; 0: not known yet */
    int32_t last;     /* rows of the last budget */
};

void pace_init(struct pace *pace, int64_t max_gap_ns, int32_t first_rows);

/* Prompt rows that the next tick may have; at least 1, at most `most`. */
int32_t pace_budget(struct pace *pace, int32_t most);

/* A tick with so many prompt rows, of `allowed` that it might have had, took `ns`. */
void pace_observe(struct pace *pace, int32_t prompt_rows, int32_t allowed, int64_t ns);

#endif
