/* Where chat templates come from, and those of presets, compiled: see preset_templates.h. */
#include "lib/models/preset_templates.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- A model's template ---- */

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

/* ---- Those of presets ---- */

enum { KEPT = 8 };

struct preset_template {
    char *source;
    struct chat_template *compiled;
    atomic_int refs; /* the list's is one */
};

struct preset_templates {
    pthread_mutex_t mutex;
    struct preset_template *v[KEPT]; /* what is behind the last is NULL */
};

struct preset_templates *preset_templates_open(void)
{
    struct preset_templates *templates = mem_alloc(sizeof *templates);
    pthread_mutex_init(&templates->mutex, NULL);
    return templates;
}

void preset_template_unref(struct preset_template *template_)
{
    if (template_ == NULL || atomic_fetch_sub(&template_->refs, 1) > 1) return;
    chat_template_close(template_->compiled);
    free(template_->source);
    free(template_);
}

void preset_templates_close(struct preset_templates *templates)
{
    if (templates == NULL) return;
    for (size_t i = 0; i < KEPT; i++) preset_template_unref(templates->v[i]);
    pthread_mutex_destroy(&templates->mutex);
    free(templates);
}

static struct preset_template *compile(const struct chat_template_params *params, hearth_error *error)
{
    struct chat_template *compiled = chat_template_open(params, error);
    if (compiled == NULL) return NULL;
    struct preset_template *template_ = mem_alloc(sizeof *template_);
    template_->source = mem_strdup(params->source);
    template_->compiled = compiled;
    template_->refs = 1;
    return template_;
}

struct preset_template *preset_templates_take(struct preset_templates *templates,
                                              const struct chat_template_params *params, hearth_error *error)
{
    pthread_mutex_lock(&templates->mutex);
    size_t i = 0;
    while (i < KEPT && templates->v[i] != NULL && strcmp(templates->v[i]->source, params->source) != 0) i++;
    struct preset_template *found = i < KEPT ? templates->v[i] : NULL, *last = NULL;
    if (found == NULL) {
        found = compile(params, error);
        if (i == KEPT) i--;
        if (found != NULL) last = templates->v[i];
    }
    if (found != NULL) { /* first of all, in the place of the last where it is new */
        memmove(&templates->v[1], &templates->v[0], i * sizeof(struct preset_template *));
        templates->v[0] = found;
        atomic_fetch_add(&found->refs, 1);
    }
    pthread_mutex_unlock(&templates->mutex);
    preset_template_unref(last);
    return found;
}

const struct chat_template *preset_template_compiled(const struct preset_template *template_)
{
    return template_->compiled;
}
