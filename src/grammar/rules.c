/* Parses GBNF as llama.cpp does: names, "literals", [classes], (groups), alternatives, ? * + {m,n}, <tokens>. Groups
 * and repetitions become rules of their own. Each call has its own reader, on the caller's stack; depth and size are
 * bounded, since a grammar comes from a request. */
#include "grammar/rules.h"

#include "base/error.h"
#include "base/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_TEXT = 4 << 20, /* bytes */
    MAX_RULES = 1 << 18,
    MAX_ITEMS = 1 << 20, /* of all rules together */
    MAX_DEPTH = 200,     /* of groups in groups */
    MAX_REPEATS = 2000   /* a larger minimum is refused, a larger maximum counts as none */
};

#define NOT_DEFINED UINT32_MAX
#define NO_MAXIMUM  UINT32_MAX

/* Names are made of these. */
#define NAME_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"

/* A rule that is being read. */
struct draft {
    struct rules_item *v;
    size_t len, cap;
    size_t last; /* index of the last symbol, which a repetition repeats */
};

struct name {
    const char *text;
    size_t len;
    uint32_t rule;
};

struct reader {
    struct rules *rules;
    const struct grammar_vocabulary *vocabulary;
    const char *text, *at;
    struct name *names; /* a hash table of 2^k buckets; text NULL: free */
    size_t n_names, names_cap;
    size_t n_drafted; /* items of unfinished rules */
    int depth;
    hearth_error *error;
};

/* ---- Errors, with the line; all return false ---- */

__attribute__((format(printf, 2, 3))) static bool syntax_error(struct reader *r, const char *format, ...)
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

static bool expected(struct reader *r, const char *what)
{
    size_t len = strcspn(r->at, "\r\n");
    if (len > 20) len = 20;
    return syntax_error(r, "%s is expected where '%.*s' stands", what, (int)len, r->at);
}

static bool too_large(struct reader *r)
{
    return syntax_error(r, "it is too large: repeat less, or ask for less at once");
}

static bool put_item(struct reader *r, struct draft *draft, enum rules_kind kind, uint32_t value)
{
    if (r->n_drafted + r->rules->n_items >= MAX_ITEMS) return too_large(r);
    draft->v = mem_room(draft->v, draft->len, &draft->cap, sizeof *draft->v);
    draft->v[draft->len++] = (struct rules_item){.kind = kind, .value = value};
    r->n_drafted++;
    return true;
}

static bool new_rule(struct reader *r, uint32_t *rule)
{
    struct rules *rules = r->rules;
    if (rules->n >= MAX_RULES) return too_large(r);
    rules->starts = mem_room(rules->starts, rules->n, &rules->starts_cap, sizeof *rules->starts);
    rules->ends = mem_room(rules->ends, rules->n, &rules->ends_cap, sizeof *rules->ends);
    rules->starts[rules->n] = NOT_DEFINED;
    rules->ends[rules->n] = NOT_DEFINED;
    *rule = (uint32_t)rules->n++;
    return true;
}

/* Appends the draft's items as the rule, and empties the draft. */
static bool finish_rule(struct reader *r, struct draft *draft, uint32_t rule)
{
    struct rules *rules = r->rules;
    if (!put_item(r, draft, RULES_END, 0)) return false;
    rules->starts[rule] = (uint32_t)rules->n_items;
    for (size_t i = 0; i < draft->len; i++) {
        rules->items = mem_room(rules->items, rules->n_items, &rules->items_cap, sizeof *rules->items);
        rules->items[rules->n_items++] = draft->v[i];
    }
    /* Each alternative has where it ends, so that a walk over all of them need not look at all of their items. */
    uint32_t *end = &rules->ends[rule];
    for (uint32_t at = rules->starts[rule]; at < rules->n_items; at++) {
        struct rules_item *item = &rules->items[at];
        if (item->kind != RULES_OR && item->kind != RULES_END) continue;
        *end = at;
        end = &item->value;
    }
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

static bool find_rule(struct reader *r, const char *text, size_t len, uint32_t *rule)
{
    if (r->n_names * 2 >= r->names_cap) {
        struct name *old = r->names;
        size_t n = r->names_cap;
        r->names_cap = n == 0 ? 64 : n * 2;
        r->names = mem_alloc(r->names_cap * sizeof *r->names);
        for (size_t i = 0; i < n; i++)
            if (old[i].text != NULL) *name_bucket(r, old[i].text, old[i].len) = old[i];
        free(old);
    }
    struct name *name = name_bucket(r, text, len);
    if (name->text == NULL) {
        *name = (struct name){.text = text, .len = len};
        r->n_names++;
        if (!new_rule(r, &name->rule)) return false;
    }
    *rule = name->rule;
    return true;
}

/* ---- Characters, literals, classes, tokens ---- */

static bool read_hex(struct reader *r, int digits, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < digits; i++) {
        char c = r->at[0];
        bool is_digit = c >= '0' && c <= '9';
        uint32_t digit = is_digit ? (uint32_t)(c - '0') : (uint32_t)((c | 32) - 'a' + 10);
        if (!is_digit && ((c | 32) < 'a' || (c | 32) > 'f')) return expected(r, "a hexadecimal digit");
        *out = *out << 4 | digit;
        r->at++;
    }
    return true;
}

static bool read_escape(struct reader *r, uint32_t *out)
{
    static const struct {
        char letter;
        int digits; /* hexadecimal digits that follow; 0: none, the character is `value` */
        uint32_t value;
    } escapes[] = {{'x', 2, 0},     {'u', 4, 0},   {'U', 8, 0},   {'t', 0, '\t'}, {'r', 0, '\r'}, {'n', 0, '\n'},
                   {'\\', 0, '\\'}, {'"', 0, '"'}, {'[', 0, '['}, {']', 0, ']'},  {'-', 0, '-'}};
    r->at++;
    for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++) {
        if (escapes[i].letter != *r->at) continue;
        r->at++;
        *out = escapes[i].value;
        return escapes[i].digits == 0 || read_hex(r, escapes[i].digits, out);
    }
    return expected(r, "one of the letters that may follow '\\'");
}

static bool read_char(struct reader *r, uint32_t *out)
{
    unsigned char c = (unsigned char)*r->at;
    if (c == '\\') return read_escape(r, out);
    if (c == '\0') return syntax_error(r, "it ends in the middle of a symbol");
    int more = c < 0x80 ? 0 : c >= 0xF0 ? 3 : c >= 0xE0 ? 2 : c >= 0xC0 ? 1 : -1;
    if (more < 0) return syntax_error(r, "it is not valid UTF-8");
    *out = more == 0 ? c : c & (0x3FU >> more);
    for (r->at++; more > 0; more--, r->at++) {
        if (((unsigned char)*r->at & 0xC0) != 0x80) return syntax_error(r, "it is not valid UTF-8");
        *out = *out << 6 | ((unsigned char)*r->at & 0x3F);
    }
    return true;
}

/* Reads one symbol at r->at into the draft, like those below. */
static bool read_literal(struct reader *r, struct draft *draft)
{
    r->at++;
    while (*r->at != '"') {
        uint32_t c = 0;
        if (!read_char(r, &c) || !put_item(r, draft, RULES_CHAR, c)) return false;
    }
    r->at++;
    return true;
}

static bool read_range(struct reader *r)
{
    struct rules *rules = r->rules;
    struct rules_range range = {0};
    if (!read_char(r, &range.low)) return false;
    range.high = range.low;
    if (r->at[0] == '-' && r->at[1] != ']') {
        r->at++;
        if (!read_char(r, &range.high)) return false;
    }
    if (rules->n_ranges >= MAX_ITEMS) return too_large(r);
    rules->ranges = mem_room(rules->ranges, rules->n_ranges, &rules->ranges_cap, sizeof *rules->ranges);
    rules->ranges[rules->n_ranges++] = range;
    return true;
}

static bool put_class(struct reader *r, struct draft *draft, const struct rules_class *class)
{
    struct rules *rules = r->rules;
    rules->classes = mem_room(rules->classes, rules->n_classes, &rules->classes_cap, sizeof *rules->classes);
    rules->classes[rules->n_classes] = *class;
    rules->classes[rules->n_classes].n = rules->n_ranges - class->first;
    return put_item(r, draft, RULES_CLASS, (uint32_t)rules->n_classes++);
}

static bool read_class(struct reader *r, struct draft *draft)
{
    r->at++;
    struct rules_class class = {.first = r->rules->n_ranges, .negated = *r->at == '^'};
    if (class.negated) r->at++;
    while (*r->at != ']')
        if (!read_range(r)) return false;
    r->at++;
    return put_class(r, draft, &class);
}

static bool read_any(struct reader *r, struct draft *draft)
{
    r->at++;
    return put_class(r, draft, &(struct rules_class){.first = r->rules->n_ranges, .negated = true});
}

/* <[17]> is a token by its number, <think> one by its text. */
static bool read_token(struct reader *r, struct draft *draft)
{
    bool negated = *r->at == '!';
    if (negated) r->at++;
    const char *end = strchr(r->at, '>');
    if (*r->at != '<' || end == NULL) return expected(r, "a token as <text> or <[number]>");
    const struct grammar_vocabulary *vocabulary = r->vocabulary;
    int32_t token = -1;
    if (r->at[1] == '[')
        token = (int32_t)strtol(r->at + 2, NULL, 10);
    else if (vocabulary != NULL)
        token = vocabulary->token_of(vocabulary->ud, r->at, (size_t)(end + 1 - r->at));
    if (token < 0) return expected(r, "one token of the model's");
    r->at = end + 1;
    return put_item(r, draft, negated ? RULES_NOT_TOKEN : RULES_TOKEN, (uint32_t)token);
}

/* ---- Names and groups ---- */

static bool read_alternatives(struct reader *r, uint32_t rule);

static void skip_space(struct reader *r, bool newlines)
{
    while (*r->at == ' ' || *r->at == '\t' || *r->at == '#' || (newlines && (*r->at == '\r' || *r->at == '\n')))
        r->at += *r->at == '#' ? strcspn(r->at, "\r\n") : 1;
}

static bool read_ref(struct reader *r, struct draft *draft)
{
    uint32_t rule = 0;
    size_t len = strspn(r->at, NAME_CHARACTERS);
    if (!find_rule(r, r->at, len, &rule)) return false;
    r->at += len;
    return put_item(r, draft, RULES_REF, rule);
}

static bool read_group(struct reader *r, struct draft *draft)
{
    uint32_t rule = 0;
    if (++r->depth > MAX_DEPTH) return syntax_error(r, "groups are nested more than %d deep", MAX_DEPTH);
    r->at++;
    skip_space(r, true);
    if (!new_rule(r, &rule) || !read_alternatives(r, rule)) return false;
    if (*r->at != ')') return expected(r, "')'");
    r->at++;
    r->depth--;
    return put_item(r, draft, RULES_REF, rule);
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
        for (size_t j = 0; good && j < what->len; j++) good = put_item(r, &draft, what->v[j].kind, what->v[j].value);
        if (endless || i > 0) good = good && put_item(r, &draft, RULES_REF, endless ? *rule : before);
        good = good && put_item(r, &draft, RULES_OR, 0) && finish_rule(r, &draft, *rule);
        before = *rule;
    }
    free(draft.v);
    return good;
}

static bool repeat(struct reader *r, struct draft *draft, uint32_t min, uint32_t max)
{
    if (draft->last == draft->len) return syntax_error(r, "a repetition has nothing to repeat");
    struct draft what = {.len = draft->len - draft->last};
    what.v = mem_grow(NULL, what.len, sizeof *what.v);
    memcpy(what.v, draft->v + draft->last, what.len * sizeof *what.v);
    if (min == 0) {
        draft->len -= what.len;
        r->n_drafted -= what.len;
    }
    bool good = true;
    for (uint32_t i = 1; good && i < min; i++)
        for (size_t j = 0; good && j < what.len; j++) good = put_item(r, draft, what.v[j].kind, what.v[j].value);
    uint32_t rule = 0, more = max == NO_MAXIMUM ? NO_MAXIMUM : max - min;
    if (good && more > 0) good = add_optional(r, &what, more, &rule) && put_item(r, draft, RULES_REF, rule);
    free(what.v);
    return good;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool read_count(struct reader *r, uint32_t *out)
{
    if (!is_digit(*r->at)) return expected(r, "a number");
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
    if (*r->at != '}') return expected(r, "'}'");
    r->at++;
    if (*min == NO_MAXIMUM) return syntax_error(r, "something is to be repeated more than %d times", MAX_REPEATS);
    if (*max < *min) return syntax_error(r, "{%u,%u} repeats at most less often than at least", *min, *max);
    return true;
}

/* ---- Rules ---- */

static const struct {
    const char *first; /* characters that it may begin with */
    bool (*read)(struct reader *r, struct draft *draft);
} symbols[] = {
    {"\"", read_literal}, {"[", read_class}, {"<!", read_token},
    {"(", read_group},    {".", read_any},   {NAME_CHARACTERS, read_ref},
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
            uint32_t min = *r->at == '+', max = *r->at == '?' ? 1 : NO_MAXIMUM;
            bool bounded = *r->at == '{';
            if (!bounded) r->at++;
            good = (!bounded || read_bounds(r, &min, &max)) && repeat(r, draft, min, max);
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
        good = put_item(r, &draft, RULES_OR, 0) && read_sequence(r, &draft);
    }
    good = good && finish_rule(r, &draft, rule);
    free(draft.v);
    return good;
}

static bool read_rule(struct reader *r)
{
    uint32_t rule = 0;
    size_t len = strspn(r->at, NAME_CHARACTERS);
    if (len == 0) return expected(r, "the name of a rule");
    if (!find_rule(r, r->at, len, &rule)) return false;
    r->at += len;
    skip_space(r, false);
    if (strncmp(r->at, "::=", 3) != 0) return expected(r, "'::='");
    r->at += 3;
    skip_space(r, true);
    if (!read_alternatives(r, rule)) return false;
    if (*r->at != '\0' && *r->at != '\r' && *r->at != '\n') return expected(r, "the end of the line");
    skip_space(r, true);
    return true;
}

static bool check_names(struct reader *r)
{
    for (size_t i = 0; i < r->names_cap; i++) {
        const struct name *name = &r->names[i];
        if (name->text == NULL || r->rules->starts[name->rule] != NOT_DEFINED) continue;
        r->at = name->text;
        return syntax_error(r, "there is no rule '%.*s'", (int)(name->len < 64 ? name->len : 64), name->text);
    }
    struct name *root = r->names_cap == 0 ? NULL : name_bucket(r, "root", 4);
    if (root == NULL || root->text == NULL) return syntax_error(r, "there is no rule 'root'");
    r->rules->root = root->rule;
    return true;
}

struct rules *rules_read(const char *text, const struct grammar_vocabulary *vocabulary, hearth_error *error)
{
    struct reader r = {.vocabulary = vocabulary, .text = text, .at = text, .error = error};
    r.rules = mem_alloc(sizeof *r.rules);
    bool good = strlen(text) <= MAX_TEXT || too_large(&r);
    if (good) skip_space(&r, true);
    while (good && *r.at != '\0') good = read_rule(&r);
    good = good && check_names(&r) && rules_check_left_recursion(r.rules, error) == HEARTH_OK;
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
