#include "engine/tick_budget.h"

#include <stdbool.h>

/* The part of the permitted max_ns to aim for: what is left covers sampling, sending and noise. */
#define AIM 0.9

/* A single tile may take so much of the max_ns: the alternative takes three times as long over the same prompt. */
#define ONE_TILE 1.3

/* What a row in a small tick is taken to cost, as a multiple of one in a tile, before it was seen. */
#define SMALL_IS_DEARER 2

/* More than so many times what was expected is put down to the machine, not to the rows, unless it comes twice: one
 * such tick must not end the use of tiles, but a prompt that goes on deep in its context makes rows dearer at once. */
#define OUT_OF_THE_ORDINARY 1.5

enum { SMALL, TILED };

void tick_budget_init(struct tick_budget *p, int64_t max_token_gap_ns, int32_t first_tokens)
{
    *p = (struct tick_budget){.max_ns = (double)max_token_gap_ns, .first = first_tokens, .last = first_tokens};
}

/* Rows at this cost that a tick of `ns` has room for. */
static double fitting(const struct tick_budget *p, double ns, double token_ns)
{
    double room = ns - p->call_ns;
    /* Where a tick takes longer than the max_ns even without prompts, or nearly so, prompts must get on all the same:
     * they may add half of what the tick costs anyway. */
    if (room < p->call_ns / 2) room = p->call_ns / 2;
    return room / token_ns;
}

/* Whole tiles that a tick has room for. 0: not even one. */
static double whole_tiles(const struct tick_budget *p)
{
    if (p->token_ns[TILED] <= 0) return 0;
    double rows = fitting(p, p->max_ns * AIM, p->token_ns[TILED]);
    int64_t tiles = (int64_t)(rows / ATTENTION_TILE);
    if (tiles > 0) return (double)(tiles * ATTENTION_TILE);
    return fitting(p, p->max_ns * ONE_TILE, p->token_ns[TILED]) >= ATTENTION_TILE ? ATTENTION_TILE : 0;
}

static double less_than_a_tile(const struct tick_budget *p)
{
    if (p->token_ns[SMALL] > 0) return fitting(p, p->max_ns * AIM, p->token_ns[SMALL]);
    if (p->token_ns[TILED] > 0) return fitting(p, p->max_ns * AIM, p->token_ns[TILED] * SMALL_IS_DEARER);
    return p->first;
}

int32_t tick_budget_next(struct tick_budget *p, int32_t reply_tokens, int32_t most)
{
    double tiles = whole_tiles(p), rows = less_than_a_tile(p), tile = ATTENTION_TILE - reply_tokens % ATTENTION_TILE;
    /* Grow by doubling only: the estimate may come from ticks of another size or from a shallower context. */
    double limit = 2.0 * p->last;
    if (tiles > 0 && limit < tile) limit = tile;
    if (tiles > 0)
        rows = tiles - ATTENTION_TILE + tile;
    else if (p->token_ns[TILED] > 0 && rows > tile - 1)
        rows = tile - 1;
    if (rows > limit) rows = limit;
    if (rows > most) rows = most;
    if (rows < 1) rows = 1;
    p->last = (int32_t)rows;
    return p->last;
}

double tick_budget_token_ns(const struct tick_budget *p)
{
    return p->token_ns[TILED] > 0 ? p->token_ns[TILED] : p->token_ns[SMALL];
}

static void blend(double *estimate, double value)
{
    *estimate = *estimate > 0 ? (*estimate + value) / 2 : value;
}

/* Rows become dearer with the depth of the context. While ticks are small the estimate for tiles moves along with
 * theirs; while they are tiles what small ones cost is forgotten, since those become dearer much faster. */
static void learn(struct tick_budget *p, bool tiled, double token_ns)
{
    double before = p->token_ns[tiled], most = before * OUT_OF_THE_ORDINARY;
    bool slow = before > 0 && token_ns > most;
    if (slow && !p->was_slow) token_ns = most;
    p->was_slow = slow;
    blend(&p->token_ns[tiled], token_ns);
    if (tiled)
        p->token_ns[SMALL] = 0;
    else if (before > 0)
        p->token_ns[TILED] *= p->token_ns[SMALL] / before;
}

void tick_budget_observe(struct tick_budget *p, const struct tick_cost *tick, int64_t ns)
{
    if (tick->prompt_tokens == 0) {
        blend(&p->call_ns, (double)ns);
        return;
    }
    /* The rows of a small tick tell little about those of a full one: only ticks that used their budget count. */
    if (tick->prompt_tokens * 2 < tick->allowed) return;
    double extra = (double)ns - p->call_ns;
    if (extra < (double)ns / 4) extra = (double)ns / 4; /* the fixed part cannot be nearly all: it was overestimated */
    learn(p, tick->prompt_tokens + tick->reply_tokens >= ATTENTION_TILE, extra / tick->prompt_tokens);
}
