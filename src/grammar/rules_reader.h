/* What the two halves of reading GBNF share: rules.c reads names, groups and repetitions, rules_symbols.c what stands
 * for characters and tokens. Lives on the stack of rules_read(). */
#ifndef GRAMMAR_RULES_READER_H
#define GRAMMAR_RULES_READER_H

#include "grammar/rules.h"

#define RULES_MAX_ITEMS (1 << 20) /* of all rules together */

/* A rule that is being read. */
struct draft {
    struct rules_item *v;
    size_t len, cap;
    size_t last; /* where the last symbol begins: what a repetition repeats */
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
    struct name *names; /* a table of 2^k places, found by hash; text NULL: free */
    size_t n_names, names_cap;
    size_t n_drafted; /* items of unfinished rules */
    int depth;
    hearth_error *error;
};

/* Say what is wrong, and where; all return false. */
bool rules_fault(struct reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool rules_expected(struct reader *r, const char *what);
bool rules_too_large(struct reader *r);

/* The list, with room for one more. */
void *rules_with_room(void *v, size_t len, size_t *cap, size_t item);
bool rules_put(struct reader *r, struct draft *draft, enum rules_kind kind, uint32_t value);

/* Each reads one symbol at r->at into the draft. */
bool rules_read_literal(struct reader *r, struct draft *draft);
bool rules_read_class(struct reader *r, struct draft *draft);
bool rules_read_any(struct reader *r, struct draft *draft);
bool rules_read_token(struct reader *r, struct draft *draft);

#endif
