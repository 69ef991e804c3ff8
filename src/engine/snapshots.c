/* The states that are kept, in the order of their last use, oldest first. There are tens of them, hundreds at most, and
 * each stands for many thousand tokens: going through all of them costs nothing beside what a single one saves. */
#include "engine/snapshots.h"

#include "base/memory.h"

#include <stdlib.h>

struct entry {
    struct state state;
    bool pinned, held;
};

static bool stays(const struct entry *entry)
{
    return entry->pinned || entry->held;
}

/* Entries are allocated one by one, so that a state stays where it is while others come and go. */
struct states {
    struct entry **v; /* the one used longest ago comes first */
    size_t n, cap;
    uint64_t budget, bytes, evictions;
};

struct states *states_open(uint64_t budget)
{
    struct states *states = mem_alloc(sizeof *states);
    states->budget = budget;
    return states;
}

static void release(struct state *state)
{
    tokens_release(&state->tokens);
    free(state->bytes);
}

/* ---- The order ---- */

static void append(struct states *states, struct entry *entry)
{
    if (states->n == states->cap) {
        states->cap = states->cap == 0 ? 16 : 2 * states->cap;
        states->v = mem_grow(states->v, states->cap, sizeof(struct entry *));
    }
    states->v[states->n++] = entry;
    states->bytes += entry->state.size;
}

static struct entry *take(struct states *states, size_t i)
{
    struct entry *entry = states->v[i];
    states->n--;
    for (size_t k = i; k < states->n; k++) states->v[k] = states->v[k + 1];
    states->bytes -= entry->state.size;
    return entry;
}

static void drop(struct states *states, size_t i)
{
    struct entry *entry = take(states, i);
    release(&entry->state);
    free(entry);
}

static size_t index_of(const struct states *states, const struct state *state)
{
    size_t i = 0;
    while (&states->v[i]->state != state) i++;
    return i;
}

void states_close(struct states *states)
{
    if (states == NULL) return;
    while (states->n > 0) drop(states, states->n - 1);
    free(states->v);
    free(states);
}

/* ---- Room ---- */

uint64_t states_room(const struct states *states)
{
    uint64_t staying = 0;
    for (size_t i = 0; i < states->n; i++)
        if (stays(states->v[i])) staying += states->v[i]->state.size;
    return states->budget - staying;
}

/* The caller has seen that there is room. */
static void evict_for(struct states *states, size_t size)
{
    for (size_t i = 0; states->budget - states->bytes < size;) {
        if (stays(states->v[i])) {
            i++;
        } else {
            drop(states, i);
            states->evictions++;
        }
    }
}

/* ---- Keeping ---- */

/* Length of the prefix that the state's tokens have in common with these. */
static size_t common_with(const struct state *state, const int32_t *tokens, size_t n)
{
    size_t max = state->tokens.len < n ? state->tokens.len : n, common = 0;
    while (common < max && state->tokens.v[common] == tokens[common]) common++;
    return common;
}

static bool is_same(const struct state *a, const struct state *b)
{
    bool same_home = a->home < 0 ? b->home < 0 : a->home == b->home;
    return same_home && a->scope == b->scope && a->tokens.len == b->tokens.len &&
           common_with(a, b->tokens.v, b->tokens.len) == a->tokens.len;
}

/* What takes another's place is found where the other was. A pinned state belongs to somebody, who drops it: two who
 * pin the same have one each. */
const struct state *states_put(struct states *states, struct state state)
{
    if (state.size > states_room(states)) {
        release(&state);
        return NULL;
    }
    size_t i = 0;
    while (i < states->n && (stays(states->v[i]) || !is_same(&states->v[i]->state, &state))) i++;
    struct entry *same = i < states->n ? states->v[i] : NULL;
    struct entry *entry = same != NULL ? take(states, i) : mem_alloc(sizeof *entry);
    release(&entry->state);
    evict_for(states, state.size);
    entry->state = state;
    append(states, entry);
    return &entry->state;
}

void states_touch(struct states *states, const struct state *state)
{
    append(states, take(states, index_of(states, state)));
}

void states_pin(struct states *states, const struct state *state)
{
    states->v[index_of(states, state)]->pinned = true;
}

void states_hold(struct states *states, const struct state *state)
{
    states->v[index_of(states, state)]->held = true;
}

void states_let_go(struct states *states, const struct state *state)
{
    states->v[index_of(states, state)]->held = false;
}

void states_drop(struct states *states, const struct state *state)
{
    drop(states, index_of(states, state));
}

void states_forget(struct states *states, int32_t home, int32_t n)
{
    for (size_t i = 0; i < states->n;) {
        const struct state *state = &states->v[i]->state;
        if (state->home == home && state->tokens.len > (size_t)n)
            drop(states, i);
        else
            i++;
    }
}

/* ---- Finding ---- */

const struct state *states_find(const struct states *states, const int32_t *tokens, int32_t n, uint64_t scope,
                                bool cuts, int32_t *common)
{
    const struct state *best = NULL;
    size_t longest = 0;
    for (size_t i = 0; i < states->n; i++) {
        const struct state *state = &states->v[i]->state;
        if (state->home >= 0 || state->scope != scope || states->v[i]->pinned) continue;
        size_t prefix = common_with(state, tokens, (size_t)n);
        if (prefix == 0 || (!cuts && prefix < state->tokens.len)) continue;
        if (prefix < longest || (prefix == longest && state->size >= best->size)) continue;
        best = state;
        longest = prefix;
    }
    *common = (int32_t)longest;
    return best;
}

const struct state *states_find_at(const struct states *states, int32_t home, const int32_t *tokens, int32_t n)
{
    const struct state *best = NULL;
    for (size_t i = 0; i < states->n; i++) {
        const struct state *state = &states->v[i]->state;
        if (state->home != home || (best != NULL && state->tokens.len <= best->tokens.len)) continue;
        size_t len = state->tokens.len;
        if (len > 0 && common_with(state, tokens, (size_t)n) == len) best = state;
    }
    return best;
}

struct states_usage states_usage(const struct states *states)
{
    return (struct states_usage){
        .bytes = states->bytes, .budget = states->budget, .evictions = states->evictions, .n = states->n};
}
