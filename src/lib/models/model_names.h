/* Finds models of an instance by name: of the configuration, or added later; removed ones are not found. Any thread. */
#ifndef LIB_MODELS_MODEL_NAMES_H
#define LIB_MODELS_MODEL_NAMES_H

#include "hearth.h"
#include "lib/models/entry.h"

/* Whether a model that was neither removed nor left out has that name or alias, loaded, loading or not read yet. */
bool instance_knows_model(const struct hearth *instance, const char *name);

/* The model of that name or alias (NULL: the first). NULL: there is none, and the error lists the names. */
struct model_entry *instance_find_model(const struct hearth *instance, const char *name, hearth_error *error);

/* The same among the models of that type; a NULL name is server.default_model or else the first of the type. Where
 * server.any_model_name is set, an unknown name for a chat is server.default_model or else the only chat model. */
struct model_entry *instance_pick_model(const struct hearth *instance, const char *name, hearth_model_type type,
                                        hearth_error *error);

#endif
