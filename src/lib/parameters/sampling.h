/* How a request's tokens are picked: what it says itself, then what was configured, then what the model's file advises,
 * then the defaults. Pure functions; any thread. */
#ifndef LIB_PARAMETERS_SAMPLING_H
#define LIB_PARAMETERS_SAMPLING_H

#include "config/config.h"
#include "hearth.h"
#include "llm/model.h"

/* Fails where a value cannot be meant; param names the field. */
int sampling_check(const hearth_sampling *sampling, int32_t n_vocab, hearth_error *error);

/* Fails where the configuration names a sampler that there is not; param names the key. */
int sampling_check_config(const struct config_model *config, hearth_error *error);

/* With everything given. What it points at belongs to what was given, to the configuration and to the model. */
hearth_sampling sampling_complete(const hearth_sampling *given, const struct config_model *config,
                                  const struct llm_model *model);

#endif
