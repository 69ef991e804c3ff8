/* Shared by the two halves of the GBNF parser: rules.c parses names, groups and repetitions, rules_symbols.c
 * characters, literals, classes and tokens. A reader lives on the stack of rules_read(). */
#ifndef GRAMMAR_RULES_READER_H
#define GRAMMAR_RULES_READER_H

#include "grammar/rules.h"

#define RULES_MAX_ITEMS (1 << 20) /* of all rules together */

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

/* Set the error, with the line; all return false. */
bool rules_error(struct reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool rules_expected(struct reader *r, const char *what);
bool rules_too_large(struct reader *r);

/* Grows the array, if need be, to hold one more element. */
void *rules_grow(void *v, size_t len, size_t *cap, size_t item);
bool rules_put(struct reader *r, struct draft *draft, enum rules_kind kind, uint32_t value);

/* Each reads one symbol at r->at into the draft. */
bool rules_read_literal(struct reader *r, struct draft *draft);
bool rules_read_class(struct reader *r, struct draft *draft);
bool rules_read_any(struct reader *r, struct draft *draft);
bool rules_read_token(struct reader *r, struct draft *draft);

#endif
