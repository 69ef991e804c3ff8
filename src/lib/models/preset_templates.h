/* Where the chat template of a model comes from; and the templates of presets that a loaded model's requests have
 * named, compiled: a few, those that were used least recently go. Any thread; the lock is held while one is compiled,
 * which only requests under such presets wait for. */
#ifndef LIB_MODELS_PRESET_TEMPLATES_H
#define LIB_MODELS_PRESET_TEMPLATES_H

#include "chat/chat.h"
#include "config/config.h"
#include "hearth.h"
#include "llm/model.h"

/* ---- A model's template ---- */

/* The template in jinja_file, else the model's own, else ChatML. The caller frees it. NULL: jinja_file cannot be read.
 */
char *model_template_text(const struct config_model *config, const struct llm_model *weights, hearth_error *error);

/* What a template of the model's is compiled with; borrows all of them. */
struct chat_template_params model_template_params(const struct config_model *config, const struct llm_model *weights,
                                                  const char *source);

/* ---- Those of presets ---- */

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
