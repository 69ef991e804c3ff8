/* The prefill budget of a tick, learned from measured ticks: see tick_budget.h. */
#include "engine/tick_budget.h"

#include <stdbool.h>

/* The part of the limit to aim for: the rest covers sampling, sending and noise. */
#define AIM 0.9

/* A single tile may take so many times what a tick is to take: without it the same prompt takes three times as long. */
#define ONE_TILE (1.3 / AIM)

/* The assumed cost of a token in a small tick, as a multiple of one in a tile, until it was measured. */
#define SMALL_IS_DEARER 2

/* A tick that costs more than so many times what was expected is counted as this much, unless the one before did, too.
 * A single slow tick is the machine's and must not end the use of tiles. But a prompt deep in its context makes tokens
 * dearer at once. */
#define OUT_OF_THE_ORDINARY 1.5

enum { SMALL, TILED };

/* Of calls for which weights are copied. By how much the sums of the last ones fade with each. They have the same size
 * where it varies by less than the square root of this part. A token costs a part of its share at least. */
#define FADES      0.875
#define LIKE       64
#define LEAST_PART 64

/* By how much a call of few tokens lets the copies count less, so that they are tried again some day: half after 700.
 */
#define FORGETS 0.999

void tick_budget_init(struct tick_budget *p, int64_t max_token_gap_ns, int32_t first_tokens)
{
    *p = (struct tick_budget){.max_ns = (double)max_token_gap_ns * AIM, .first = first_tokens, .last = first_tokens};
}

/* How many tokens at this cost fit into a tick of `ns` nanoseconds, `fixed` of which it takes without them. */
static double fitting_behind(double ns, double fixed, double token_ns)
{
    double room = ns - fixed;
    /* Where a tick exceeds the limit even without prompt tokens, or nearly so, prompts must progress all the same: they
     * may add half of what the tick costs anyway. */
    if (room < fixed / 2) room = fixed / 2;
    return room / token_ns;
}

static double fitting(const struct tick_budget *p, double ns, double token_ns)
{
    return fitting_behind(ns, p->call_ns, token_ns);
}

/* Tokens of the whole tiles that a tick can hold. 0: not even one tile. */
static double whole_tiles(const struct tick_budget *p, double ns)
{
    if (p->token_ns[TILED] <= 0) return 0;
    double tokens = fitting(p, ns, p->token_ns[TILED]);
    int64_t tiles = (int64_t)(tokens / ATTENTION_TILE);
    if (tiles > 0) return (double)(tiles * ATTENTION_TILE);
    return fitting(p, ns * ONE_TILE, p->token_ns[TILED]) >= ATTENTION_TILE ? ATTENTION_TILE : 0;
}

/* Tokens where weights are copied for calls of many: as many as there is time for beside the copies, or fewer than
 * cause them. Where the copies were never seen one call finds out. Where the replies alone cause them, they are part of
 * what a call costs anyway. */
static double beside_copies(const struct tick_budget *p, const struct tick_room *room)
{
    double least = p->copies_from - room->reply_tokens, few = p->first, many_ns = p->token_ns[TILED];
    if (least <= 1) {
        double fixed =
            p->call_ns + (least == 1 ? p->copy_ns : 0); /* with one reply less they are not in a call's time */
        return many_ns > 0 ? fitting_behind(room->ns, fixed, many_ns) : p->first;
    }
    if (p->token_ns[SMALL] > 0)
        few = fitting(p, room->ns, p->token_ns[SMALL]);
    else if (many_ns > 0)
        few = fitting(p, room->ns, many_ns * SMALL_IS_DEARER);
    if (few >= least) few = least - 1;
    if (many_ns <= 0) return p->token_ns[SMALL] > 0 ? least : few;
    double many = (room->ns - p->call_ns - p->copy_ns) / many_ns, limit = p->last >= least ? 2.0 * p->last : least;
    if (many < least) return few;
    if (many > limit) many = limit;
    return many < p->copied_tokens ? many : p->copied_tokens;
}

static int32_t keep_to(struct tick_budget *p, const struct tick_room *room, double tokens)
{
    if (tokens > room->most) tokens = room->most;
    if (tokens < 1) tokens = 1;
    p->last = (int32_t)tokens;
    return p->last;
}

int32_t tick_budget_next(struct tick_budget *p, const struct tick_room *room)
{
    if (p->copies_from > 0) return keep_to(p, room, beside_copies(p, room));
    double tiles = whole_tiles(p, room->ns), tokens = p->first;
    if (p->token_ns[SMALL] > 0)
        tokens = fitting(p, room->ns, p->token_ns[SMALL]);
    else if (p->token_ns[TILED] > 0)
        tokens = fitting(p, room->ns, p->token_ns[TILED] * SMALL_IS_DEARER);
    double tile = ATTENTION_TILE - room->reply_tokens % ATTENTION_TILE;
    /* At most doubles: the estimate may come from ticks of another size, or from a shallower context. */
    double limit = 2.0 * p->last;
    if (tiles > 0 && limit < tile) limit = tile;
    if (tiles > 0)
        tokens = tiles - ATTENTION_TILE + tile;
    else if (p->token_ns[TILED] > 0 && tokens > tile - 1)
        tokens = tile - 1;
    return keep_to(p, room, tokens < limit ? tokens : limit);
}

double tick_budget_token_ns(const struct tick_budget *p)
{
    if (p->copies_from > 0 && p->token_ns[TILED] > 0) return p->token_ns[TILED] + p->copy_ns / p->copied_tokens;
    return p->token_ns[TILED] > 0 ? p->token_ns[TILED] : p->token_ns[SMALL];
}

/* A call for which weights were copied took so much more than one without prompt tokens. */
static void note_copies(struct tick_budget *p, int32_t tokens, double extra)
{
    struct tick_copies *c = &p->copies;
    double expected = (p->copy_ns + tokens * p->token_ns[TILED]) * OUT_OF_THE_ORDINARY;
    bool slow = p->token_ns[TILED] > 0 && extra > expected;
    if (slow && !p->was_slow) extra = expected;
    p->was_slow = slow;
    c->n = c->n * FADES + 1;
    c->tokens = c->tokens * FADES + tokens;
    c->ns = c->ns * FADES + extra;
    c->tokens_squared = c->tokens_squared * FADES + (double)tokens * tokens;
    c->product = c->product * FADES + tokens * extra;
    double mean = c->tokens / c->n, spread = c->tokens_squared / c->n - mean * mean;
    if (spread > mean * mean / LIKE) {
        double slope = (c->product / c->n - mean * c->ns / c->n) / spread;
        p->copy_ns = c->ns / c->n - (slope > 0 ? slope : 0) * mean;
    }
    if (p->copy_ns < 0) p->copy_ns = 0;
    if (p->copy_ns > extra) p->copy_ns = extra;
    double least = extra / tokens / LEAST_PART, token_ns = (extra - p->copy_ns) / tokens;
    engine_blend(&p->token_ns[TILED], token_ns > least ? token_ns : least);
}

void tick_budget_observe(struct tick_budget *p, const struct tick_cost *tick, int64_t ns)
{
    if (tick->prompt_tokens == 0) {
        engine_blend(&p->call_ns, (double)ns);
        return;
    }
    /* The tokens of a small tick say little about those of a full one: only ticks that used at least half of their
     * budget count. */
    if (tick->prompt_tokens * 2 < tick->allowed) return;
    double extra = (double)ns - p->call_ns;
    if (extra < (double)ns / 4) extra = (double)ns / 4; /* the fixed cost cannot be nearly all: it was overestimated */
    if (p->copies_from > 0 && tick->prompt_tokens + tick->reply_tokens >= p->copies_from) {
        note_copies(p, tick->prompt_tokens, extra);
        return;
    }
    p->copy_ns *= FORGETS;
    bool tiled = p->copies_from == 0 && tick->prompt_tokens + tick->reply_tokens >= ATTENTION_TILE;
    double token_ns = extra / tick->prompt_tokens, before = p->token_ns[tiled], most = before * OUT_OF_THE_ORDINARY;
    bool slow = before > 0 && token_ns > most;
    engine_blend(&p->token_ns[tiled], slow && !p->was_slow ? most : token_ns);
    p->was_slow = slow;
    /* Tokens become dearer with the depth of the context. While ticks are small, the estimate for tiles is scaled with
     * theirs; while ticks are tiles, the estimate for small ones is dropped, since those become dearer much faster. */
    if (tiled)
        p->token_ns[SMALL] = 0;
    else if (before > 0 && p->copies_from == 0)
        p->token_ns[TILED] *= p->token_ns[SMALL] / before;
}
