/* Names of models and presets, where they lead, and their chat templates: see model_names.h. */
#include "instance/models/model_names.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/memory.h"
#include "chat/chat.h"
#include "instance/models/loaded_model.h"
#include "instance/parameters/parameters.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PRESETS_MAX = 1000 };

/* Callers get `shown`, whose strings it owns. */
struct owned {
    hearth_preset shown;
    atomic_int refs;
};

struct presets {
    pthread_mutex_t mutex;
    struct owned *v[PRESETS_MAX];
    size_t n;
};

/* ---- Names of presets ---- */

/* Bytes of a name without a tag ":latest", which is ignored as in a model's. */
static size_t length_of(const char *name)
{
    static const char tag[] = ":latest";
    size_t len = strlen(name), n = sizeof tag - 1;
    return len > n && strcmp(name + len - n, tag) == 0 ? len - n : len;
}

/* As strcmp(), of a name without its tag and another. */
static int compare_names(const char *bare, const char *name)
{
    size_t len = length_of(name);
    int order = strncmp(bare, name, len);
    return order == 0 && bare[len] != '\0' ? 1 : order;
}

/* ---- One preset ---- */

static struct owned *copy_of_preset(const hearth_preset *preset)
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

void hearth_release_preset(const hearth_preset *preset)
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

static const hearth_preset *ref_preset(struct owned *own)
{
    atomic_fetch_add(&own->refs, 1);
    return &own->shown;
}

/* ---- The list of presets ---- */

struct presets *presets_open(void)
{
    struct presets *presets = mem_alloc(sizeof *presets);
    pthread_mutex_init(&presets->mutex, NULL);
    return presets;
}

void presets_close(struct presets *presets)
{
    for (size_t i = 0; i < presets->n; i++) hearth_release_preset(&presets->v[i]->shown);
    pthread_mutex_destroy(&presets->mutex);
    free(presets);
}

/* Where the name is, or where it would be. With the mutex. */
static size_t place_of(const struct presets *presets, const char *name, bool *is_there)
{
    size_t i = 0;
    while (i < presets->n && compare_names(presets->v[i]->shown.name, name) < 0) i++;
    *is_there = i < presets->n && compare_names(presets->v[i]->shown.name, name) == 0;
    return i;
}

/* Adds a copy, or replaces the one of that name. HEARTH_BUSY: there are too many. */
static int set_preset(struct presets *presets, const hearth_preset *preset, hearth_error *error)
{
    struct owned *own = copy_of_preset(preset), *before = NULL;
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
    hearth_release_preset(fits ? (before == NULL ? NULL : &before->shown) : &own->shown);
    return fits ? HEARTH_OK
                : error_set(error, HEARTH_BUSY, "there are %d presets: remove one before adding another", PRESETS_MAX);
}

/* A reference to the preset of that name, immutable; NULL: there is none. */
static const hearth_preset *find_preset(struct presets *presets, const char *name)
{
    bool is_there;
    pthread_mutex_lock(&presets->mutex);
    size_t i = place_of(presets, name, &is_there);
    const hearth_preset *found = is_there ? ref_preset(presets->v[i]) : NULL;
    pthread_mutex_unlock(&presets->mutex);
    return found;
}

/* ---- Presets in hearth.h ---- */

static int check_preset(const hearth *instance, const hearth_preset *preset, hearth_error *error)
{
    if (preset->name == NULL || preset->name[0] == '\0')
        return error_at(error, HEARTH_INVALID, "name", "a preset needs a name");
    if (preset->model == NULL) return error_at(error, HEARTH_INVALID, "model", "a preset needs a model");
    if (instance_knows_model(instance, preset->name))
        return error_at(error, HEARTH_INVALID, "name", "'%s' is a model: choose another name", preset->name);
    for (size_t i = 0; i < preset->n_stop; i++)
        if (preset->stop[i][0] == '\0') return error_at(error, HEARTH_INVALID, "stop", "a stop string is empty");
    int rc = sampling_check(&preset->sampling, INT32_MAX, error);
    if (rc != HEARTH_OK || preset->template_ == NULL) return rc;
    /* The texts of a model's own tokens do not matter for that. */
    const struct chat_template_params params = {.source = preset->template_, .bos = "", .eos = ""};
    hearth_error why;
    struct chat_template *compiled = chat_template_open(&params, &why);
    if (compiled == NULL)
        return error_at(error, HEARTH_INVALID, "template", "'template' cannot be used: %s", why.message);
    chat_template_close(compiled);
    return HEARTH_OK;
}

/* The preset with what it leaves open taken from the one that it is made of. */
static hearth_preset preset_over(const hearth_preset *preset, const hearth_preset *base)
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
    if (check_preset(instance, preset, error) != HEARTH_OK) return (int)error->code;
    const hearth_preset *base = hearth_find_preset(instance, preset->model);
    hearth_preset all = base == NULL ? *preset : preset_over(preset, base);
    int rc = HEARTH_OK;
    if (!instance_knows_model(instance, all.model))
        rc = error_at(error, HEARTH_NOT_FOUND, "model", "model '%s' does not exist", all.model);
    if (rc == HEARTH_OK) rc = set_preset(instance->presets, &all, error);
    hearth_release_preset(base);
    return rc;
}

int hearth_remove_preset(hearth *instance, const char *name, hearth_error *error)
{
    struct presets *presets = instance->presets;
    bool is_there;
    pthread_mutex_lock(&presets->mutex);
    size_t i = place_of(presets, name, &is_there);
    struct owned *own = is_there ? presets->v[i] : NULL;
    if (is_there) memmove(&presets->v[i], &presets->v[i + 1], (--presets->n - i) * sizeof(struct owned *));
    pthread_mutex_unlock(&presets->mutex);
    if (own != NULL) hearth_release_preset(&own->shown);
    return is_there ? HEARTH_OK : error_at(error, HEARTH_NOT_FOUND, "name", "there is no preset '%s'", name);
}

const hearth_preset *hearth_find_preset(const hearth *instance, const char *name)
{
    return instance_knows_model(instance, name) ? NULL : find_preset(instance->presets, name);
}

const hearth_preset *hearth_preset_at(const hearth *instance, size_t i)
{
    struct presets *presets = instance->presets;
    pthread_mutex_lock(&presets->mutex);
    const hearth_preset *found = i < presets->n ? ref_preset(presets->v[i]) : NULL;
    pthread_mutex_unlock(&presets->mutex);
    return found;
}

/* ---- Where names lead ---- */

/* The entry of a section of the configuration; NULL: not read yet, or left out. */
static struct model_entry *entry_of(const struct hearth *instance, const struct config_model *section)
{
    size_t n = atomic_load(&instance->n_entries);
    for (size_t i = 0; i < n; i++)
        if (instance->entries[i].config == section) return &instance->entries[i];
    return NULL;
}

static bool is_removed(const struct hearth *instance, const struct config_model *section)
{
    const struct model_entry *entry = entry_of(instance, section);
    return entry != NULL && !entry_is_listed(entry);
}

/* Whether hearth_load() is through with the configuration. */
static bool is_all_read(const struct hearth *instance)
{
    return atomic_load(&instance->n_entries) + atomic_load(&instance->n_left_out) >= instance->config->n_models;
}

static bool is_left_out(const struct hearth *instance, const struct config_model *section)
{
    return is_all_read(instance) && entry_of(instance, section) == NULL;
}

/* The section that the name leads to, of the configuration or of an added model; NULL: none. One that was left out
 * gives its name to an added model. */
static const struct config_model *resolve_model(const struct hearth *instance, const char *name)
{
    const struct config_model *section = config_resolve_model(instance->config, name);
    if (section != NULL && is_removed(instance, section)) section = NULL;
    if (section != NULL && !is_left_out(instance, section)) return section;
    size_t n = atomic_load(&instance->n_entries);
    for (size_t i = 0; i < n; i++) {
        const struct model_entry *entry = &instance->entries[i];
        if (entry->own == NULL || !entry_is_listed(entry)) continue;
        const struct config_model *added = config_resolve_model(entry->own, name);
        if (added != NULL) return added;
    }
    return section;
}

/* The same, or that of the preset of that name. */
static const struct config_model *resolve(const struct hearth *instance, const char *name)
{
    const struct config_model *section = resolve_model(instance, name);
    const hearth_preset *preset = section == NULL ? find_preset(instance->presets, name) : NULL;
    if (preset != NULL) section = resolve_model(instance, preset->model);
    hearth_release_preset(preset);
    return section;
}

bool instance_knows_model(const struct hearth *instance, const char *name)
{
    const struct config_model *section = resolve_model(instance, name);
    return section != NULL && !is_left_out(instance, section);
}

static void put_name(struct buf *out, const char *name)
{
    buf_printf(out, "%s%s", out->len == 0 ? "" : ", ", name);
}

static void list_names(const struct hearth *instance, struct buf *out)
{
    size_t n = atomic_load(&instance->n_entries);
    for (size_t i = 0; i < instance->config->n_models; i++) {
        const struct config_model *section = &instance->config->models[i];
        if (!is_removed(instance, section) && !is_left_out(instance, section)) put_name(out, section->name);
    }
    for (size_t i = 0; i < n; i++)
        if (instance->entries[i].own != NULL && entry_is_listed(&instance->entries[i]))
            put_name(out, instance->entries[i].config->name);
    const hearth_preset *preset;
    for (size_t i = 0; (preset = hearth_preset_at(instance, i)) != NULL; i++) {
        put_name(out, preset->name);
        hearth_release_preset(preset);
    }
}

struct model_entry *instance_find_model(const struct hearth *instance, const char *name, hearth_error *error)
{
    const struct config_model *meant = name == NULL ? NULL : resolve(instance, name);
    struct model_entry *found = meant == NULL ? NULL : entry_of(instance, meant);
    size_t n = name == NULL ? atomic_load(&instance->n_entries) : 0;
    for (size_t i = 0; i < n && found == NULL; i++)
        if (entry_is_listed(&instance->entries[i])) found = &instance->entries[i];
    if (found != NULL) return found;
    if (name == NULL || meant != NULL) {
        bool is_over = atomic_load(&instance->load_failed) || is_all_read(instance);
        error_set(error, HEARTH_UNAVAILABLE,
                  is_over ? "the model could not be loaded" : "loading model: try again in a moment");
        return NULL;
    }
    struct buf names = {0};
    list_names(instance, &names);
    error_at(error, HEARTH_NOT_FOUND, "model", "model '%s' does not exist; there is: %s", name,
             names.len > 0 ? names.v : "none");
    buf_release(&names);
    return NULL;
}

/* The model for requests that name none, or one that does not exist: server.default_model, else the first of the type.
 * For an unknown name the first is taken only where the choice is unambiguous. NULL: there is none. */
static struct model_entry *default_model(const struct hearth *instance, bool is_named, hearth_model_type type)
{
    const struct config_server *server = &instance->config->server;
    const struct config_model *chosen = server->default_model == NULL ? NULL : resolve(instance, server->default_model);
    struct model_entry *first = NULL;
    size_t n = atomic_load(&instance->n_entries), n_fit = 0;
    for (size_t i = 0; i < n; i++) {
        struct model_entry *entry = &instance->entries[i];
        if (entry->facts.type != type || !entry_is_listed(entry)) continue;
        if (entry->config == chosen) return entry;
        if (n_fit++ == 0) first = entry;
    }
    if (!is_named) return first;
    return n_fit == 1 && is_all_read(instance) ? first : NULL;
}

struct model_entry *instance_pick_model(const struct hearth *instance, const char *name, hearth_model_type type,
                                        hearth_error *error)
{
    static const char *const uses[] = {"writes text", "turns inputs into vectors", "judges documents by a query"};
    bool is_there = name != NULL && resolve(instance, name) != NULL;
    /* server.any_model_name holds for chat models alone: vectors of another model than the named one are useless. */
    bool any = !is_there && type == HEARTH_MODEL_CHAT && instance->config->server.any_model_name;
    struct model_entry *other = name == NULL || any ? default_model(instance, name != NULL, type) : NULL;
    if (other != NULL) return other;
    struct model_entry *entry = instance_find_model(instance, name, error);
    if (entry == NULL || entry->facts.type == type) return entry;
    hearth_model_type its = entry->facts.type;
    error_at(error, HEARTH_UNSUPPORTED, "model",
             "model '%s' is of the type %s: it %s. This request needs a model of the type %s, which %s",
             entry->config->name, hearth_model_type_name(its), uses[its], hearth_model_type_name(type), uses[type]);
    return NULL;
}

int32_t hearth_find_model(const hearth *instance, const char *name, hearth_error *error)
{
    hearth_error own;
    if (error == NULL) error = &own;
    bool is_there = name != NULL && resolve(instance, name) != NULL;
    const struct model_entry *entry = is_there ? instance_find_model(instance, name, error)
                                               : instance_pick_model(instance, name, HEARTH_MODEL_CHAT, error);
    return entry == NULL ? (int32_t)error->code : (int32_t)(entry - instance->entries);
}

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
    bool failed = ferror(file) != 0;
    if (failed) error_at(error, HEARTH_IO, path, "cannot read %s: %s", path, strerror(errno));
    fclose(file);
    if (failed) buf_release(&text);
    return failed ? NULL : buf_take(&text);
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

/* ---- Templates of presets ---- */

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

struct preset_template *preset_templates_take(struct preset_templates *templates,
                                              const struct chat_template_params *params, hearth_error *error)
{
    pthread_mutex_lock(&templates->mutex);
    size_t i = 0;
    while (i < KEPT && templates->v[i] != NULL && strcmp(templates->v[i]->source, params->source) != 0) i++;
    struct preset_template *found = i < KEPT ? templates->v[i] : NULL, *last = NULL;
    if (found == NULL) {
        struct chat_template *compiled = chat_template_open(params, error);
        if (i == KEPT) i--;
        if (compiled != NULL) {
            last = templates->v[i];
            found = mem_alloc(sizeof *found);
            *found = (struct preset_template){.source = mem_strdup(params->source), .compiled = compiled, .refs = 1};
        }
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
