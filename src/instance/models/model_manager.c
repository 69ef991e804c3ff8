/* The loader thread of the model manager: decides which model is loaded or unloaded next and does it; and the calls of
 * hearth.h that ask for it. Leases are in lease.c. */
#include "instance/models/model_manager.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/os.h"
#include "base/thread.h"
#include "instance/models/model_names.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Choosing the next model to load or unload; with the mutex held ---- */

static bool is_in_memory(const struct model_entry *entry)
{
    return entry->model != NULL;
}

static bool is_idle(const struct model_entry *entry)
{
    return entry->presence == HEARTH_MODEL_LOADED && entry->n_requests + entry->n_waiting + entry->n_brief == 0;
}

static bool is_leaving(const struct model_entry *entry)
{
    return entry->presence == HEARTH_MODEL_UNLOADING;
}

static bool is_wanted(const struct model_entry *entry)
{
    bool away = entry->presence == HEARTH_MODEL_UNLOADED || entry->presence == HEARTH_MODEL_FAILED;
    return away && (entry->asked || entry->n_waiting > 0);
}

static uint64_t bytes_of(const struct model_manager *manager, bool (*counts)(const struct model_entry *entry))
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < manager_count(manager); i++)
        if (counts(manager_at(manager, i))) bytes += manager_at(manager, i)->facts.bytes;
    return bytes;
}

bool manager_can_fit(const struct model_manager *manager, const struct model_entry *entry)
{
    uint64_t stay = bytes_of(manager, is_in_memory) - bytes_of(manager, is_idle) - bytes_of(manager, is_leaving);
    return manager->budget == 0 || stay + entry->facts.bytes <= manager->budget;
}

/* The matching entry with the lowest number; NULL: none matches. */
static struct model_entry *lowest(const struct model_manager *manager, bool (*matches)(const struct model_entry *entry),
                                  int64_t (*number)(const struct model_entry *entry))
{
    struct model_entry *best = NULL;
    for (size_t i = 0; i < manager_count(manager); i++) {
        struct model_entry *entry = manager_at(manager, i);
        if (matches(entry) && (best == NULL || number(entry) < number(best))) best = entry;
    }
    return best;
}

static int64_t wanted_at(const struct model_entry *entry)
{
    return (int64_t)entry->wanted_at;
}

static int64_t used_at(const struct model_entry *entry)
{
    return entry->used_at;
}

static bool is_wanted_and_can_fit(const struct model_entry *entry)
{
    return is_wanted(entry) && manager_can_fit(entry->manager, entry);
}

static int64_t idle_until(const struct model_entry *entry)
{
    if (!is_idle(entry) || entry->keep < 0) return CLOCK_NEVER;
    return entry->used_at + clock_from_ms((int64_t)(entry->keep * 1e3));
}

static bool is_any(const struct model_entry *entry)
{
    (void)entry;
    return true;
}

/* ---- Invariants; with the mutex held ---- */

#ifndef NDEBUG

/* Longer lists are looked at by their ends alone: with each lease that comes or goes the whole would take its time. */
#define LIST_CHECKED 256

/* Leases of one list are linked both ways and know where they stand; their number. */
static size_t check_list(const struct lease_list *list, enum lease_station station, const struct model_entry *entry)
{
    size_t n = 0;
    const struct lease *last = NULL;
    assert((list->first == NULL) == (list->last == NULL));
    assert(list->last == NULL || list->last->next == NULL);
    for (const struct lease *lease = list->first; lease != NULL && n <= LIST_CHECKED; lease = lease->next, n++) {
        assert(lease->station == station && lease->previous == last && atomic_load(&lease->model) == NULL);
        assert(entry == NULL ? lease->error.code != HEARTH_OK : lease->entry == entry);
        last = lease;
    }
    assert(n > LIST_CHECKED || last == list->last);
    return n;
}

static void check_entry(const struct model_entry *entry)
{
    hearth_model_state is = entry->presence;
    size_t n_waiting = check_list(&entry->waiting, LEASE_QUEUED, entry);
    /* A model is in memory from the end of its load to the end of its unloading, and whoever has a lease has it. */
    assert(is <= HEARTH_MODEL_FAILED);
    assert((entry->model != NULL) == (is == HEARTH_MODEL_LOADED || is == HEARTH_MODEL_UNLOADING));
    assert(entry->n_requests + entry->n_brief == 0 || entry->model != NULL);
    assert(entry->n_active <= entry->n_requests);
    assert(n_waiting > LIST_CHECKED ? entry->n_waiting > LIST_CHECKED : entry->n_waiting == n_waiting);
    /* A model that requests wait for, or that was asked for, has a number in the order of loads. */
    assert(entry->wanted_at <= entry->manager->n_wanted);
    assert((entry->n_waiting == 0 && !entry->asked) || entry->wanted_at > 0);
    assert(!entry->asked || (is != HEARTH_MODEL_LOADING && is != HEARTH_MODEL_LOADED));
    assert(is != HEARTH_MODEL_FAILED || entry->error.code != HEARTH_OK);
    /* One that was removed never comes back. */
    assert(entry_is_listed(entry) || (is != HEARTH_MODEL_LOADING && is != HEARTH_MODEL_LOADED));
    assert(entry_is_listed(entry) || (entry->n_waiting == 0 && !entry->asked));
}

void model_manager_check(const struct model_manager *manager)
{
    uint64_t bytes = 0;
    size_t n_loading = 0;
    for (size_t i = 0; i < manager_count(manager); i++) {
        const struct model_entry *entry = manager_at(manager, i);
        check_entry(entry);
        bool is_loading = entry->presence == HEARTH_MODEL_LOADING;
        n_loading += is_loading;
        if (is_loading || is_in_memory(entry)) bytes += entry->facts.bytes;
    }
    check_list(&manager->failed, LEASE_FAILED, NULL);
    assert(n_loading <= 1); /* at most one is loaded at a time */
    assert(manager->budget == 0 || bytes <= manager->budget);
}

#endif

/* The one place where the state of a model changes. */
static void enter_presence(struct model_entry *entry, hearth_model_state state)
{
    static const bool follows[HEARTH_MODEL_FAILED + 1][HEARTH_MODEL_FAILED + 1] = {
        [HEARTH_MODEL_UNLOADED] = {[HEARTH_MODEL_LOADING] = true},
        [HEARTH_MODEL_LOADING] = {[HEARTH_MODEL_LOADED] = true, [HEARTH_MODEL_FAILED] = true},
        [HEARTH_MODEL_LOADED] = {[HEARTH_MODEL_UNLOADING] = true},
        [HEARTH_MODEL_UNLOADING] = {[HEARTH_MODEL_UNLOADED] = true},
        [HEARTH_MODEL_FAILED] = {[HEARTH_MODEL_LOADING] = true},
    };
    assert(follows[entry->presence][state]);
    (void)follows;
    entry->presence = state;
    pthread_cond_broadcast(&entry->manager->changed);
}

/* ---- Loading and unloading ---- */

void manager_forget_keep(struct model_entry *entry)
{
    entry->keep = entry->next_keep = entry->config->idle_unload > 0 ? entry->config->idle_unload : -1;
}

/* The mutex is held on entry and on return, not between. */
static void unload(struct model_manager *manager, struct model_entry *entry)
{
    struct model *model = entry->model;
    int64_t begin = clock_now(manager->instance->clock);
    pthread_mutex_unlock(&manager->mutex);
    manager->loader.close(model);
    os_trim_heap();
    double took = clock_to_ms(clock_now(manager->instance->clock) - begin);
    metric_add(&entry->load_metrics.unloads, 1);
    log_event(LOG_INFO, "model", "unloaded", log_str("model", entry->config->name), log_num("took_ms", took));
    pthread_mutex_lock(&manager->mutex);
    assert(entry->n_requests + entry->n_brief == 0);
    entry->model = NULL;
    enter_presence(entry, HEARTH_MODEL_UNLOADED);
    manager_forget_keep(entry);
    model_manager_check(manager);
}

int manager_load(struct model_manager *manager, struct model_entry *entry, hearth_progress progress, void *ud,
                 hearth_error *error)
{
    struct clock *clock = manager->instance->clock;
    int64_t begin = clock_now(clock);
    pthread_mutex_lock(&manager->mutex);
    enter_presence(entry, HEARTH_MODEL_LOADING);
    entry->asked = false;
    model_manager_check(manager);
    pthread_mutex_unlock(&manager->mutex);
    *error = (hearth_error){0};
    struct model_progress of = {.progress = progress, .ud = ud, .name = entry->config->name};
    struct model *model = manager->loader.open(manager->instance, entry, &of, error);
    if (model != NULL)
        histogram_observe(&entry->load_metrics.load_seconds, &histogram_seconds,
                          clock_to_ms(clock_now(clock) - begin) / 1e3);
    metric_add(model != NULL ? &entry->load_metrics.loads : &entry->load_metrics.failures, 1);
    pthread_mutex_lock(&manager->mutex);
    entry->model = model;
    enter_presence(entry, model != NULL ? HEARTH_MODEL_LOADED : HEARTH_MODEL_FAILED);
    entry->error = *error;
    entry->used_at = clock_now(entry->manager->instance->clock);
    if (model == NULL) leases_fail(entry);
    model_manager_check(entry->manager);
    pthread_mutex_unlock(&manager->mutex);
    return (int)error->code;
}

static bool continue_load(void *ud, const char *name, float fraction)
{
    struct model_manager *manager = ud;
    (void)name;
    (void)fraction;
    pthread_mutex_lock(&manager->mutex);
    bool stopping = manager->stopping;
    pthread_mutex_unlock(&manager->mutex);
    return !stopping;
}

static void begin_unload(struct model_entry *entry, const char *reason)
{
    assert(entry->n_active + entry->n_waiting == 0);
    enter_presence(entry, HEARTH_MODEL_UNLOADING);
    log_event(LOG_INFO, "model", "unloading", log_str("model", entry->config->name), log_str("reason", reason));
    model_manager_check(entry->manager);
}

/* Loads or unloads the next model, or begins to unload one; false: there is nothing to do. The mutex is held on entry
 * and on return, not between. */
static bool loader_step(struct model_manager *manager)
{
    struct model_entry *leaving = lowest(manager, is_leaving, used_at);
    struct model_entry *wanted = lowest(manager, is_wanted_and_can_fit, wanted_at);
    struct model_entry *overdue = lowest(manager, is_any, idle_until);
    bool fits = wanted != NULL &&
                (manager->budget == 0 || bytes_of(manager, is_in_memory) + wanted->facts.bytes <= manager->budget);
    if (leaving != NULL && leaving->n_requests + leaving->n_brief > 0) return false;
    if (leaving != NULL) {
        unload(manager, leaving);
    } else if (fits) {
        hearth_error error;
        pthread_mutex_unlock(&manager->mutex);
        if (manager_load(manager, wanted, continue_load, manager, &error) != HEARTH_OK)
            log_event(LOG_ERROR, "model", "not loaded", log_str("model", wanted->config->name),
                      log_str("reason", error.message));
        pthread_mutex_lock(&manager->mutex);
    } else if (wanted != NULL) {
        begin_unload(lowest(manager, is_idle, used_at), "server.memory_budget_mb");
    } else if (overdue != NULL && idle_until(overdue) <= clock_now(manager->instance->clock)) {
        begin_unload(overdue, "idle_unload");
    } else {
        return false;
    }
    return true;
}

static void *loader_loop(void *ud)
{
    struct model_manager *manager = ud;
    struct clock *clock = manager->instance->clock;
    pthread_mutex_lock(&manager->mutex);
    while (!manager->stopping) {
        if (loader_step(manager)) continue;
        struct model_entry *first = lowest(manager, is_any, idle_until);
        clock->wait(clock, &manager->changed, &manager->mutex, first == NULL ? CLOCK_NEVER : idle_until(first));
    }
    pthread_mutex_unlock(&manager->mutex);
    return NULL;
}

/* ---- Life ---- */

struct model_manager *manager_open(struct hearth *instance, const struct model_loader *loader)
{
    assert(loader->open != NULL && loader->close != NULL);
    struct model_manager *manager = mem_alloc(sizeof *manager);
    manager->instance = instance;
    manager->loader = *loader;
    manager->budget = (uint64_t)instance->config->server.memory_budget_mb << 20;
    pthread_mutex_init(&manager->mutex, NULL);
    clock_cond_init(&manager->changed);
    return manager;
}

int manager_check_budget(const struct model_manager *manager, const struct model_entry *entry, hearth_error *error)
{
    const double mib = 1024.0 * 1024;
    pthread_mutex_lock(&entry->manager->mutex);
    uint64_t taken = bytes_of(manager, is_in_memory);
    pthread_mutex_unlock(&entry->manager->mutex);
    uint64_t beside = entry->config->load == CONFIG_LOAD_DEMAND ? 0 : taken; /* demand: others are unloaded for it */
    if (manager->budget == 0 || beside + entry->facts.bytes <= manager->budget) return HEARTH_OK;
    return error_at(error, HEARTH_NO_MEMORY, "server.memory_budget_mb",
                    "model '%s' takes %.0f MiB, and %.0f MiB are taken: server.memory_budget_mb is %.0f; raise it, or "
                    "set models.%s.load: demand",
                    entry->config->name, (double)entry->facts.bytes / mib, (double)taken / mib,
                    (double)manager->budget / mib, entry->config->name);
}

int manager_start(struct model_manager *manager, hearth_error *error)
{
    int rc = thread_start(&manager->loader_thread, loader_loop, manager, "loads and unloads models", error);
    manager->has_loader = rc == HEARTH_OK;
    if (rc == HEARTH_OK)
        rc = thread_start(&manager->notifier_thread, leases_notify_loop, manager, "notifies requests of their models",
                          error);
    manager->has_notifier = rc == HEARTH_OK;
    if (rc != HEARTH_OK) manager_stop(manager);
    return rc;
}

void manager_stop(struct model_manager *manager)
{
    pthread_mutex_lock(&manager->mutex);
    manager->stopping = true;
    bool has_notifier = manager->has_notifier, has_loader = manager->has_loader;
    manager->has_notifier = manager->has_loader = false;
    pthread_cond_broadcast(&manager->changed);
    pthread_mutex_unlock(&manager->mutex);
    /* A model that is being loaded beside others is not waited for until every byte of its files was read: they have
     * conversations to save. */
    for (size_t i = 0; i < manager_count(manager); i++) {
        atomic_store(&manager_at(manager, i)->fingerprint.stop, true);
        adapters_abandon(manager_at(manager, i)->adapters);
    }
    if (has_notifier)
        pthread_join(manager->notifier_thread, NULL);
    else
        leases_notify_loop(manager); /* of an instance that was never loaded */
    if (has_loader) pthread_join(manager->loader_thread, NULL);
}

void manager_close(struct model_manager *manager)
{
    if (manager == NULL) return;
    assert(manager->stopping && !manager->has_loader && !manager->has_notifier && manager->failed.first == NULL);
    pthread_cond_destroy(&manager->changed);
    pthread_mutex_destroy(&manager->mutex);
    free(manager);
}

/* ---- Status ---- */

hearth_model_state manager_state(struct model_entry *entry)
{
    pthread_mutex_lock(&entry->manager->mutex);
    hearth_model_state state = !entry_is_listed(entry) ? HEARTH_MODEL_REMOVED
                               : is_wanted(entry)      ? HEARTH_MODEL_LOADING
                                                       : entry->presence;
    pthread_mutex_unlock(&entry->manager->mutex);
    return state;
}

bool manager_has(struct model_entry *entry)
{
    pthread_mutex_lock(&entry->manager->mutex);
    bool has = is_in_memory(entry);
    pthread_mutex_unlock(&entry->manager->mutex);
    return has;
}

size_t manager_waiting(struct model_entry *entry)
{
    pthread_mutex_lock(&entry->manager->mutex);
    size_t n = entry->n_waiting;
    pthread_mutex_unlock(&entry->manager->mutex);
    return n;
}

void manager_note_unstored(struct model_entry *entry, const char *reason)
{
    pthread_mutex_lock(&entry->manager->mutex);
    snprintf(entry->unstored, sizeof entry->unstored, "%s", reason);
    pthread_mutex_unlock(&entry->manager->mutex);
}

void manager_unstored(struct model_entry *entry, char *reason, size_t size)
{
    pthread_mutex_lock(&entry->manager->mutex);
    snprintf(reason, size, "%s", entry->model == NULL ? "" : entry->unstored);
    pthread_mutex_unlock(&entry->manager->mutex);
}

/* ---- hearth.h ---- */

static int request_load(struct model_entry *entry, hearth_error *error)
{
    struct model_manager *manager = entry->manager;
    if (manager->stopping) return error_set(error, HEARTH_UNAVAILABLE, "load: engine shutting down");
    if (!entry_is_listed(entry)) return manager_refuse_removed(entry, error);
    if (entry->presence == HEARTH_MODEL_LOADED) return error_at(error, HEARTH_INVALID, "model", "load: already loaded");
    manager_want(entry);
    entry->asked = entry->presence != HEARTH_MODEL_LOADING;
    pthread_cond_broadcast(&manager->changed);
    return HEARTH_OK;
}

/* Users search for these error texts: they stay word for word. */
static int request_unload(struct model_entry *entry, hearth_error *error)
{
    bool asked = entry->asked;
    size_t n = entry->n_active + entry->n_waiting;
    if (entry->manager->stopping) return error_set(error, HEARTH_UNAVAILABLE, "unload: engine shutting down");
    if (n > 0) return error_set(error, HEARTH_BUSY, "unload: cannot unload, too many active-streams[%zu]", n);
    if (entry->presence == HEARTH_MODEL_LOADING) return error_set(error, HEARTH_BUSY, "unload: still loading");
    entry->asked = false;
    if (entry->presence == HEARTH_MODEL_LOADED)
        begin_unload(entry, "unload");
    else if (!asked)
        return error_at(error, HEARTH_INVALID, "model", "unload: already unloaded");
    return HEARTH_OK;
}

int manager_refuse_removed(const struct model_entry *entry, hearth_error *error)
{
    return error_at(error, HEARTH_NOT_FOUND, "model", "model '%s' was removed", entry->config->name);
}

/* From here on nobody gets a lease. */
static int request_removal(struct model_entry *entry, hearth_error *error)
{
    size_t n = entry->n_active + entry->n_waiting;
    if (entry->manager->stopping) return error_set(error, HEARTH_UNAVAILABLE, "remove: engine shutting down");
    if (!entry_is_listed(entry)) return manager_refuse_removed(entry, error);
    if (n > 0)
        return error_set(error, HEARTH_BUSY, "model '%s' is in use by %zu %s: remove it once they have ended",
                         entry->config->name, n, n == 1 ? "request" : "requests");
    if (entry->presence == HEARTH_MODEL_LOADING)
        return error_set(error, HEARTH_BUSY, "model '%s' is being loaded: remove it once it is there",
                         entry->config->name);
    entry->asked = false;
    atomic_store(&entry->removed, true);
    if (entry->presence == HEARTH_MODEL_LOADED) begin_unload(entry, "removed");
    return HEARTH_OK;
}

static int remove_and_wait(struct model_entry *entry, hearth_error *error)
{
    struct model_manager *manager = entry->manager;
    struct clock *clock = manager->instance->clock;
    int rc = request_removal(entry, error);
    while (rc == HEARTH_OK && is_leaving(entry) && !manager->stopping)
        clock->wait(clock, &manager->changed, &manager->mutex, CLOCK_NEVER);
    if (rc == HEARTH_OK) log_event(LOG_INFO, "model", "removed", log_str("model", entry->config->name));
    return rc;
}

static int await_load(struct model_entry *entry, hearth_error *error)
{
    struct model_manager *manager = entry->manager;
    struct clock *clock = manager->instance->clock;
    while (!manager->stopping &&
           (is_wanted(entry) || entry->presence == HEARTH_MODEL_LOADING || entry->presence == HEARTH_MODEL_UNLOADING))
        clock->wait(clock, &manager->changed, &manager->mutex, CLOCK_NEVER);
    if (entry->presence != HEARTH_MODEL_FAILED) return HEARTH_OK;
    *error = entry->error;
    return (int)error->code;
}

/* The model of that name, with the manager's mutex held. */
static struct model_entry *lock_model(hearth *instance, const char *model, hearth_error *error)
{
    struct model_entry *entry = instance_find_model(instance, model, error);
    if (entry != NULL) pthread_mutex_lock(&entry->manager->mutex);
    return entry;
}

static int unlock_model(struct model_entry *entry, int rc)
{
    model_manager_check(entry->manager);
    pthread_mutex_unlock(&entry->manager->mutex);
    return rc;
}

static int with_model(hearth *instance, const char *model, int (*act)(struct model_entry *entry, hearth_error *error),
                      hearth_error *error)
{
    hearth_error own;
    struct model_entry *entry = lock_model(instance, model, error = error != NULL ? error : &own);
    return entry == NULL ? (int)error->code : unlock_model(entry, act(entry, error));
}

int hearth_load_model(hearth *instance, const char *model, hearth_error *error)
{
    return with_model(instance, model, request_load, error);
}

int hearth_unload_model(hearth *instance, const char *model, hearth_error *error)
{
    return with_model(instance, model, request_unload, error);
}

int hearth_keep_model(hearth *instance, const char *model, double seconds, hearth_error *error)
{
    static const double longest = 1e9; /* seconds: some thirty years */
    hearth_error own;
    struct model_entry *entry = lock_model(instance, model, error = error != NULL ? error : &own);
    if (entry == NULL) return (int)error->code;
    entry->next_keep = seconds > longest ? -1 : seconds;
    return unlock_model(entry, HEARTH_OK);
}

double manager_idle_left(struct model_entry *entry)
{
    struct model_manager *manager = entry->manager;
    pthread_mutex_lock(&manager->mutex);
    double waited = is_idle(entry) ? clock_to_ms(clock_now(manager->instance->clock) - entry->used_at) / 1e3 : 0;
    double left = entry->keep < 0 ? -1 : entry->keep > waited ? entry->keep - waited : 0;
    pthread_mutex_unlock(&manager->mutex);
    return left;
}

int hearth_remove_model(hearth *instance, const char *model, hearth_error *error)
{
    const hearth_preset *preset = model == NULL ? NULL : hearth_find_preset(instance, model);
    hearth_release_preset(preset);
    if (preset != NULL) return error_at(error, HEARTH_NOT_FOUND, "model", "'%s' is a preset and no model", model);
    return with_model(instance, model, remove_and_wait, error);
}

int hearth_await_model(hearth *instance, const char *model, hearth_error *error)
{
    return with_model(instance, model, await_load, error);
}
