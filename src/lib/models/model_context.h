/* What a model's llama.cpp context is opened with: its window, cells, sequences and layout, from the model's section of
 * the configuration and facts of the model. Any thread. */
#ifndef LIB_MODELS_MODEL_CONTEXT_H
#define LIB_MODELS_MODEL_CONTEXT_H

#include "config/config.h"
#include "hearth.h"
#include "llm/context.h"
#include "llm/model.h"

/* The context window of a slot, in tokens. Beyond what it was trained for a model writes nonsense, unless RoPE scaling
 * stretches its positions. */
int32_t model_window(const struct config_model *config, const struct llm_model_info *info);

/* Whether layers with a sliding window keep all of their cells. A window that has wrapped around has its cells in
 * another order, and gives other bits, which deterministic mode must not. Beside a recurrent state, which cannot be
 * cut, whole windows would be of no use. */
bool model_keeps_full_windows(const struct config_model *config, const struct llm_model_info *info);

/* Fails where the settings contradict each other. */
int model_context_params(const struct config_model *config, const struct llm_model_info *info,
                         struct llm_context_params *params, hearth_error *error);

#endif
