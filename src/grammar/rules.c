/* Parses GBNF as llama.cpp does: names, "literals", [classes], (groups), alternatives, ? * + {m,n}, <tokens>. Groups
 * and repetitions become rules of their own. Each call has its own reader, on the caller's stack; depth and size are
 * bounded, since a grammar comes from a request. */
#include "grammar/rules_reader.h"

#include "base/error.h"
#include "base/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_TEXT = 4 << 20, /* bytes */
    MAX_RULES = 1 << 18,
    MAX_DEPTH = 200,   /* of groups in groups */
    MAX_REPEATS = 2000 /* a larger minimum is refused, a larger maximum counts as none */
};

#define NOT_DEFINED UINT32_MAX
#define NO_MAXIMUM  UINT32_MAX

static bool read_alternatives(struct reader *r, uint32_t rule);

/* ---- Errors ---- */

bool rules_error(struct reader *r, const char *format, ...)
{
    char what[160];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    int line = 1;
    for (const char *c = r->text; c < r->at; c++) line += *c == '\n';
    error_at(r->error, HEARTH_INVALID, "grammar", "the grammar has an error in line %d: %s", line, what);
    return false;
}

bool rules_expected(struct reader *r, const char *what)
{
    size_t len = strcspn(r->at, "\r\n");
    if (len > 20) len = 20;
    return rules_error(r, "%s is expected where '%.*s' stands", what, (int)len, r->at);
}

bool rules_too_large(struct reader *r)
{
    return rules_error(r, "it is too large: repeat less, or ask for less at once");
}

/* ---- Growing arrays ---- */

void *rules_grow(void *v, size_t len, size_t *cap, size_t item)
{
    if (len < *cap) return v;
    *cap = *cap == 0 ? 16 : *cap * 2;
    return mem_grow(v, *cap, item);
}

bool rules_put(struct reader *r, struct draft *draft, enum rules_kind kind, uint32_t value)
{
    if (r->n_drafted + r->rules->n_items >= RULES_MAX_ITEMS) return rules_too_large(r);
    draft->v = rules_grow(draft->v, draft->len, &draft->cap, sizeof *draft->v);
    draft->v[draft->len++] = (struct rules_item){.kind = kind, .value = value};
    r->n_drafted++;
    return true;
}

static bool new_rule(struct reader *r, uint32_t *rule)
{
    struct rules *rules = r->rules;
    if (rules->n >= MAX_RULES) return rules_too_large(r);
    rules->starts = rules_grow(rules->starts, rules->n, &rules->starts_cap, sizeof *rules->starts);
    rules->ends = rules_grow(rules->ends, rules->n, &rules->ends_cap, sizeof *rules->ends);
    rules->starts[rules->n] = NOT_DEFINED;
    rules->ends[rules->n] = NOT_DEFINED;
    *rule = (uint32_t)rules->n++;
    return true;
}

/* Notes where each alternative of the rule ends, so that a walk over all of them need not look at all of their items.
 */
static void note_ends(struct rules *rules, uint32_t rule)
{
    uint32_t *end = &rules->ends[rule];
    for (uint32_t at = rules->starts[rule];; at++) {
        struct rules_item *item = &rules->items[at];
        if (item->kind != RULES_OR && item->kind != RULES_END) continue;
        *end = at;
        if (item->kind == RULES_END) return;
        end = &item->value;
    }
}

/* Appends the draft's items as the rule, and empties the draft. */
static bool finish_rule(struct reader *r, struct draft *draft, uint32_t rule)
{
    struct rules *rules = r->rules;
    if (!rules_put(r, draft, RULES_END, 0)) return false;
    rules->starts[rule] = (uint32_t)rules->n_items;
    for (size_t i = 0; i < draft->len; i++) {
        rules->items = rules_grow(rules->items, rules->n_items, &rules->items_cap, sizeof *rules->items);
        rules->items[rules->n_items++] = draft->v[i];
    }
    note_ends(rules, rule);
    r->n_drafted -= draft->len;
    draft->len = 0;
    return true;
}

/* ---- Names ---- */

static struct name *name_bucket(struct reader *r, const char *text, size_t len)
{
    uint64_t hash = 14695981039346656037U;
    for (size_t i = 0; i < len; i++) hash = (hash ^ (unsigned char)text[i]) * 1099511628211U;
    size_t i = hash & (r->names_cap - 1);
    while (r->names[i].text != NULL && (r->names[i].len != len || memcmp(r->names[i].text, text, len) != 0))
        i = (i + 1) & (r->names_cap - 1);
    return &r->names[i];
}

static void grow_names(struct reader *r)
{
    if (r->n_names * 2 < r->names_cap) return;
    struct name *old = r->names;
    size_t n = r->names_cap;
    r->names_cap = n == 0 ? 64 : n * 2;
    r->names = mem_alloc(r->names_cap * sizeof *r->names);
    for (size_t i = 0; i < n; i++)
        if (old[i].text != NULL) *name_bucket(r, old[i].text, old[i].len) = old[i];
    free(old);
}

static bool find_rule(struct reader *r, const char *text, size_t len, uint32_t *rule)
{
    grow_names(r);
    struct name *name = name_bucket(r, text, len);
    if (name->text == NULL) {
        *name = (struct name){.text = text, .len = len};
        r->n_names++;
        if (!new_rule(r, &name->rule)) return false;
    }
    *rule = name->rule;
    return true;
}

/* ---- Characters ---- */

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static size_t name_len(const char *text)
{
    size_t len = 0;
    while (is_name(text[len])) len++;
    return len;
}

static void skip_space(struct reader *r, bool newlines)
{
    while (*r->at == ' ' || *r->at == '\t' || *r->at == '#' || (newlines && (*r->at == '\r' || *r->at == '\n')))
        r->at += *r->at == '#' ? strcspn(r->at, "\r\n") : 1;
}

static bool read_ref(struct reader *r, struct draft *draft)
{
    uint32_t rule = 0;
    size_t len = name_len(r->at);
    if (!find_rule(r, r->at, len, &rule)) return false;
    r->at += len;
    return rules_put(r, draft, RULES_REF, rule);
}

static bool read_group(struct reader *r, struct draft *draft)
{
    uint32_t rule = 0;
    if (++r->depth > MAX_DEPTH) return rules_error(r, "groups are nested more than %d deep", MAX_DEPTH);
    r->at++;
    skip_space(r, true);
    if (!new_rule(r, &rule) || !read_alternatives(r, rule)) return false;
    if (*r->at != ')') return rules_expected(r, "')'");
    r->at++;
    r->depth--;
    return rules_put(r, draft, RULES_REF, rule);
}

/* ---- Repetitions ---- */

/* Adds a rule that matches `what` up to n times, or any number of times (NO_MAXIMUM). */
static bool add_optional(struct reader *r, const struct draft *what, uint32_t n, uint32_t *rule)
{
    struct draft draft = {0};
    bool endless = n == NO_MAXIMUM, good = true;
    uint32_t before = 0;
    for (uint32_t i = 0; good && i < (endless ? 1 : n); i++) {
        good = new_rule(r, rule);
        for (size_t j = 0; good && j < what->len; j++) good = rules_put(r, &draft, what->v[j].kind, what->v[j].value);
        if (endless || i > 0) good = good && rules_put(r, &draft, RULES_REF, endless ? *rule : before);
        good = good && rules_put(r, &draft, RULES_OR, 0) && finish_rule(r, &draft, *rule);
        before = *rule;
    }
    free(draft.v);
    return good;
}

static bool repeat(struct reader *r, struct draft *draft, uint32_t min, uint32_t max)
{
    if (draft->last == draft->len) return rules_error(r, "a repetition has nothing to repeat");
    struct draft what = {.len = draft->len - draft->last};
    what.v = mem_grow(NULL, what.len, sizeof *what.v);
    memcpy(what.v, draft->v + draft->last, what.len * sizeof *what.v);
    if (min == 0) {
        draft->len -= what.len;
        r->n_drafted -= what.len;
    }
    bool good = true;
    for (uint32_t i = 1; good && i < min; i++)
        for (size_t j = 0; good && j < what.len; j++) good = rules_put(r, draft, what.v[j].kind, what.v[j].value);
    uint32_t rule = 0, more = max == NO_MAXIMUM ? NO_MAXIMUM : max - min;
    if (good && more > 0) good = add_optional(r, &what, more, &rule) && rules_put(r, draft, RULES_REF, rule);
    free(what.v);
    return good;
}

static bool read_count(struct reader *r, uint32_t *out)
{
    if (!is_digit(*r->at)) return rules_expected(r, "a number");
    uint64_t n = 0;
    for (; is_digit(*r->at); r->at++)
        if (n <= MAX_REPEATS) n = n * 10 + (uint64_t)(*r->at - '0');
    *out = n > MAX_REPEATS ? NO_MAXIMUM : (uint32_t)n;
    skip_space(r, true);
    return true;
}

static bool read_bounds(struct reader *r, uint32_t *min, uint32_t *max)
{
    r->at++;
    skip_space(r, true);
    if (!read_count(r, min)) return false;
    *max = *min;
    if (*r->at == ',') {
        r->at++;
        skip_space(r, true);
        *max = NO_MAXIMUM;
        if (is_digit(*r->at) && !read_count(r, max)) return false;
    }
    if (*r->at != '}') return rules_expected(r, "'}'");
    r->at++;
    if (*min == NO_MAXIMUM) return rules_error(r, "something is to be repeated more than %d times", MAX_REPEATS);
    if (*max < *min) return rules_error(r, "{%u,%u} repeats at most less often than at least", *min, *max);
    return true;
}

static bool read_repetition(struct reader *r, struct draft *draft)
{
    uint32_t min = *r->at == '+', max = *r->at == '?' ? 1 : NO_MAXIMUM;
    if (*r->at != '{')
        r->at++;
    else if (!read_bounds(r, &min, &max))
        return false;
    return repeat(r, draft, min, max);
}

/* ---- Rules ---- */

static const struct {
    const char *first;
    bool (*read)(struct reader *r, struct draft *draft);
} symbols[] = {
    {"\"", rules_read_literal}, {"[", rules_read_class},
    {"<!", rules_read_token},   {"(", read_group},
    {".", rules_read_any},      {"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-", read_ref},
};

static bool read_sequence(struct reader *r, struct draft *draft)
{
    draft->last = draft->len;
    while (*r->at != '\0') {
        bool good = false, repeats = strchr("*+?{", *r->at) != NULL;
        size_t i = 0, n = sizeof symbols / sizeof *symbols;
        while (i < n && strchr(symbols[i].first, *r->at) == NULL) i++;
        if (!repeats && i == n) return true;
        if (repeats) {
            good = read_repetition(r, draft);
        } else {
            draft->last = draft->len;
            good = symbols[i].read(r, draft);
        }
        if (!good) return false;
        skip_space(r, r->depth > 0);
    }
    return true;
}

/* Reads the alternatives of a rule or of a group, separated by |. */
static bool read_alternatives(struct reader *r, uint32_t rule)
{
    struct draft draft = {0};
    bool good = read_sequence(r, &draft);
    while (good && *r->at == '|') {
        r->at++;
        skip_space(r, true);
        good = rules_put(r, &draft, RULES_OR, 0) && read_sequence(r, &draft);
    }
    good = good && finish_rule(r, &draft, rule);
    free(draft.v);
    return good;
}

static bool read_rule(struct reader *r)
{
    uint32_t rule = 0;
    size_t len = name_len(r->at);
    if (len == 0) return rules_expected(r, "the name of a rule");
    if (!find_rule(r, r->at, len, &rule)) return false;
    r->at += len;
    skip_space(r, false);
    if (strncmp(r->at, "::=", 3) != 0) return rules_expected(r, "'::='");
    r->at += 3;
    skip_space(r, true);
    if (!read_alternatives(r, rule)) return false;
    if (*r->at != '\0' && *r->at != '\r' && *r->at != '\n') return rules_expected(r, "the end of the line");
    skip_space(r, true);
    return true;
}

static bool check_names(struct reader *r)
{
    for (size_t i = 0; i < r->names_cap; i++) {
        const struct name *name = &r->names[i];
        if (name->text == NULL || r->rules->starts[name->rule] != NOT_DEFINED) continue;
        r->at = name->text;
        return rules_error(r, "there is no rule '%.*s'", (int)(name->len < 64 ? name->len : 64), name->text);
    }
    struct name *root = r->names_cap == 0 ? NULL : name_bucket(r, "root", 4);
    if (root == NULL || root->text == NULL) return rules_error(r, "there is no rule 'root'");
    r->rules->root = root->rule;
    return true;
}

static bool read_all(struct reader *r)
{
    if (strlen(r->text) > MAX_TEXT) return rules_too_large(r);
    skip_space(r, true);
    while (*r->at != '\0')
        if (!read_rule(r)) return false;
    return check_names(r);
}

struct rules *rules_read(const char *text, const struct grammar_vocabulary *vocabulary, hearth_error *error)
{
    struct reader r = {.vocabulary = vocabulary, .text = text, .at = text, .error = error};
    r.rules = mem_alloc(sizeof *r.rules);
    bool good = read_all(&r) && rules_check_left_recursion(r.rules, error) == HEARTH_OK;
    free(r.names);
    if (good) return r.rules;
    rules_free(r.rules);
    return NULL;
}

void rules_free(struct rules *rules)
{
    if (rules == NULL) return;
    free(rules->items);
    free(rules->starts);
    free(rules->ends);
    free(rules->ranges);
    free(rules->classes);
    free(rules);
}
