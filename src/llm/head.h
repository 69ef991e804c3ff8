/* Heads that guess for a model, and the hidden rows of the model that they read. */
#ifndef LLM_HEAD_H
#define LLM_HEAD_H

#include "llm/context.h"

#include <gguf.h>

struct llama_model;

/* The head that the file is; layers.n 0: it is none. */
struct llm_eagle llm_eagle_of(const struct llama_model *model, const struct gguf_context *file);

/* The context keeps the hidden rows that the parameters ask for, from its first call on. */
void llm_keep_rows(struct llm_context *context, const struct llm_context_params *params);

#endif
