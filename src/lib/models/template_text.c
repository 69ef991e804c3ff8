/* The text of a model's chat template: see template_text.h. */
#include "lib/models/template_text.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static char *read_text_file(const char *path, hearth_error *error)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        error_at(error, HEARTH_IO, path, "cannot read %s: %s", path, strerror(errno));
        return NULL;
    }
    struct buf text = {0};
    char chunk[4096];
    size_t n;
    while ((n = fread(chunk, 1, sizeof chunk, file)) > 0) buf_append(&text, chunk, n);
    fclose(file);
    return buf_take(&text);
}

/* The template that llama.cpp, too, uses for a model without one. */
static const char chatml[] =
    "{%- for message in messages -%}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}"
    "{%- endfor -%}{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}";

char *model_template_text(const struct config_model *config, const struct llm_model *weights, hearth_error *error)
{
    if (config->jinja_file != NULL) return read_text_file(config->jinja_file, error);
    const char *own = llm_model_info(weights)->chat_template;
    return mem_strdup(own != NULL ? own : chatml);
}

struct chat_template_params model_template_params(const struct config_model *config, const struct llm_model *weights,
                                                  const char *source)
{
    const struct llm_model_info *info = llm_model_info(weights);
    return (struct chat_template_params){.source = source,
                                         .bos = info->bos_text,
                                         .eos = info->eos_text,
                                         .adds_bos = info->adds_bos,
                                         .adds_eos = info->adds_eos,
                                         .kwargs_json = config->chat_template_kwargs};
}
