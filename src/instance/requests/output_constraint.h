/* The output constraint of a request (grammar with its triggers, JSON schema, reasoning budget) as llm/sampler.h wants
 * it: from a chat's format, or from a completion's parameters. Any thread. */
#ifndef INSTANCE_REQUESTS_OUTPUT_CONSTRAINT_H
#define INSTANCE_REQUESTS_OUTPUT_CONSTRAINT_H

#include "base/tokens.h"
#include "chat/chat.h"
#include "llm/sampler.h"

struct output_constraint {
    struct llm_grammar grammar;
    struct llm_thinking thinking;
    char *unenforced;     /* of a completion's schema: chat_format.unenforced; owned from here on */
    char *schema_grammar; /* from here on: borrowed by grammar and thinking */
    char **patterns, **words;
    size_t n_patterns, n_words;
    struct tokens tokens;
};

/* format: NULL for a completion. Format and parameters must outlive the constraint. On failure there is nothing to
 * close. */
int output_constraint_open(struct output_constraint *constraint, const struct llm_model *weights,
                           const hearth_params *params, const struct chat_format *format, hearth_error *error);
void output_constraint_close(struct output_constraint *constraint);

/* Appends the special tokens whose text belongs to the reply (those that the format preserves, or
 * waits for). */
void output_shown_tokens(const struct llm_model *weights, const struct chat_format *format, struct tokens *shown);

#endif
