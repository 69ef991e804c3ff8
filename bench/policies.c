#include "policies.h"

#include "base/memory.h"

#include <stdbool.h>
#include <stdlib.h>

const char *const policy_names[POLICIES] = {"LRU", "SLRU 50", "SLRU 80", "W-TinyLFU"};

/* ---- Traces ---- */

int32_t trace_block(struct trace *trace, int32_t parent)
{
    if (trace->n_blocks == trace->cap_blocks) {
        trace->cap_blocks = trace->cap_blocks == 0 ? 1024 : 2 * trace->cap_blocks;
        trace->parents = mem_grow(trace->parents, (size_t)trace->cap_blocks, sizeof *trace->parents);
        trace->depths = mem_grow(trace->depths, (size_t)trace->cap_blocks, sizeof *trace->depths);
    }
    trace->parents[trace->n_blocks] = parent;
    trace->depths[trace->n_blocks] = parent < 0 ? 1 : trace->depths[parent] + 1;
    return trace->n_blocks++;
}

void trace_request(struct trace *trace, int32_t block)
{
    if (trace->n_requests == trace->cap_requests) {
        trace->cap_requests = trace->cap_requests == 0 ? 1024 : 2 * trace->cap_requests;
        trace->requests = mem_grow(trace->requests, (size_t)trace->cap_requests, sizeof *trace->requests);
    }
    trace->requests[trace->n_requests++] = block;
}

void trace_release(struct trace *trace)
{
    free(trace->parents);
    free(trace->depths);
    free(trace->requests);
    *trace = (struct trace){0};
}

/* ---- A cache of blocks ---- */

/* The cached blocks, unordered; at[block] is 1 + its index among them, 0: it is not cached. */
struct set {
    int32_t *v, *at, n;
};

struct block {
    bool there, fresh_window;
    int32_t children, reused_children; /* number of children that are cached */
    int32_t count;                     /* recent requests, also while it was not cached */
    int64_t used;
};

struct cache {
    enum policy policy;
    const struct trace *trace;
    int32_t quota, n, n_window;
    struct block *blocks;
    struct set leaves, reused;
    int64_t now, found, uses;
};

static struct set set_open(int32_t n)
{
    return (struct set){.v = mem_alloc((size_t)n * sizeof(int32_t)), .at = mem_alloc((size_t)n * sizeof(int32_t))};
}

static void set_close(struct set *set)
{
    free(set->v);
    free(set->at);
}

static void set_add(struct set *set, int32_t b)
{
    if (set->at[b] != 0) return;
    set->v[set->n++] = b;
    set->at[b] = set->n;
}

static bool set_remove(struct set *set, int32_t b)
{
    int32_t at = set->at[b];
    if (at == 0) return false;
    int32_t last = set->v[--set->n];
    set->v[at - 1] = last;
    set->at[last] = at;
    set->at[b] = 0;
    return true;
}

static void hand_up(struct cache *c, int32_t b)
{
    int32_t parent = c->trace->parents[b];
    if (parent >= 0 && c->blocks[parent].used < c->blocks[b].used) c->blocks[parent].used = c->blocks[b].used;
}

static void forget_reuse(struct cache *c, int32_t b)
{
    int32_t parent = c->trace->parents[b];
    if (set_remove(&c->reused, b) && parent >= 0) c->blocks[parent].reused_children--;
}

static void leave_window(struct cache *c, int32_t b)
{
    if (c->blocks[b].fresh_window) c->n_window--;
    c->blocks[b].fresh_window = false;
}

static void add(struct cache *c, int32_t b)
{
    int32_t parent = c->trace->parents[b];
    c->blocks[b].there = true;
    c->blocks[b].used = c->now;
    c->blocks[b].fresh_window = c->policy == POLICY_TINYLFU;
    c->n_window += c->blocks[b].fresh_window;
    c->n++;
    set_add(&c->leaves, b);
    if (parent < 0) return;
    c->blocks[parent].children++;
    set_remove(&c->leaves, parent);
}

static void evict(struct cache *c, int32_t b)
{
    int32_t parent = c->trace->parents[b];
    forget_reuse(c, b);
    leave_window(c, b);
    hand_up(c, b);
    c->blocks[b].there = false;
    c->n--;
    set_remove(&c->leaves, b);
    if (parent >= 0 && --c->blocks[parent].children == 0) set_add(&c->leaves, parent);
}

/* ---- The policies ---- */

enum which { ANY, FRESH, WINDOW, MAIN_FRESH, MAIN };

static bool is_of(const struct cache *c, int32_t b, enum which which)
{
    bool reused = c->reused.at[b] != 0, window = c->blocks[b].fresh_window;
    switch (which) {
    case FRESH:
        return !reused;
    case WINDOW:
        return window;
    case MAIN_FRESH:
        return !window && !reused;
    case MAIN:
        return !window;
    default:
        return true;
    }
}

/* The least recently used leaf of those; -1: there is none. */
static int32_t oldest(const struct cache *c, int32_t needed, enum which which)
{
    int32_t found = -1;
    for (int32_t i = 0; i < c->leaves.n; i++) {
        int32_t b = c->leaves.v[i];
        if (b == needed || !is_of(c, b, which)) continue;
        if (found < 0 || c->blocks[b].used < c->blocks[found].used) found = b;
    }
    return found;
}

/* Compares the least recently used leaf of the window with that of the main part, and evicts the less often requested.
 */
static int32_t victim_tinylfu(struct cache *c, int32_t needed)
{
    int32_t window = oldest(c, needed, WINDOW), other = oldest(c, needed, MAIN_FRESH);
    bool full = 5 * c->n_window > c->quota;
    if (other < 0) other = oldest(c, needed, MAIN);
    if (!full) return other >= 0 ? other : window;
    if (window < 0 || other < 0 || c->blocks[window].count <= c->blocks[other].count) return window;
    leave_window(c, window);
    return other;
}

static int32_t victim(struct cache *c, int32_t needed)
{
    if (c->policy == POLICY_LRU) return oldest(c, needed, ANY);
    return c->policy == POLICY_TINYLFU ? victim_tinylfu(c, needed) : oldest(c, needed, FRESH);
}

/* Moves the least recently used protected block without protected children out of the protected segment. */
static void demote(struct cache *c)
{
    int32_t found = -1;
    for (int32_t i = 0; i < c->reused.n; i++) {
        int32_t b = c->reused.v[i];
        if (c->blocks[b].reused_children > 0) continue;
        if (found < 0 || c->blocks[b].used < c->blocks[found].used) found = b;
    }
    hand_up(c, found);
    forget_reuse(c, found);
}

static void protect(struct cache *c, int32_t b)
{
    for (; b >= 0 && c->reused.at[b] == 0; b = c->trace->parents[b]) {
        int32_t parent = c->trace->parents[b];
        set_add(&c->reused, b);
        leave_window(c, b);
        if (parent >= 0) c->blocks[parent].reused_children++;
    }
    int64_t percent = c->policy == POLICY_SLRU_50 ? 50 : 80;
    while (c->policy != POLICY_LRU && 100 * (int64_t)c->reused.n > percent * c->quota) demote(c);
}

static void count(struct cache *c, int32_t b)
{
    for (; b >= 0; b = c->trace->parents[b], c->uses++) c->blocks[b].count++;
    if (c->uses < 10 * (int64_t)c->quota) return;
    c->uses = 0;
    for (int32_t i = 0; i < c->trace->n_blocks; i++) c->blocks[i].count /= 2;
}

static void ask(struct cache *c, int32_t last)
{
    int32_t n_missing = 0, at = last;
    c->now++;
    count(c, last);
    for (; at >= 0 && !c->blocks[at].there; at = c->trace->parents[at]) n_missing++;
    if (at >= 0) {
        c->blocks[at].used = c->now;
        c->found += c->trace->depths[at];
        protect(c, at);
    }
    int32_t *missing = mem_grow(NULL, (size_t)n_missing + 1, sizeof *missing);
    for (int32_t i = n_missing, b = last; i > 0; b = c->trace->parents[b]) missing[--i] = b;
    for (int32_t i = 0; i < n_missing; i++) {
        int32_t out = c->n < c->quota ? -1 : victim(c, at);
        if (c->n == c->quota && out < 0) break;
        if (out >= 0) evict(c, out);
        at = missing[i];
        add(c, at);
    }
    free(missing);
}

int64_t policy_play(enum policy policy, const struct trace *trace, int32_t quota)
{
    struct cache c = {.policy = policy, .trace = trace, .quota = quota};
    c.blocks = mem_alloc((size_t)trace->n_blocks * sizeof *c.blocks);
    c.leaves = set_open(trace->n_blocks);
    c.reused = set_open(trace->n_blocks);
    for (int32_t i = 0; i < trace->n_requests; i++) ask(&c, trace->requests[i]);
    set_close(&c.leaves);
    set_close(&c.reused);
    free(c.blocks);
    return c.found;
}
