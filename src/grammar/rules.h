/* The parsed rules of a GBNF grammar: made by rules_read(), matched by grammar.c. Immutable once read; any thread. */
#ifndef GRAMMAR_RULES_H
#define GRAMMAR_RULES_H

#include "grammar/grammar.h"

enum rules_kind {
    RULES_END,      /* of a rule */
    RULES_OR,       /* the next alternative begins, and ends at the item `value` */
    RULES_REF,      /* the rule `value` */
    RULES_CHAR,     /* the character `value` */
    RULES_CLASS,    /* a character of the class `value` */
    RULES_TOKEN,    /* the token `value` */
    RULES_NOT_TOKEN /* any other */
};

struct rules_item {
    enum rules_kind kind;
    uint32_t value;
};

struct rules_range {
    uint32_t low, high; /* inclusive */
};

struct rules_class {
    size_t first, n; /* its ranges in rules.ranges */
    bool negated;
};

struct rules {
    struct rules_item *items; /* of all rules, one after the other */
    size_t n_items, items_cap;
    uint32_t *starts; /* of each rule, where its items begin */
    uint32_t *ends;   /* likewise, where its first alternative ends: at a RULES_OR or RULES_END */
    size_t n, starts_cap, ends_cap;
    struct rules_range *ranges;
    size_t n_ranges, ranges_cap;
    struct rules_class *classes;
    size_t n_classes, classes_cap;
    uint32_t root;
};

/* NULL: as grammar_open() says. */
struct rules *rules_read(const char *text, const struct grammar_vocabulary *vocabulary, hearth_error *error);
void rules_free(struct rules *rules);

/* Refuses left-recursive rules, whose expansion would not end. */
int rules_check_left_recursion(const struct rules *rules, hearth_error *error);

#endif
