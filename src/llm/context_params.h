/* The parameters of a context as llama.cpp takes them. No state; any thread. */
#ifndef LLM_CONTEXT_PARAMS_H
#define LLM_CONTEXT_PARAMS_H

#include "llm/context.h"

#include <llama.h>

/* Translates them all, and refuses invalid ones by name. */
int llm_translate_params(struct llama_context_params *out, const struct llm_context_params *params,
                         const struct llm_model_info *info, hearth_error *error);

/* The part of it for the type of cells. */
int llm_translate_cells(struct llama_context_params *out, const struct llm_context_params *params, hearth_error *error);

/* Refuses cells for which there is no memory. */
int llm_check_room(const struct llm_context_params *params, const struct llm_model_info *info, hearth_error *error);

#endif
