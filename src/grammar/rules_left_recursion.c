/* Finds left-recursive rules. No state; no recursion in the code either, since a request may nest rules to any depth.
 */
#include "grammar/rules.h"

#include "base/error.h"
#include "base/memory.h"

#include <stdlib.h>

enum { MAX_ROUNDS = 200 };

static bool is_end(const struct rules_item *item)
{
    return item->kind == RULES_END || item->kind == RULES_OR;
}

/* ---- Rules that match the empty text ---- */

static bool has_empty_alternative(const struct rules *rules, const bool *empty, size_t rule)
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

static bool find_empty_pass(const struct rules *rules, bool *empty, bool backwards)
{
    bool changed = false;
    for (size_t i = 0; i < rules->n; i++) {
        size_t rule = backwards ? rules->n - 1 - i : i;
        if (empty[rule] || !has_empty_alternative(rules, empty, rule)) continue;
        empty[rule] = true;
        changed = true;
    }
    return changed;
}

/* ---- Leftmost references ---- */

/* A reference that can come first in a rule. */
struct first {
    uint32_t rule;
    bool last; /* nothing follows it: a rule that recurs only this way is a repetition, whose parse stack does not grow
                */
};

/* Finds the next one from `*at` on, and moves `*at` behind it. False: there is none. */
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

/* ---- Cycles of leftmost references ---- */

struct step {
    uint32_t rule, at;
};

/* Tarjan's strongly connected components (SIAM Journal on Computing 1, 1972), with an explicit stack instead of
 * recursion. */
struct components {
    const struct rules *rules;
    const bool *empty;
    uint32_t *number, *lowest; /* of a rule: in the order of their discovery, from 1; 0: not seen yet */
    uint32_t *component;       /* the rule's component, from 1; 0: not known yet */
    uint32_t *open;            /* rules whose component is not known yet */
    struct step *path;
    size_t n_open, depth;
    uint32_t n_seen, n_components;
};

static void enter(struct components *c, uint32_t rule)
{
    c->number[rule] = c->lowest[rule] = ++c->n_seen;
    c->open[c->n_open++] = rule;
    c->path[c->depth++] = (struct step){.rule = rule, .at = c->rules->starts[rule]};
}

static void leave(struct components *c)
{
    uint32_t rule = c->path[--c->depth].rule;
    if (c->lowest[rule] == c->number[rule]) {
        c->n_components++;
        do c->component[c->open[--c->n_open]] = c->n_components;
        while (c->open[c->n_open] != rule);
    }
    if (c->depth == 0) return;
    uint32_t above = c->path[c->depth - 1].rule;
    if (c->lowest[rule] < c->lowest[above]) c->lowest[above] = c->lowest[rule];
}

static void find_components(struct components *c, uint32_t from)
{
    struct first first;
    enter(c, from);
    while (c->depth > 0) {
        struct step *last = &c->path[c->depth - 1];
        if (!next_first(c->rules, c->empty, &last->at, &first))
            leave(c);
        else if (c->number[first.rule] == 0)
            enter(c, first.rule);
        else if (c->component[first.rule] == 0 && c->number[first.rule] < c->lowest[last->rule])
            c->lowest[last->rule] = c->number[first.rule];
    }
}

/* Whether some rule has a leftmost reference into its own component with something after it. */
static bool any_left_recursive(const struct rules *rules, const bool *empty)
{
    size_t n = rules->n;
    uint32_t *numbers = mem_alloc(4 * n * sizeof *numbers);
    struct components c = {.rules = rules,
                           .empty = empty,
                           .number = numbers,
                           .lowest = numbers + n,
                           .component = numbers + 2 * n,
                           .open = numbers + 3 * n,
                           .path = mem_alloc(n * sizeof *c.path)};
    for (uint32_t rule = 0; rule < n; rule++)
        if (c.number[rule] == 0) find_components(&c, rule);
    bool found = false;
    for (uint32_t rule = 0; !found && rule < n; rule++) {
        struct first first;
        uint32_t at = rules->starts[rule];
        while (!found && next_first(rules, empty, &at, &first))
            found = !first.last && c.component[first.rule] == c.component[rule];
    }
    free(numbers);
    free(c.path);
    return found;
}

int rules_check_left_recursion(const struct rules *rules, hearth_error *error)
{
    bool *empty = mem_alloc(rules->n * sizeof *empty);
    /* Iterates to the fixed point. Rules written by people refer to later ones, those made from repetitions to earlier
     * ones: passes in alternating directions need a few rounds. */
    int round = 0;
    while (round < MAX_ROUNDS && find_empty_pass(rules, empty, round % 2 == 0)) round++;
    bool good = round < MAX_ROUNDS && !any_left_recursive(rules, empty);
    free(empty);
    if (good) return HEARTH_OK;
    return error_at(error, HEARTH_INVALID, "grammar",
                    "the grammar has a left-recursive rule, which begins with itself: put something before it");
}
