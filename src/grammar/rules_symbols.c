/* Parses the symbols of a grammar (characters, literals, classes, tokens): see rules_reader.h. No state of its own. */
#include "grammar/rules_reader.h"

#include <stdlib.h>
#include <string.h>

/* ---- Characters ---- */

static bool read_hex(struct reader *r, int digits, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < digits; i++) {
        char c = r->at[0];
        bool is_digit = c >= '0' && c <= '9';
        uint32_t digit = is_digit ? (uint32_t)(c - '0') : (uint32_t)((c | 32) - 'a' + 10);
        if (!is_digit && ((c | 32) < 'a' || (c | 32) > 'f')) return rules_expected(r, "a hexadecimal digit");
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
    return rules_expected(r, "one of the letters that may follow '\\'");
}

static bool read_char(struct reader *r, uint32_t *out)
{
    unsigned char c = (unsigned char)*r->at;
    if (c == '\\') return read_escape(r, out);
    if (c == '\0') return rules_error(r, "it ends in the middle of a symbol");
    int more = c < 0x80 ? 0 : c >= 0xF0 ? 3 : c >= 0xE0 ? 2 : c >= 0xC0 ? 1 : -1;
    if (more < 0) return rules_error(r, "it is not valid UTF-8");
    *out = more == 0 ? c : c & (0x3FU >> more);
    for (r->at++; more > 0; more--, r->at++) {
        if (((unsigned char)*r->at & 0xC0) != 0x80) return rules_error(r, "it is not valid UTF-8");
        *out = *out << 6 | ((unsigned char)*r->at & 0x3F);
    }
    return true;
}

/* ---- Symbols ---- */

bool rules_read_literal(struct reader *r, struct draft *draft)
{
    r->at++;
    while (*r->at != '"') {
        uint32_t c = 0;
        if (!read_char(r, &c) || !rules_put(r, draft, RULES_CHAR, c)) return false;
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
    if (rules->n_ranges >= RULES_MAX_ITEMS) return rules_too_large(r);
    rules->ranges = rules_grow(rules->ranges, rules->n_ranges, &rules->ranges_cap, sizeof *rules->ranges);
    rules->ranges[rules->n_ranges++] = range;
    return true;
}

static bool put_class(struct reader *r, struct draft *draft, const struct rules_class *class)
{
    struct rules *rules = r->rules;
    rules->classes = rules_grow(rules->classes, rules->n_classes, &rules->classes_cap, sizeof *rules->classes);
    rules->classes[rules->n_classes] = *class;
    rules->classes[rules->n_classes].n = rules->n_ranges - class->first;
    return rules_put(r, draft, RULES_CLASS, (uint32_t)rules->n_classes++);
}

bool rules_read_class(struct reader *r, struct draft *draft)
{
    r->at++;
    struct rules_class class = {.first = r->rules->n_ranges, .negated = *r->at == '^'};
    if (class.negated) r->at++;
    while (*r->at != ']')
        if (!read_range(r)) return false;
    r->at++;
    return put_class(r, draft, &class);
}

bool rules_read_any(struct reader *r, struct draft *draft)
{
    r->at++;
    return put_class(r, draft, &(struct rules_class){.first = r->rules->n_ranges, .negated = true});
}

/* <[17]> is a token by its number, <think> one by its text. */
bool rules_read_token(struct reader *r, struct draft *draft)
{
    bool negated = *r->at == '!';
    if (negated) r->at++;
    const char *end = strchr(r->at, '>');
    if (*r->at != '<' || end == NULL) return rules_expected(r, "a token as <text> or <[number]>");
    const struct grammar_vocabulary *vocabulary = r->vocabulary;
    int32_t token = -1;
    if (r->at[1] == '[')
        token = (int32_t)strtol(r->at + 2, NULL, 10);
    else if (vocabulary != NULL)
        token = vocabulary->token_of(vocabulary->ud, r->at, (size_t)(end + 1 - r->at));
    if (token < 0) return rules_expected(r, "one token of the model's");
    r->at = end + 1;
    return rules_put(r, draft, negated ? RULES_NOT_TOKEN : RULES_TOKEN, (uint32_t)token);
}
