/* Runs a grammar as a pushdown automaton: each parse of a text is a stack of items still to match, the innermost rule
 * on top. Stacks share their lower parts: each is a node that refers to the node below it, and equal stacks are one
 * node, so that stacks are compared as numbers. All data belongs to the thread that has the grammar. */
#include "grammar/grammar.h"

#include "base/error.h"
#include "base/memory.h"
#include "grammar/rules.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_NODES = 1 << 20,
    MAX_STACKS = 2048,        /* of one state */
    MAX_NODE_VISITS = 1 << 25 /* nodes visited from one grammar_reset_budget() to the next: a third of a second */
};

struct node {
    uint32_t at;      /* the item to match next */
    uint32_t below;   /* the node below; 0: none */
    uint32_t seen_in; /* the last pass that met it */
};

struct grammar {
    struct rules *rules;
    struct node *nodes; /* from 1 */
    size_t n_nodes, nodes_cap;
    uint32_t *table; /* of nodes by hash; 0: free */
    size_t table_cap;
    uint32_t *todo;
    size_t n_todo, todo_cap;
    uint32_t pass;
    size_t work;
    bool over_budget;
};

/* ---- Nodes ---- */

static size_t bucket_of(const struct grammar *g, uint32_t at, uint32_t below)
{
    uint64_t hash = ((uint64_t)at << 32 | below) * 0x9E3779B97F4A7C15U;
    size_t i = (hash >> 32) & (g->table_cap - 1);
    while (g->table[i] != 0 && (g->nodes[g->table[i]].at != at || g->nodes[g->table[i]].below != below))
        i = (i + 1) & (g->table_cap - 1);
    return i;
}

/* The stack with this item on top. At the end of a rule it is the stack below: endless repetitions do not grow. */
static uint32_t push_item(struct grammar *g, uint32_t at, uint32_t below)
{
    enum rules_kind kind = g->rules->items[at].kind;
    if (kind == RULES_END || kind == RULES_OR) return below;
    if (g->n_nodes + 1 >= g->nodes_cap) {
        g->nodes_cap = g->nodes_cap == 0 ? 256 : g->nodes_cap * 2;
        g->nodes = mem_grow(g->nodes, g->nodes_cap, sizeof *g->nodes);
        free(g->table);
        g->table_cap = g->nodes_cap * 2;
        g->table = mem_alloc(g->table_cap * sizeof *g->table);
        for (uint32_t i = 1; i <= g->n_nodes; i++) g->table[bucket_of(g, g->nodes[i].at, g->nodes[i].below)] = i;
    }
    size_t bucket = bucket_of(g, at, below);
    if (g->table[bucket] != 0) return g->table[bucket];
    if (g->n_nodes >= MAX_NODES) {
        g->over_budget = true;
        return 0;
    }
    g->nodes[++g->n_nodes] = (struct node){.at = at, .below = below};
    return g->table[bucket] = (uint32_t)g->n_nodes;
}

/* ---- States ---- */

static void add(struct grammar_state *state, uint32_t stack)
{
    state->v = mem_room(state->v, state->len, &state->cap, sizeof *state->v);
    state->v[state->len++] = stack;
}

void grammar_copy(struct grammar_state *to, const struct grammar_state *from)
{
    to->len = 0;
    for (size_t i = 0; i < from->len; i++) add(to, from->v[i]);
    to->value = from->value;
    to->missing = from->missing;
}

void grammar_release(struct grammar_state *state)
{
    free(state->v);
    *state = (struct grammar_state){0};
}

void grammar_merge(struct grammar_state *state, const struct grammar_state *more)
{
    for (size_t i = 0; i < more->len; i++) {
        size_t known = 0;
        while (known < state->len && state->v[known] != more->v[i]) known++;
        if (known == state->len) add(state, more->v[i]);
    }
}

/* ---- Expanding ---- */

static void push_todo(struct grammar *g, uint32_t stack)
{
    g->todo = mem_room(g->todo, g->n_todo, &g->todo_cap, sizeof *g->todo);
    g->todo[g->n_todo++] = stack;
}

/* Pushes every alternative of the rule, with a stack below it. */
static void expand(struct grammar *g, uint32_t rule, uint32_t below)
{
    const struct rules *rules = g->rules;
    uint32_t at = rules->starts[rule], end = rules->ends[rule];
    push_todo(g, push_item(g, at, below));
    for (; rules->items[end].kind == RULES_OR; end = rules->items[end].value)
        push_todo(g, push_item(g, end + 1, below));
}

/* Expands the stacks in g->todo until each has a character or token on top, and adds them to the state. */
static void expand_todo(struct grammar *g, struct grammar_state *to)
{
    bool complete = false;
    if (g->work > MAX_NODE_VISITS) g->over_budget = true;
    if (++g->pass == 0) {
        for (size_t i = 1; i <= g->n_nodes; i++) g->nodes[i].seen_in = 0;
        g->pass = 1;
    }
    while (g->n_todo > 0 && !g->over_budget) {
        uint32_t stack = g->todo[--g->n_todo];
        if (++g->work > MAX_NODE_VISITS || to->len > MAX_STACKS) g->over_budget = true;
        if (stack == 0) {
            if (!complete) add(to, 0);
            complete = true;
            continue;
        }
        if (g->nodes[stack].seen_in == g->pass) continue;
        g->nodes[stack].seen_in = g->pass;
        const struct node node = g->nodes[stack];
        const struct rules_item *item = &g->rules->items[node.at];
        if (item->kind == RULES_REF)
            expand(g, item->value, push_item(g, node.at + 1, node.below));
        else
            add(to, stack);
    }
    g->n_todo = 0;
    if (g->over_budget) to->len = 0;
}

void grammar_start(struct grammar *g, struct grammar_state *state)
{
    *state = (struct grammar_state){.v = state->v, .cap = state->cap};
    expand(g, g->rules->root, 0);
    expand_todo(g, state);
}

/* ---- Characters ---- */

/* Whether the item matches some character from `low` to `high`. */
static bool fits(const struct rules *rules, const struct rules_item *item, uint32_t low, uint32_t high)
{
    if (item->kind == RULES_CHAR) return low <= item->value && item->value <= high;
    if (item->kind != RULES_CLASS) return false;
    const struct rules_class *class = &rules->classes[item->value];
    for (size_t i = class->first; i < class->first + class->n; i++) {
        const struct rules_range *range = &rules->ranges[i];
        if (class->negated && range->low <= low && high <= range->high) return false;
        if (!class->negated && range->low <= high && low <= range->high) return true;
    }
    return class->negated;
}

/* Whether the byte continues valid UTF-8. Overlong forms would let a text through that only seems to match. */
static bool is_utf8(const struct grammar_state *state, unsigned char byte)
{
    static const struct {
        int missing;
        uint32_t value;
        unsigned char low, high;
    } narrow[] = {{2, 0, 0xA0, 0xBF}, {2, 0xD, 0x80, 0x9F}, {3, 0, 0x90, 0xBF}, {3, 4, 0x80, 0x8F}};
    if (state->missing == 0) return byte != 0 && (byte < 0x80 || (byte >= 0xC2 && byte <= 0xF4));
    for (size_t i = 0; i < sizeof narrow / sizeof *narrow; i++)
        if (narrow[i].missing == state->missing && narrow[i].value == state->value)
            return byte >= narrow[i].low && byte <= narrow[i].high;
    return byte >= 0x80 && byte <= 0xBF;
}

bool grammar_accept_byte(struct grammar *g, const struct grammar_state *from, unsigned char byte,
                         struct grammar_state *to)
{
    uint32_t value = byte;
    int missing = byte >= 0xF0 ? 3 : byte >= 0xE0 ? 2 : byte >= 0xC0 ? 1 : 0;
    if (!is_utf8(from, byte)) return false;
    if (from->missing > 0) {
        value = from->value << 6 | (byte & 0x3FU);
        missing = from->missing - 1;
    } else if (missing > 0) {
        value = byte & (0x3FU >> missing);
    }
    if (missing > 0) {
        grammar_copy(to, from);
        to->value = value;
        to->missing = missing;
        return to->len > 0;
    }
    *to = (struct grammar_state){.v = to->v, .cap = to->cap};
    for (size_t i = 0; i < from->len && !g->over_budget; i++) {
        if (from->v[i] == 0) continue;
        struct node node = g->nodes[from->v[i]];
        if (fits(g->rules, &g->rules->items[node.at], value, value))
            push_todo(g, push_item(g, node.at + 1, node.below));
    }
    g->work += from->len;
    expand_todo(g, to);
    return to->len > 0;
}

bool grammar_can_continue(const struct grammar *g, const struct grammar_state *state)
{
    if (state->missing == 0) return state->len > 0;
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000}; /* smaller values have shorter encodings */
    uint32_t low = state->value << (6 * state->missing), high = low | ((1U << (6 * state->missing)) - 1);
    if (low == 0) low = least[state->missing];
    for (size_t i = 0; i < state->len; i++)
        if (state->v[i] != 0 && fits(g->rules, &g->rules->items[g->nodes[state->v[i]].at], low, high)) return true;
    return false;
}

static bool is_blank(uint32_t c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool has_blanks_alone(const struct rules *rules, const struct rules_class *class)
{
    for (size_t i = class->first; i < class->first + class->n; i++)
        if (rules->ranges[i].low != rules->ranges[i].high || !is_blank(rules->ranges[i].low)) return false;
    return !class->negated && class->n > 0;
}

enum grammar_next grammar_next(const struct grammar *g, const struct grammar_state *state, uint32_t *c)
{
    uint32_t one = 0, blank = 0;
    size_t blanks = 0;
    if (state->missing > 0) return GRAMMAR_ANY;
    for (size_t i = 0; i < state->len; i++) {
        if (state->v[i] == 0) return GRAMMAR_ANY;
        const struct rules_item *item = &g->rules->items[g->nodes[state->v[i]].at];
        bool class_of_blanks = item->kind == RULES_CLASS && has_blanks_alone(g->rules, &g->rules->classes[item->value]);
        if (class_of_blanks || (item->kind == RULES_CHAR && is_blank(item->value))) {
            blanks += class_of_blanks || blank != item->value; /* different ones */
            blank = class_of_blanks ? blank : item->value;
        } else if (item->kind == RULES_CHAR && (one == 0 || one == item->value)) {
            one = item->value;
        } else {
            return GRAMMAR_ANY;
        }
    }
    *c = one != 0 ? one : blank;
    if (one != 0) return blanks > 0 ? GRAMMAR_ONE_OR_BLANK : GRAMMAR_ONE;
    return blanks == 1 && blank != 0 ? GRAMMAR_ONE : GRAMMAR_ANY;
}

bool grammar_complete(const struct grammar_state *state)
{
    for (size_t i = 0; i < state->len; i++)
        if (state->v[i] == 0) return state->missing == 0;
    return false;
}

/* ---- Tokens ---- */

bool grammar_names_tokens(const struct grammar *g, const struct grammar_state *state)
{
    for (size_t i = 0; i < state->len; i++) {
        if (state->v[i] == 0) continue;
        enum rules_kind kind = g->rules->items[g->nodes[state->v[i]].at].kind;
        if (kind == RULES_TOKEN || kind == RULES_NOT_TOKEN) return true;
    }
    return false;
}

void grammar_accept_token(struct grammar *g, const struct grammar_state *from, int32_t token, struct grammar_state *to)
{
    *to = (struct grammar_state){.v = to->v, .cap = to->cap};
    for (size_t i = 0; i < from->len && from->missing == 0 && !g->over_budget; i++) {
        if (from->v[i] == 0) continue;
        struct node node = g->nodes[from->v[i]];
        const struct rules_item *item = &g->rules->items[node.at];
        if ((item->kind == RULES_TOKEN && item->value == (uint32_t)token) ||
            (item->kind == RULES_NOT_TOKEN && item->value != (uint32_t)token))
            push_todo(g, push_item(g, node.at + 1, node.below));
    }
    g->work += from->len;
    expand_todo(g, to);
}

/* ---- Life ---- */

bool grammar_over_budget(const struct grammar *g)
{
    return g->over_budget;
}

void grammar_reset_budget(struct grammar *g)
{
    g->work = 0;
    g->over_budget = false;
}

struct grammar *grammar_open(const char *text, const struct grammar_vocabulary *vocabulary, hearth_error *error)
{
    struct rules *rules = rules_read(text, vocabulary, error);
    if (rules == NULL) return NULL;
    struct grammar *g = mem_alloc(sizeof *g);
    g->rules = rules;
    struct grammar_state state = {0};
    grammar_start(g, &state);
    grammar_release(&state);
    if (!g->over_budget) return g;
    grammar_close(g);
    error_at(error, HEARTH_INVALID, "grammar",
             "the grammar is too ambiguous: it begins with more than %d alternatives at once. Write it with fewer",
             MAX_STACKS);
    return NULL;
}

void grammar_close(struct grammar *g)
{
    if (g == NULL) return;
    rules_free(g->rules);
    free(g->nodes);
    free(g->table);
    free(g->todo);
    free(g);
}
