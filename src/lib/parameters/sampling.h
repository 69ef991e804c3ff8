/* The sampling parameters of a request: checks them, and completes those that are not given, from the configuration,
 * then the model's file, then the defaults. Pure functions; any thread. */
#ifndef LIB_PARAMETERS_SAMPLING_H
#define LIB_PARAMETERS_SAMPLING_H

#include "config/config.h"
#include "hearth.h"
#include "llm/model.h"

/* Fails with HEARTH_INVALID where a value is out of range; error->param names the field. */
int sampling_check(const hearth_sampling *sampling, int32_t n_vocab, hearth_error *error);

/* Fails with HEARTH_INVALID where the configuration names an unknown sampler; error->param names the key. */
int sampling_check_config(const struct config_model *config, hearth_error *error);

/* Takes from `others` the numbers and the seed that are not given. */
void sampling_take(hearth_sampling *sampling, const hearth_sampling *others);

/* The parameters with every value filled in. Lists are borrowed from `given`, the configuration or the model. */
hearth_sampling sampling_complete(const hearth_sampling *given, const struct config_model *config,
                                  const struct llm_model *model);

/* Gives the biases of texts to the texts' tokens. What it returns is the new list of all biases, which `sampling`
 * borrows and the caller frees; NULL: no bias has a text. */
hearth_bias *sampling_spell_biases(hearth_sampling *sampling, const struct llm_model *model);

#endif
