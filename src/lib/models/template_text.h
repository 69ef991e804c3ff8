/* Where the chat template of a model comes from. Any thread; a file is read. */
#ifndef LIB_MODELS_TEMPLATE_TEXT_H
#define LIB_MODELS_TEMPLATE_TEXT_H

#include "config/config.h"
#include "hearth.h"
#include "llm/model.h"

/* The template in jinja_file, else the model's own, else ChatML. The caller frees it. NULL: jinja_file cannot be read.
 */
char *model_template_text(const struct config_model *config, const struct llm_model *weights, hearth_error *error);

#endif
