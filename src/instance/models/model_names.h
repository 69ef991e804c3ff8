/* Names of an instance: of models, of the configuration or added later, and presets; and chat templates of both.
 *
 * A preset is a name for a model with a system message and sampling parameters of its own, which hold where a request
 * says nothing else. A tag ":latest" of the name is ignored. A request has a reference to the preset that it was
 * submitted under, so that one may be replaced or removed at any time.
 *
 * Any thread; the presets' lock is held for copies and comparisons alone. */
#ifndef INSTANCE_MODELS_MODEL_NAMES_H
#define INSTANCE_MODELS_MODEL_NAMES_H

#include "chat/chat.h"
#include "config/config.h"
#include "hearth.h"
#include "instance/models/loaded_model.h"
#include "llm/model.h"

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

/* ---- Where the chat template of a model comes from ---- */

/* The template in jinja_file, else the model's own, else ChatML. The caller frees it. NULL: jinja_file cannot be read.
 */
char *model_template_text(const struct config_model *config, const struct llm_model *weights, hearth_error *error);

/* The parameters to compile a template of the model's with; borrows all of them. */
struct chat_template_params model_template_params(const struct config_model *config, const struct llm_model *weights,
                                                  const char *source);

/* ---- Templates of presets ----
 * Those that a loaded model's requests have named, compiled: a few, those that were used least recently go. The lock is
 * held while one is compiled, which only requests under such presets wait for. */

struct preset_templates;
struct preset_template;

struct preset_templates *preset_templates_open(void);
void preset_templates_close(struct preset_templates *templates); /* no reference is left */

/* A reference to the template of `params`, compiled. NULL with the error: it cannot be. */
struct preset_template *preset_templates_take(struct preset_templates *templates,
                                              const struct chat_template_params *params, hearth_error *error);
void preset_template_unref(struct preset_template *template_); /* NULL is fine */

const struct chat_template *preset_template_compiled(const struct preset_template *template_);

#endif
