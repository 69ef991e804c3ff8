#include "engine/pace.h"

#include <stdbool.h>

/* The part of the permitted gap to aim for: what is left covers sampling, sending and noise. */
#define AIM 0.9

/* A single tile may take so much of the gap: the alternative takes three times as long over the same prompt. */
#define ONE_TILE 1.3

/* What a row in a small tick is taken to cost, as a multiple of one in a tile, before it was seen. */
#define SMALL_IS_DEARER 2

/* More than so many times what was expected is put down to the machine, not to the rows, unless it comes twice: one
 * such tick must not end the use of tiles, but a prompt that goes on deep in its context makes rows dearer at once. */
#define OUT_OF_THE_ORDINARY 1.5

enum { SMALL, TILED };

void pace_init(struct pace *p, int64_t max_gap_ns, int32_t first_rows)
{
    *p = (struct pace){.gap = (double)max_gap_ns, .first = first_rows, .last = first_rows};
}

/* Rows at this cost that a tick of `ns` has room for. */
static double fitting(const struct pace *p, double ns, double row_ns)
{
    double room = ns - p->call_ns;
    /* Where a tick takes longer than the gap even without prompts, or nearly so, prompts must get on all the same: they
     * may add half of what the tick costs anyway. */
    if (room < p->call_ns / 2) room = p->call_ns / 2;
    return room / row_ns;
}

/* Whole tiles that a tick has room for. 0: not even one. */
static double whole_tiles(const struct pace *p)
{
    if (p->row_ns[TILED] <= 0) return 0;
    double rows = fitting(p, p->gap * AIM, p->row_ns[TILED]);
    int64_t tiles = (int64_t)(rows / PACE_TILE);
    if (tiles > 0) return (double)(tiles * PACE_TILE);
    return fitting(p, p->gap * ONE_TILE, p->row_ns[TILED]) >= PACE_TILE ? PACE_TILE : 0;
}

static double less_than_a_tile(const struct pace *p)
{
    if (p->row_ns[SMALL] > 0) return fitting(p, p->gap * AIM, p->row_ns[SMALL]);
    if (p->row_ns[TILED] > 0) return fitting(p, p->gap * AIM, p->row_ns[TILED] * SMALL_IS_DEARER);
    return p->first;
}

int32_t pace_budget(struct pace *p, int32_t reply_rows, int32_t most)
{
    double tiles = whole_tiles(p), rows = less_than_a_tile(p), tile = PACE_TILE - reply_rows % PACE_TILE;
    /* Grow by doubling only: the estimate may come from ticks of another size or from a shallower context. */
    double limit = 2.0 * p->last;
    if (tiles > 0 && limit < tile) limit = tile;
    if (tiles > 0)
        rows = tiles - PACE_TILE + tile;
    else if (p->row_ns[TILED] > 0 && rows > tile - 1)
        rows = tile - 1;
    if (rows > limit) rows = limit;
    if (rows > most) rows = most;
    if (rows < 1) rows = 1;
    p->last = (int32_t)rows;
    return p->last;
}

double pace_row_ns(const struct pace *p)
{
    return p->row_ns[TILED] > 0 ? p->row_ns[TILED] : p->row_ns[SMALL];
}

static void blend(double *estimate, double value)
{
    *estimate = *estimate > 0 ? (*estimate + value) / 2 : value;
}

/* Rows become dearer with the depth of the context. While ticks are small the estimate for tiles moves along with
 * theirs; while they are tiles what small ones cost is forgotten, since those become dearer much faster. */
static void learn(struct pace *p, bool tiled, double row_ns)
{
    double before = p->row_ns[tiled], most = before * OUT_OF_THE_ORDINARY;
    bool slow = before > 0 && row_ns > most;
    if (slow && !p->was_slow) row_ns = most;
    p->was_slow = slow;
    blend(&p->row_ns[tiled], row_ns);
    if (tiled)
        p->row_ns[SMALL] = 0;
    else if (before > 0)
        p->row_ns[TILED] *= p->row_ns[SMALL] / before;
}

void pace_observe(struct pace *p, const struct pace_tick *tick, int64_t ns)
{
    if (tick->prompt_rows == 0) {
        blend(&p->call_ns, (double)ns);
        return;
    }
    /* The rows of a small tick tell little about those of a full one: only ticks that used their budget count. */
    if (tick->prompt_rows * 2 < tick->allowed) return;
    double extra = (double)ns - p->call_ns;
    if (extra < (double)ns / 4) extra = (double)ns / 4; /* the fixed part cannot be nearly all: it was overestimated */
    learn(p, tick->prompt_rows + tick->reply_rows >= PACE_TILE, extra / tick->prompt_rows);
}
