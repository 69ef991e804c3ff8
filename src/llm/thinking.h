/* The reasoning budget of a reply. It counts tokens from the start tag to an end tag. When the budget is used up, it
 * forces the tokens of a message and the end tag. A new start tag begins a new budget. Belongs to one sampler and is
 * used on its thread. */
#ifndef LLM_THINKING_H
#define LLM_THINKING_H

#include "llm/sampler.h"

struct thinking;

/* Accepts the tokens of `how->prefill`, which may begin the reasoning. */
struct thinking *thinking_open(const struct llm_model *model, const struct llm_thinking *how);
void thinking_close(struct thinking *thinking);

/* The token that must come next; -1: any. */
int32_t thinking_forced(const struct thinking *thinking);

/* Whether the reply is within its reasoning. */
bool thinking_is_on(const struct thinking *thinking);

void thinking_accept(struct thinking *thinking, int32_t token);

/* The tokens of the end tag that came last; empty before the first, and after a new start. */
struct tokens thinking_end(const struct thinking *thinking);

#endif
