/* Where the chat template of a model comes from. Any thread; a file is read. */
#ifndef LIB_MODELS_TEMPLATE_TEXT_H
#define LIB_MODELS_TEMPLATE_TEXT_H

#include "chat/chat.h"
#include "config/config.h"
#include "hearth.h"
#include "llm/model.h"

/* The template in jinja_file, else the model's own, else ChatML. The caller frees it. NULL: jinja_file cannot be read.
 */
char *model_template_text(const struct config_model *config, const struct llm_model *weights, hearth_error *error);

/* What a template of the model's is compiled with; borrows all of them. */
struct chat_template_params model_template_params(const struct config_model *config, const struct llm_model *weights,
                                                  const char *source);

#endif
