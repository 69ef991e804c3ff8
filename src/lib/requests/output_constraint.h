/* What a reply must look like, in the words of a sampler: from a chat's format, or from what a completion says. Any
 * thread. */
#ifndef LIB_REQUESTS_OUTPUT_CONSTRAINT_H
#define LIB_REQUESTS_OUTPUT_CONSTRAINT_H

#include "base/tokens.h"
#include "chat/chat.h"
#include "llm/sampler.h"

struct output_constraint {
    struct llm_grammar grammar;
    struct llm_thinking thinking;
    char *schema_grammar; /* what follows is what the above borrows */
    char **patterns, **words;
    size_t n_patterns, n_words;
    struct tokens tokens;
};

/* format: NULL for a completion. It and the parameters must outlive the constraint. On failure there is nothing to
 * close. */
int output_constraint_open(struct output_constraint *constraint, const struct llm_model *weights,
                           const hearth_params *params, const struct chat_format *format, hearth_error *error);
void output_constraint_close(struct output_constraint *constraint);

/* Appends the special tokens whose text belongs to the reply. */
void output_shown_tokens(const struct llm_model *weights, const struct chat_format *format, struct tokens *shown);

#endif
