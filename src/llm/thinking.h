/* The budget of a reply's reasoning: counts its tokens from the start marker to an end marker, and when they are used
 * up says which tokens must come: a message and the end marker. A new start begins a new budget. Belongs to one
 * sampler. */
#ifndef LLM_THINKING_H
#define LLM_THINKING_H

#include "llm/sampler.h"

struct thinking;

/* What the prompt's end (`prefill`) says is taken in. */
struct thinking *thinking_open(const struct llm_model *model, const struct llm_thinking *how);
void thinking_close(struct thinking *thinking);

/* The token that must be picked next; -1: any. */
int32_t thinking_forced(const struct thinking *thinking);

/* The reasoning has begun and not ended. */
bool thinking_is_on(const struct thinking *thinking);

void thinking_accept(struct thinking *thinking, int32_t token);

/* The end marker that was met last; none before the first, and after a new start. */
struct tokens thinking_end(const struct thinking *thinking);

#endif
