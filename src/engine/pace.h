/* How many prompt rows a tick may take while somebody's reply is being streamed, so that the tick ends before the
 * gap between two tokens grows too long. Learned from the ticks themselves, as a fixed cost and a cost for each row:
 * both differ by a factor of a thousand between machines and models, and grow with the depth of the context. */
#ifndef ENGINE_PACE_H
#define ENGINE_PACE_H

#include <stdbool.h>
#include <stdint.h>

/* With flash attention on a CPU llama.cpp computes attention in tiles of so many rows, and pads the last one. In a call
 * of less than a tile a row costs more than twice as much once the context is some thousand tokens deep; one row more
 * than a tile costs as much as two. Prompts and replies together should therefore fill whole tiles. */
#define PACE_TILE 64

struct pace {
    double gap;       /* nanoseconds that a tick may take */
    int32_t first;    /* rows to begin with, before anything was measured */
    double call_ns;   /* a tick without prompt rows; 0: not known yet */
    double row_ns[2]; /* what a prompt row adds: in a tick of less than a tile, of a tile and more; 0: not known yet */
    int32_t last;     /* rows of the last budget */
    bool was_slow;    /* the last tick took longer than it should have */
};

void pace_init(struct pace *pace, int64_t max_gap_ns, int32_t first_rows);

/* Prompt rows that the next tick may have, beside so many rows of replies; at least 1, at most `most`. */
int32_t pace_budget(struct pace *pace, int32_t reply_rows, int32_t most);

/* What a prompt row takes in a tick that has many, in nanoseconds; 0: not known yet. */
double pace_row_ns(const struct pace *pace);

/* A tick has taken `ns`. */
struct pace_tick {
    int32_t prompt_rows, reply_rows;
    int32_t allowed; /* prompt rows that it might have had */
};
void pace_observe(struct pace *pace, const struct pace_tick *tick, int64_t ns);

#endif
