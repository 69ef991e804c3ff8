/* Names of an instance: of models, of the configuration or added later, and presets.
 *
 * A preset is a name (a tag ":latest" is ignored) for a model with a system message and sampling parameters of its own,
 * which hold where a request says nothing else. A request has a reference to the preset that it was submitted under, so
 * that one may be replaced or removed at any time.
 *
 * Any thread; the presets' lock is held for copies and comparisons alone. */
#ifndef LIB_MODELS_MODEL_NAMES_H
#define LIB_MODELS_MODEL_NAMES_H

#include "hearth.h"
#include "lib/models/entry.h"

/* The presets of an instance, which hearth.h sets, finds and removes. */
struct presets *presets_open(void);
void presets_close(struct presets *presets);

/* Whether a model that was neither removed nor left out has that name or alias, loaded, loading or not read yet. */
bool instance_knows_model(const struct hearth *instance, const char *name);

/* The model of that name or alias (NULL: the first). NULL: there is none, and the error lists the names. */
struct model_entry *instance_find_model(const struct hearth *instance, const char *name, hearth_error *error);

/* The same among the models of that type; a NULL name is server.default_model or else the first of the type. Where
 * server.any_model_name is set, an unknown name for a chat is server.default_model or else the only chat model. */
struct model_entry *instance_pick_model(const struct hearth *instance, const char *name, hearth_model_type type,
                                        hearth_error *error);

#endif
