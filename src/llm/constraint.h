/* What a reply must match: a grammar, from its beginning on or from the first trigger on. A token is asked about before
 * it is accepted, which costs as much as the token is long; the whole vocabulary is gone through only where a token
 * that was picked does not fit. Belongs to one sampler. */
#ifndef LLM_CONSTRAINT_H
#define LLM_CONSTRAINT_H

#include "llm/sampler.h"

struct constraint;

/* NULL: HEARTH_INVALID, param "grammar". */
struct constraint *constraint_open(const struct llm_model *model, const struct llm_grammar *grammar,
                                   hearth_error *error);
void constraint_close(struct constraint *constraint);

/* Whether the reply may go on with this token. False for all of them where the grammar branches beyond measure. */
bool constraint_allows(struct constraint *constraint, int32_t token);

/* The reply goes on with this token. False: it may not, and nothing has changed. */
bool constraint_accept(struct constraint *constraint, int32_t token);

/* The tokens that the reply may go on with: of each whether it is one. Valid until the next call. */
const bool *constraint_allowed(struct constraint *constraint);

/* A trigger has not come yet: nearly every token is allowed, and to find the others means to search the reply once for
 * each of the vocabulary. */
bool constraint_awaits_trigger(const struct constraint *constraint);

/* How often the whole vocabulary was gone through. */
size_t constraint_passes(const struct constraint *constraint);

#endif
