/* Finds rules that begin with themselves. No state; nothing here calls itself, since rules may be nested as deep as a
 * request likes. */
#include "grammar/rules.h"

#include "base/error.h"
#include "base/memory.h"

#include <stdlib.h>

enum { MAX_ROUNDS = 200 };

static bool is_end(const struct rules_item *item)
{
    return item->kind == RULES_END || item->kind == RULES_OR;
}

/* ---- Which rules can be empty ---- */

static bool has_empty_way(const struct rules *rules, const bool *empty, size_t rule)
{
    const struct rules_item *item = &rules->items[rules->starts[rule]];
    while (true) {
        while (item->kind == RULES_REF && empty[item->value]) item++;
        if (is_end(item)) return true;
        while (!is_end(item)) item++;
        if (item->kind == RULES_END) return false;
        item++;
    }
}

static bool look_once_more(const struct rules *rules, bool *empty, bool backwards)
{
    bool changed = false;
    for (size_t i = 0; i < rules->n; i++) {
        size_t rule = backwards ? rules->n - 1 - i : i;
        if (empty[rule] || !has_empty_way(rules, empty, rule)) continue;
        empty[rule] = true;
        changed = true;
    }
    return changed;
}

/* Rules refer to later ones where people write them, to earlier ones where they come from repetitions: going over them
 * in both directions in turn is done after a few rounds. */
static bool find_empty(const struct rules *rules, bool *empty)
{
    int round = 0;
    while (round < MAX_ROUNDS && look_once_more(rules, empty, round % 2 == 0)) round++;
    return round < MAX_ROUNDS;
}

/* ---- What rules begin with ---- */

/* A reference that can stand at the beginning of a rule. */
struct first {
    uint32_t rule;
    bool last; /* nothing follows it: a rule that comes back to itself only so is a repetition, and does not grow */
};

/* The next of them at `*at` or after it; `*at` is then where to look on. False: there is none. */
static bool next_first(const struct rules *rules, const bool *empty, uint32_t *at, struct first *first)
{
    for (const struct rules_item *item = &rules->items[*at];; item = &rules->items[*at]) {
        if (item->kind == RULES_END) return false;
        ++*at;
        if (item->kind == RULES_OR) continue;
        bool ref = item->kind == RULES_REF;
        *first = (struct first){.rule = item->value, .last = is_end(&rules->items[*at])};
        if (!ref || !empty[item->value])
            while (!is_end(&rules->items[*at])) ++*at;
        if (ref) return true;
    }
}

/* ---- Which of them begin with each other ---- */

struct step {
    uint32_t rule, at;
};

/* Tarjan's strongly connected components (SIAM Journal on Computing 1, 1972), with the recursion written out. */
struct circles {
    const struct rules *rules;
    const bool *empty;
    uint32_t *number, *lowest; /* of a rule: in the order of their discovery, from 1; 0: not seen yet */
    uint32_t *circle;          /* the rule's component, from 1; 0: not known yet */
    uint32_t *open;            /* rules whose component is not known yet */
    struct step *way;
    size_t n_open, depth;
    uint32_t n_seen, n_circles;
};

static void enter(struct circles *c, uint32_t rule)
{
    c->number[rule] = c->lowest[rule] = ++c->n_seen;
    c->open[c->n_open++] = rule;
    c->way[c->depth++] = (struct step){.rule = rule, .at = c->rules->starts[rule]};
}

static void leave(struct circles *c)
{
    uint32_t rule = c->way[--c->depth].rule;
    if (c->lowest[rule] == c->number[rule]) {
        c->n_circles++;
        do c->circle[c->open[--c->n_open]] = c->n_circles;
        while (c->open[c->n_open] != rule);
    }
    if (c->depth == 0) return;
    uint32_t above = c->way[c->depth - 1].rule;
    if (c->lowest[rule] < c->lowest[above]) c->lowest[above] = c->lowest[rule];
}

static void go_round(struct circles *c, uint32_t from)
{
    struct first first;
    enter(c, from);
    while (c->depth > 0) {
        struct step *last = &c->way[c->depth - 1];
        if (!next_first(c->rules, c->empty, &last->at, &first))
            leave(c);
        else if (c->number[first.rule] == 0)
            enter(c, first.rule);
        else if (c->circle[first.rule] == 0 && c->number[first.rule] < c->lowest[last->rule])
            c->lowest[last->rule] = c->number[first.rule];
    }
}

/* Whether the rule begins with one that begins with it, and goes on after that. */
static bool begins_with_itself(const struct circles *c, uint32_t rule)
{
    struct first first;
    uint32_t at = c->rules->starts[rule];
    while (next_first(c->rules, c->empty, &at, &first))
        if (!first.last && c->circle[first.rule] == c->circle[rule]) return true;
    return false;
}

static bool any_begins_with_itself(const struct rules *rules, const bool *empty)
{
    size_t n = rules->n;
    uint32_t *numbers = mem_alloc(4 * n * sizeof *numbers);
    struct circles c = {.rules = rules,
                        .empty = empty,
                        .number = numbers,
                        .lowest = numbers + n,
                        .circle = numbers + 2 * n,
                        .open = numbers + 3 * n,
                        .way = mem_alloc(n * sizeof *c.way)};
    for (uint32_t rule = 0; rule < n; rule++)
        if (c.number[rule] == 0) go_round(&c, rule);
    bool found = false;
    for (uint32_t rule = 0; !found && rule < n; rule++) found = begins_with_itself(&c, rule);
    free(numbers);
    free(c.way);
    return found;
}

int rules_check(const struct rules *rules, hearth_error *error)
{
    bool *empty = mem_alloc(rules->n * sizeof *empty);
    bool good = find_empty(rules, empty) && !any_begins_with_itself(rules, empty);
    free(empty);
    if (good) return HEARTH_OK;
    return error_at(error, HEARTH_INVALID, "grammar",
                    "the grammar has a rule that begins with itself: write it so that something comes first");
}
