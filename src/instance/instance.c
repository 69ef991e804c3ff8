/* An instance from hearth_open() to hearth_close(): its models as they are loaded at the start and added later, what
 * hearth.h says of them, followers of its store, and draining. Also what belongs to the process and to no instance.
 *
 * The thread that calls hearth_load() fills the model entries, and later those that call hearth_add_model(), one at a
 * time. They raise n_entries only when the facts of the next entry are complete, so that other threads read the entries
 * below it without a lock. The model manager (model_manager.h) decides which models are in memory. */
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "hearth.h"
#include "instance/load_model.h"
#include "instance/models/fit.h"
#include "instance/models/instance_store.h"
#include "instance/models/loaded_model.h"
#include "instance/models/model_manager.h"
#include "instance/models/model_names.h"
#include "llm/model.h"

#include <stdlib.h>
#include <string.h>

/* How long the end of an instance waits, for all models together, for a server with which hearths share stored entries.
 * The server may be slow, and the tier of saves has all of them. */
#define UPLOAD_WAIT_NS ((int64_t)5000000000)

/* ---- Loading ---- */

static bool loads_on_demand(const struct model_entry *entry)
{
    return entry->config->load == CONFIG_LOAD_DEMAND;
}

/* Opens an entry. With server.memory_budget_mb the metadata is read before the weights, so that a model that cannot fit
 * is refused before it is loaded. */
static int open_entry(struct hearth *instance, struct model_entry *entry, hearth_error *error)
{
    int rc = HEARTH_OK;
    manager_forget_keep(entry);
    entry->adapters = adapters_open(entry->config, error);
    if (entry->adapters == NULL) return (int)error->code;
    bool limited = instance->config->server.memory_budget_mb > 0;
    if (limited || loads_on_demand(entry)) {
        struct llm_model_params params = {.path = entry->config->path, .split_mode = entry->config->split_mode};
        struct llm_model *model = llm_model_open(&params, error);
        if (model == NULL) return (int)error->code;
        atomic_store(&entry->created_ms, clock_unix_ms());
        rc = entry_learn(entry, model, error);
        llm_model_close(model);
    }
    if (rc == HEARTH_OK && limited) rc = manager_check_budget(instance->manager, entry, error);
    return rc;
}

static int load_all(struct hearth *instance, hearth_progress progress, void *ud, hearth_error *error)
{
    fit_defaults(instance->config);
    for (size_t i = 0, n = 0; i < instance->config->n_models; i++) {
        struct model_entry *entry = &instance->entries[n];
        entry->config = &instance->config->models[i];
        entry->manager = instance->manager;
        int rc = open_entry(instance, entry, error);
        if (rc == HEARTH_OK && !loads_on_demand(entry))
            rc = manager_load(instance->manager, entry, progress, ud, error);
        bool may_lack = entry->config->optional && loads_on_demand(entry);
        if (rc != HEARTH_OK && !may_lack) return rc;
        if (rc != HEARTH_OK) {
            /* The others of the configuration are served without it. */
            log_event(LOG_WARN, "model", "left out: its file cannot be read", log_str("model", entry->config->name),
                      log_str("reason", error->message));
            entry_release(entry);
            memset(entry, 0, sizeof *entry);
            atomic_fetch_add(&instance->n_left_out, 1);
        } else {
            atomic_store(&instance->n_entries, ++n);
        }
    }
    return HEARTH_OK;
}

int hearth_load(hearth *instance, hearth_progress progress, void *ud, hearth_error *error)
{
    hearth_error own;
    if (error == NULL) error = &own;
    int rc = load_all(instance, progress, ud, error);
    hearth_error late;
    int started = manager_start(instance->manager, rc == HEARTH_OK ? error : &late);
    if (rc == HEARTH_OK) rc = started;
    if (rc != HEARTH_OK) atomic_store(&instance->load_failed, true);
    return rc;
}

/* ---- Adding ---- */

/* A configuration of that model alone; NULL: it has none, or not one that can be added. */
static struct hearth_config *copy_section(const struct hearth *instance, const hearth_config *config, const char *model,
                                          hearth_error *error)
{
    struct hearth_config *own = config_copy(config);
    int rc = hearth_config_keep_models(own, &model, 1, error);
    if (rc == HEARTH_OK) rc = hearth_config_check(own, NULL, NULL, error);
    if (rc == HEARTH_OK && own->models[0].load != CONFIG_LOAD_DEMAND)
        rc = error_at(error, HEARTH_INVALID, "load", "models.%s.load: only models with load: demand can be added",
                      model);
    if (rc == HEARTH_OK && instance_knows_model(instance, model))
        rc = error_at(error, HEARTH_INVALID, "model", "there is a model '%s' already", model);
    if (rc == HEARTH_OK) return own;
    hearth_config_free(own);
    return NULL;
}

/* Takes `own`. With the lock of those that add. */
static int add_entry(hearth *instance, struct hearth_config *own, hearth_error *error)
{
    size_t n = atomic_load(&instance->n_entries);
    struct model_entry *entry = &instance->entries[n];
    entry->own = own;
    entry->config = &own->models[0];
    entry->manager = instance->manager;
    int rc = n >= instance->config->n_models + HEARTH_ADDED_MODELS
                 ? error_set(error, HEARTH_NO_MEMORY, "%d models were added already: start hearth anew to add more",
                             HEARTH_ADDED_MODELS)
                 : open_entry(instance, entry, error);
    if (rc == HEARTH_OK) {
        atomic_store(&instance->n_entries, n + 1);
        log_event(LOG_INFO, "model", "added", log_str("model", entry->config->name));
        return HEARTH_OK;
    }
    entry_release(entry);
    memset(entry, 0, sizeof *entry);
    return rc;
}

int hearth_add_model(hearth *instance, const hearth_config *config, const char *model, hearth_error *error)
{
    hearth_error unread;
    if (error == NULL) error = &unread;
    pthread_mutex_lock(&instance->adding);
    struct hearth_config *own = copy_section(instance, config, model, error);
    if (own != NULL) {
        /* The models that are served, and this one; all else is borrowed. */
        struct hearth_config all = *instance->config;
        size_t n = atomic_load(&instance->n_entries);
        all.models = mem_alloc((n + 1) * sizeof *all.models);
        all.n_models = 0;
        for (size_t i = 0; i < n; i++)
            if (entry_is_listed(&instance->entries[i])) all.models[all.n_models++] = *instance->entries[i].config;
        all.models[all.n_models++] = own->models[0];
        fit_added(&own->models[0], &all, all.n_models - 1);
        free(all.models);
    }
    int rc = own == NULL ? (int)error->code : add_entry(instance, own, error);
    pthread_mutex_unlock(&instance->adding);
    return rc;
}

/* ---- Life ---- */

hearth *hearth_open(const hearth_config *config, hearth_error *error)
{
    if (hearth_config_check(config, NULL, NULL, error) != HEARTH_OK) return NULL;
    llm_init();
    if (llm_use_numa(config->server.numa, error) != HEARTH_OK) return NULL;
    struct hearth *instance = mem_alloc(sizeof *instance);
    instance->config = config_copy(config);
    instance->clock = clock_monotonic();
    instance->entries = mem_alloc((config->n_models + HEARTH_ADDED_MODELS + 1) * sizeof *instance->entries);
    pthread_mutex_init(&instance->adding, NULL);
    instance->presets = presets_open();
    instance->manager = manager_open(instance, &(struct model_loader){.open = model_open, .close = model_close});
    if (instance_store_open(instance->config, &instance->store, error) == HEARTH_OK) return instance;
    hearth_close(instance);
    return NULL;
}

void hearth_reopen_cache(hearth *instance, int64_t timeout_ms)
{
    if (instance->store != NULL)
        store_reopen(instance->store, clock_now(clock_monotonic()) + clock_from_ms(timeout_ms));
}

/* Calls `act` for every model in memory; after manager_stop(). */
static void each_model(hearth *instance, void (*act)(struct model *model))
{
    size_t n = atomic_load(&instance->n_entries);
    for (size_t i = 0; i < n; i++)
        if (instance->entries[i].model != NULL) act(instance->entries[i].model);
}

void hearth_drain(hearth *instance, int64_t timeout_ms)
{
    int64_t deadline = clock_now(instance->clock) + clock_from_ms(timeout_ms);
    size_t n = atomic_load(&instance->n_entries);
    if (instance->store != NULL) store_end_orders(instance->store);
    manager_stop(instance->manager);
    each_model(instance, model_stop_admission);
    for (size_t i = 0; i < n; i++)
        if (instance->entries[i].model != NULL) model_drain(instance->entries[i].model, deadline);
}

void hearth_close(hearth *instance)
{
    if (instance == NULL) return;
    hearth_drain(instance, 0);
    if (instance->store != NULL) store_allow_upload_wait(instance->store, UPLOAD_WAIT_NS);
    each_model(instance, model_close);
    manager_close(instance->manager);
    /* One beyond the complete ones may be half open, where the load failed. */
    for (size_t i = 0; i <= atomic_load(&instance->n_entries); i++) entry_release(&instance->entries[i]);
    hearth_unfollow_blocks(instance);
    if (instance->store != NULL) {
        /* Where the store is off the disk hangs, and the engines have waited for it already. */
        int64_t patience_ms = store_is_on(instance->store) ? instance->config->cache.evict_save_timeout_ms : 1000;
        store_close(instance->store, clock_now(clock_monotonic()) + clock_from_ms(patience_ms));
    }
    cache_events_close(instance->events);
    pthread_mutex_destroy(&instance->adding);
    presets_close(instance->presets);
    free(instance->entries);
    hearth_config_free(instance->config);
    free(instance);
}

/* ---- Models ---- */

bool hearth_model(const hearth *instance, size_t index, hearth_model_info *out)
{
    if (index >= atomic_load(&instance->n_entries)) return false;
    struct model_entry *entry = &instance->entries[index];
    *out = entry->facts.info;
    out->created_ms = atomic_load(&entry->created_ms);
    out->created = out->created_ms / 1000;
    out->state = manager_state(entry);
    out->idle_left = manager_idle_left(entry);
    return true;
}

bool hearth_model_sampling(const hearth *instance, size_t index, hearth_sampling *sampling)
{
    if (index >= atomic_load(&instance->n_entries)) return false;
    *sampling = instance->entries[index].facts.defaults->sampling;
    return true;
}

/* ---- Cache events ---- */

int hearth_follow_blocks(hearth *instance, void (*changed)(void *ud), void *ud, hearth_error *error)
{
    if (instance->store == NULL)
        return error_at(error, HEARTH_UNAVAILABLE, "cache", "nothing is stored: no tier is on, or no model caches");
    instance->events = cache_events_open(instance->store, changed, ud);
    return HEARTH_OK;
}

bool hearth_next_block_event(hearth *instance, hearth_block_event *event)
{
    return cache_events_next(instance->events, event);
}

void hearth_resend_blocks(hearth *instance)
{
    cache_events_resend(instance->events);
}

void hearth_unfollow_blocks(hearth *instance)
{
    if (instance->events != NULL) cache_events_end(instance->events);
}

/* ---- The process ---- */

void hearth_free(char *string)
{
    free(string);
}

const char *hearth_version(void)
{
    return HEARTH_VERSION;
}

const char *hearth_llama_version(void)
{
    return llm_version();
}

const char *hearth_cpu_features(void)
{
    return llm_cpu_features();
}

const char *hearth_backends(void)
{
    llm_init();
    return llm_backends();
}

int hearth_log_open(const char *path, const char *level, const char *format, hearth_error *error)
{
    int rc = log_open(path, level, format, error);
    return rc == HEARTH_OK ? log_start(error) : rc;
}

void hearth_log_reopen(void)
{
    log_reopen();
}
