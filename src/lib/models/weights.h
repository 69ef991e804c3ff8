/* A model's weights, as its section of the configuration wants them opened. Any thread. */
#ifndef LIB_MODELS_WEIGHTS_H
#define LIB_MODELS_WEIGHTS_H

#include "config/config.h"
#include "llm/model.h"

/* Fails as llm_model_open() does; so does `progress` mean what it means there. */
struct llm_model *weights_open(const struct config_model *config, bool (*progress)(void *ud, float fraction), void *ud,
                               hearth_error *error);

#endif
