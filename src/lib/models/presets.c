/* A sorted list of presets, each with a count of its references, and the instance's: see presets.h. */
#include "lib/models/presets.h"

#include "base/error.h"
#include "base/memory.h"
#include "chat/chat.h"
#include "lib/models/loaded_model.h"
#include "lib/models/model_names.h"
#include "lib/parameters/sampling.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { PRESETS_MAX = 1000 };

/* What is handed out is `shown`, whose strings it owns. */
struct owned {
    hearth_preset shown;
    atomic_int refs;
};

struct presets {
    pthread_mutex_t mutex;
    struct owned *v[PRESETS_MAX];
    size_t n;
};

/* ---- Names ---- */

/* Bytes of a name without a tag ":latest", which is ignored as in a model's. */
static size_t length_of(const char *name)
{
    static const char tag[] = ":latest";
    size_t len = strlen(name), n = sizeof tag - 1;
    return len > n && strcmp(name + len - n, tag) == 0 ? len - n : len;
}

/* As strcmp(), of a name without its tag and another. */
static int compare(const char *bare, const char *name)
{
    size_t len = length_of(name);
    int order = strncmp(bare, name, len);
    return order == 0 && bare[len] != '\0' ? 1 : order;
}

/* ---- One ---- */

static struct owned *copy_of(const hearth_preset *preset)
{
    struct owned *own = mem_alloc(sizeof *own);
    own->refs = 1;
    own->shown = *preset;
    own->shown.name = mem_strndup(preset->name, length_of(preset->name));
    own->shown.model = mem_strdup(preset->model);
    own->shown.system = mem_strdup(preset->system);
    own->shown.template_ = mem_strdup(preset->template_);
    char **stop = mem_alloc((preset->n_stop + 1) * sizeof *stop);
    for (size_t i = 0; i < preset->n_stop; i++) stop[i] = mem_strdup(preset->stop[i]);
    own->shown.stop = (const char *const *)stop;
    /* Lists would be the caller's. */
    own->shown.sampling.dry_breakers = own->shown.sampling.samplers = NULL;
    own->shown.sampling.logit_bias = NULL;
    own->shown.sampling.n_logit_bias = own->shown.sampling.n_dry_breakers = own->shown.sampling.n_samplers = 0;
    return own;
}

void preset_unref(const hearth_preset *preset)
{
    struct owned *own = (struct owned *)preset; /* its first member */
    if (own == NULL || atomic_fetch_sub(&own->refs, 1) > 1) return;
    for (size_t i = 0; i < own->shown.n_stop; i++) free((char *)own->shown.stop[i]);
    free((void *)own->shown.stop);
    free((char *)own->shown.name);
    free((char *)own->shown.model);
    free((char *)own->shown.system);
    free((char *)own->shown.template_);
    free(own);
}

static const hearth_preset *ref(struct owned *own)
{
    atomic_fetch_add(&own->refs, 1);
    return &own->shown;
}

/* ---- The list ---- */

struct presets *presets_open(void)
{
    struct presets *presets = mem_alloc(sizeof *presets);
    pthread_mutex_init(&presets->mutex, NULL);
    return presets;
}

void presets_close(struct presets *presets)
{
    for (size_t i = 0; i < presets->n; i++) preset_unref(&presets->v[i]->shown);
    pthread_mutex_destroy(&presets->mutex);
    free(presets);
}

/* Where the name is, or where it would be. With the mutex. */
static size_t place_of(const struct presets *presets, const char *name, bool *is_there)
{
    size_t i = 0;
    while (i < presets->n && compare(presets->v[i]->shown.name, name) < 0) i++;
    *is_there = i < presets->n && compare(presets->v[i]->shown.name, name) == 0;
    return i;
}

int presets_set(struct presets *presets, const hearth_preset *preset, hearth_error *error)
{
    struct owned *own = copy_of(preset), *before = NULL;
    bool is_there;
    pthread_mutex_lock(&presets->mutex);
    size_t i = place_of(presets, preset->name, &is_there);
    bool fits = is_there || presets->n < PRESETS_MAX;
    if (is_there) before = presets->v[i];
    if (fits && !is_there) {
        memmove(&presets->v[i + 1], &presets->v[i], (presets->n - i) * sizeof(struct owned *));
        presets->n++;
    }
    if (fits) presets->v[i] = own;
    pthread_mutex_unlock(&presets->mutex);
    preset_unref(fits ? (before == NULL ? NULL : &before->shown) : &own->shown);
    return fits ? HEARTH_OK
                : error_set(error, HEARTH_BUSY, "there are %d presets: remove one before adding another", PRESETS_MAX);
}

bool presets_remove(struct presets *presets, const char *name)
{
    struct owned *own = NULL;
    bool is_there;
    pthread_mutex_lock(&presets->mutex);
    size_t i = place_of(presets, name, &is_there);
    if (is_there) {
        own = presets->v[i];
        presets->n--;
        memmove(&presets->v[i], &presets->v[i + 1], (presets->n - i) * sizeof(struct owned *));
    }
    pthread_mutex_unlock(&presets->mutex);
    if (own != NULL) preset_unref(&own->shown);
    return is_there;
}

const hearth_preset *presets_find(struct presets *presets, const char *name)
{
    bool is_there;
    pthread_mutex_lock(&presets->mutex);
    size_t i = place_of(presets, name, &is_there);
    const hearth_preset *found = is_there ? ref(presets->v[i]) : NULL;
    pthread_mutex_unlock(&presets->mutex);
    return found;
}

const hearth_preset *presets_at(struct presets *presets, size_t i)
{
    pthread_mutex_lock(&presets->mutex);
    const hearth_preset *found = i < presets->n ? ref(presets->v[i]) : NULL;
    pthread_mutex_unlock(&presets->mutex);
    return found;
}

/* ---- The instance's ---- */

/* The texts of a model's own tokens do not matter for that. */
static int check_template(const char *source, hearth_error *error)
{
    const struct chat_template_params params = {.source = source, .bos = "", .eos = ""};
    hearth_error why;
    struct chat_template *compiled = chat_template_open(&params, &why);
    if (compiled == NULL)
        return error_at(error, HEARTH_INVALID, "template", "'template' cannot be used: %s", why.message);
    chat_template_close(compiled);
    return HEARTH_OK;
}

static int check(const hearth *instance, const hearth_preset *preset, hearth_error *error)
{
    if (preset->name == NULL || preset->name[0] == '\0')
        return error_at(error, HEARTH_INVALID, "name", "a preset needs a name");
    if (preset->model == NULL) return error_at(error, HEARTH_INVALID, "model", "a preset needs a model");
    if (instance_knows_model(instance, preset->name))
        return error_at(error, HEARTH_INVALID, "name", "'%s' is a model: choose another name", preset->name);
    for (size_t i = 0; i < preset->n_stop; i++)
        if (preset->stop[i][0] == '\0') return error_at(error, HEARTH_INVALID, "stop", "a stop string is empty");
    int rc = sampling_check(&preset->sampling, INT32_MAX, error);
    return rc == HEARTH_OK && preset->template_ != NULL ? check_template(preset->template_, error) : rc;
}

/* The preset with what it leaves open taken from the one that it is made of. */
static hearth_preset over(const hearth_preset *preset, const hearth_preset *base)
{
    hearth_preset all = *preset;
    all.model = base->model;
    if (all.system == NULL) all.system = base->system;
    if (all.template_ == NULL) all.template_ = base->template_;
    if (all.n_stop == 0) {
        all.stop = base->stop;
        all.n_stop = base->n_stop;
    }
    if (all.max_tokens == HEARTH_UNSET) all.max_tokens = base->max_tokens;
    sampling_take(&all.sampling, &base->sampling);
    return all;
}

int hearth_set_preset(hearth *instance, const hearth_preset *preset, hearth_error *error)
{
    hearth_error own;
    if (error == NULL) error = &own;
    if (check(instance, preset, error) != HEARTH_OK) return (int)error->code;
    const hearth_preset *base = hearth_find_preset(instance, preset->model);
    hearth_preset all = base == NULL ? *preset : over(preset, base);
    int rc = HEARTH_OK;
    if (!instance_knows_model(instance, all.model))
        rc = error_at(error, HEARTH_NOT_FOUND, "model", "model '%s' does not exist", all.model);
    if (rc == HEARTH_OK) rc = presets_set(instance->presets, &all, error);
    preset_unref(base);
    return rc;
}

int hearth_remove_preset(hearth *instance, const char *name, hearth_error *error)
{
    if (presets_remove(instance->presets, name)) return HEARTH_OK;
    return error_at(error, HEARTH_NOT_FOUND, "name", "there is no preset '%s'", name);
}

const hearth_preset *hearth_find_preset(const hearth *instance, const char *name)
{
    return instance_knows_model(instance, name) ? NULL : presets_find(instance->presets, name);
}

const hearth_preset *hearth_preset_at(const hearth *instance, size_t i)
{
    return presets_at(instance->presets, i);
}

void hearth_release_preset(const hearth_preset *preset)
{
    preset_unref(preset);
}
