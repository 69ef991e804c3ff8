/* Which entry a name, an alias or a type leads to. No data of its own; any thread. */
#include "lib/models/model_names.h"

#include "base/error.h"
#include "lib/models/loaded_model.h"
#include "lib/models/presets.h"

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

/* The section of an added model that the name leads to; NULL: none. */
static const struct config_model *resolve_added(const struct hearth *instance, const char *name)
{
    const struct config_model *section = NULL;
    size_t n = atomic_load(&instance->n_entries);
    for (size_t i = 0; i < n && section == NULL; i++) {
        const struct model_entry *entry = &instance->entries[i];
        if (entry->own != NULL && entry_is_listed(entry)) section = config_resolve_model(entry->own, name);
    }
    return section;
}

/* The section that the name leads to, of the configuration or of an added model; NULL: none. One that was left out
 * gives its name to an added model. */
static const struct config_model *resolve_model(const struct hearth *instance, const char *name)
{
    const struct config_model *section = config_resolve_model(instance->config, name);
    if (section != NULL && is_removed(instance, section)) section = NULL;
    if (section != NULL && !is_left_out(instance, section)) return section;
    const struct config_model *added = resolve_added(instance, name);
    return added != NULL ? added : section;
}

/* The same, or that of the preset of that name. */
static const struct config_model *resolve(const struct hearth *instance, const char *name)
{
    const struct config_model *section = resolve_model(instance, name);
    const hearth_preset *preset = section == NULL ? presets_find(instance->presets, name) : NULL;
    if (preset != NULL) section = resolve_model(instance, preset->model);
    preset_unref(preset);
    return section;
}

bool instance_knows_model(const struct hearth *instance, const char *name)
{
    const struct config_model *section = resolve_model(instance, name);
    return section != NULL && !is_left_out(instance, section);
}

static struct model_entry *first_listed(const struct hearth *instance)
{
    size_t n = atomic_load(&instance->n_entries);
    for (size_t i = 0; i < n; i++)
        if (entry_is_listed(&instance->entries[i])) return &instance->entries[i];
    return NULL;
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
    for (size_t i = 0; (preset = presets_at(instance->presets, i)) != NULL; i++) {
        put_name(out, preset->name);
        preset_unref(preset);
    }
}

struct model_entry *instance_find_model(const struct hearth *instance, const char *name, hearth_error *error)
{
    const struct config_model *meant = name == NULL ? NULL : resolve(instance, name);
    struct model_entry *found = name == NULL    ? first_listed(instance)
                                : meant != NULL ? entry_of(instance, meant)
                                                : NULL;
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

/* The model for requests that name none, or one that does not exist: server.default_model, else the first of the type,
 * and for an unknown name only where the choice is unambiguous; NULL: there is none. */
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
