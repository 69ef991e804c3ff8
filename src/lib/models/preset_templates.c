/* A short list of compiled templates, the one used last first: see preset_templates.h. */
#include "lib/models/preset_templates.h"

#include "base/memory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

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

/* Moves the i-th to the front, or puts one there in its place. */
static void put_first(struct preset_templates *templates, size_t i, struct preset_template *template_)
{
    memmove(&templates->v[1], &templates->v[0], i * sizeof(struct preset_template *));
    templates->v[0] = template_;
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
    if (found != NULL) {
        put_first(templates, i, found);
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
