/* The models of an instance in lists: models that were removed while the server runs keep their index, and are passed
 * over here. No state; any thread. */
#ifndef SERVE_CORE_MODELS_H
#define SERVE_CORE_MODELS_H

#include "hearth.h"

/* Describes the first model from index *i on that is there, and sets *i to its index; false: there is none. */
bool models_next(const hearth *instance, size_t *i, hearth_model_info *info);

/* Describes the model of that name, which is no alias; false: there is none. */
bool models_find(const hearth *instance, const char *name, hearth_model_info *info);

/* Describes the first preset from index *i on whose model is there, as that model under the preset's name, and sets *i
 * to its index. *preset is a reference, which the names are valid with: hearth_release_preset(). False: there is none.
 */
bool models_next_preset(const hearth *instance, size_t *i, hearth_model_info *info, const hearth_preset **preset);

/* Whether that is the model's name, or one of its aliases. */
bool models_is_called(const hearth_model_info *info, const char *name);

#endif
