/* The output constraint of a reply at the level of tokens: a grammar. It holds from the reply's first token on or, if
 * it is lazy, from the first trigger on. Checking one token costs time linear in its bytes; the mask over the whole
 * vocabulary is computed only after a sampled token was rejected. Belongs to one sampler and is used on its thread. */
#ifndef LLM_CONSTRAINT_H
#define LLM_CONSTRAINT_H

#include "llm/sampler.h"

struct constraint;

/* NULL: HEARTH_INVALID, param "grammar". */
struct constraint *constraint_open(const struct llm_model *model, const struct llm_grammar *grammar,
                                   hearth_error *error);
void constraint_close(struct constraint *constraint);

/* Whether the grammar accepts this token next. False for every token once the grammar's work budget is exceeded
 * (grammar.h). */
bool constraint_allows(struct constraint *constraint, int32_t token);

/* Advances by this token. False: the grammar rejects it, and nothing has changed. */
bool constraint_accept(struct constraint *constraint, int32_t token);

/* The mask of the next token: n_vocab entries, true where the grammar accepts the token. Valid until the next call. */
const bool *constraint_allowed(struct constraint *constraint);

/* Appends the text that the grammar leaves no choice in, `max` bytes at most; where blanks are optional, those that the
 * reply had at such a place before. Nothing where it does not hold yet. It is a guess: the sampled text may differ in
 * blanks. */
void constraint_guess(struct constraint *constraint, struct buf *text, size_t max);

/* Whether the grammar is lazy and no trigger has come yet. Then nearly every token is allowed, and the mask would need
 * a search for triggers in the reply for each token of the vocabulary. */
bool constraint_awaits_trigger(const struct constraint *constraint);

/* How often the mask over the whole vocabulary was computed. */
size_t constraint_passes(const struct constraint *constraint);

#endif
