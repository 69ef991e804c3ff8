/* Leases on models: those of requests, which wait in a FIFO queue while their model is not loaded, and brief ones of
 * other calls. The manager's mutex guards them all; the notifier thread grants or fails those that wait. */
#include "lib/models/model_manager_parts.h"

#include "base/error.h"

#include <string.h>

/* ---- The queue of waiting leases; with the mutex held ---- */

void manager_want(struct model_entry *entry)
{
    if (!entry->asked && entry->n_waiting == 0) entry->wanted_at = ++entry->manager->n_wanted;
}

static void enqueue(struct model_manager *manager, struct lease *lease)
{
    manager_want(lease->entry);
    lease->entry->n_waiting++;
    lease->next = NULL;
    *manager->tail = lease;
    manager->tail = &lease->next;
}

static void dequeue(struct model_manager *manager, struct lease **link)
{
    struct lease *lease = *link;
    *link = lease->next;
    if (*link == NULL) manager->tail = link;
    if (!lease->failed) lease->entry->n_waiting--;
}

static void grant(struct lease *lease)
{
    lease->entry->n_requests++;
    lease->entry->n_active++;
    atomic_store(&lease->model, lease->entry->model);
}

/* The error of the load as the request gets it: a bad model file is HEARTH_UNAVAILABLE, since the request is not at
 * fault. */
static hearth_error load_error_of(const struct model_entry *entry)
{
    hearth_error error = entry->error;
    if (error.code != HEARTH_NO_MEMORY) error.code = HEARTH_UNAVAILABLE;
    error.param[0] = '\0';
    error_prefix(&error, "model '%s' could not be loaded: ", entry->config->name);
    return error;
}

/* Failed leases leave n_waiting at once, so that a later request has the model loaded anew. */
void leases_fail(struct model_entry *entry)
{
    hearth_error error = load_error_of(entry);
    for (struct lease *lease = entry->manager->first; lease != NULL; lease = lease->next) {
        if (lease->entry != entry || lease->failed) continue;
        lease->failed = true;
        lease->error = error;
        entry->n_waiting--;
    }
}

/* ---- The notifier thread ---- */

static void set_timeout_error(const struct lease *lease, hearth_error *error)
{
    const struct model_entry *entry = lease->entry;
    if (entry->presence == HEARTH_MODEL_LOADING || manager_can_fit(entry->manager, entry))
        error_set(error, HEARTH_UNAVAILABLE, "model '%s' is still loading: try again in a moment", entry->config->name);
    else
        error_at(error, HEARTH_BUSY, "server.memory_budget_mb",
                 "no memory for model '%s': other models are in use, and server.memory_budget_mb is %llu; try again "
                 "later",
                 entry->config->name, (unsigned long long)(entry->manager->budget >> 20));
}

/* Whether the wait is over. HEARTH_OK in the error: the model is loaded; else why the request gets none. */
static bool is_decided(struct model_manager *manager, struct lease *lease, hearth_error *error)
{
    struct clock *clock = manager->instance->clock;
    *error = lease->failed ? lease->error : (hearth_error){0};
    if (manager->stopping)
        error_set(error, HEARTH_UNAVAILABLE, "engine shutting down");
    else if (atomic_load(lease->cancelled))
        error_set(error, HEARTH_CANCELLED, "request was cancelled");
    else if (!lease->failed && lease->entry->presence == HEARTH_MODEL_LOADED)
        return true;
    else if (!lease->failed && lease->deadline != CLOCK_NEVER && clock_now(clock) >= lease->deadline)
        set_timeout_error(lease, error);
    return error->code != HEARTH_OK;
}

static struct lease *take_decided(struct model_manager *manager, hearth_error *error)
{
    for (struct lease **link = &manager->first; *link != NULL; link = &(*link)->next) {
        struct lease *lease = *link;
        if (!is_decided(manager, lease, error)) continue;
        dequeue(manager, link);
        if (error->code == HEARTH_OK) grant(lease);
        return lease;
    }
    return NULL;
}

static int64_t next_lease_deadline(const struct model_manager *manager)
{
    int64_t deadline = CLOCK_NEVER;
    for (const struct lease *lease = manager->first; lease != NULL; lease = lease->next)
        if (lease->deadline < deadline) deadline = lease->deadline;
    return deadline;
}

void *leases_notify_loop(void *ud)
{
    struct model_manager *manager = ud;
    struct clock *clock = manager->instance->clock;
    hearth_error error;
    pthread_mutex_lock(&manager->mutex);
    while (!manager->stopping || manager->first != NULL) {
        struct lease *lease = take_decided(manager, &error);
        if (lease == NULL) {
            clock->wait(clock, &manager->changed, &manager->mutex, next_lease_deadline(manager));
            continue;
        }
        pthread_cond_broadcast(&manager->changed); /* n_waiting and n_requests changed: the loader thread looks again */
        pthread_mutex_unlock(&manager->mutex);
        lease->on_ready(lease->ud, error.code == HEARTH_OK ? NULL : &error);
        pthread_mutex_lock(&manager->mutex);
    }
    pthread_mutex_unlock(&manager->mutex);
    return NULL;
}

/* ---- Leases ---- */

/* A lease waits behind those that wait for the same model, even when it is loaded: first come, first served. */
enum lease_taken lease_take(struct lease *lease, hearth_error *error)
{
    struct model_entry *entry = lease->entry;
    struct model_manager *manager = entry->manager;
    enum lease_taken taken = LEASE_WAITS;
    lease->parties = 2;
    pthread_mutex_lock(&manager->mutex);
    if (manager->stopping) {
        error_set(error, HEARTH_UNAVAILABLE, "submit: engine shutting down");
        taken = LEASE_REFUSED;
    } else if (!entry_is_listed(entry)) {
        manager_refuse_removed(entry, error);
        taken = LEASE_REFUSED;
    } else if (entry->presence == HEARTH_MODEL_LOADED && entry->n_waiting == 0) {
        grant(lease);
        taken = LEASE_READY;
    } else {
        enqueue(manager, lease);
        pthread_cond_broadcast(&manager->changed);
    }
    pthread_mutex_unlock(&manager->mutex);
    return taken;
}

void lease_wake_notifier(struct lease *lease)
{
    struct model_manager *manager = lease->entry->manager;
    pthread_mutex_lock(&manager->mutex);
    pthread_cond_broadcast(&manager->changed);
    pthread_mutex_unlock(&manager->mutex);
}

static void uncount_active(struct model_entry *entry)
{
    pthread_mutex_lock(&entry->manager->mutex);
    entry->n_active--;
    pthread_mutex_unlock(&entry->manager->mutex);
}

void lease_drop_party(struct lease *lease)
{
    bool last = atomic_fetch_sub(&lease->parties, 1) == 1;
    if (last && atomic_load(&lease->model) != NULL) uncount_active(lease->entry);
}

void lease_end(struct lease *lease)
{
    struct model_entry *entry = lease->entry;
    struct model_manager *manager = entry->manager;
    if (atomic_load(&lease->model) == NULL) return;
    pthread_mutex_lock(&manager->mutex);
    entry->used_at = clock_now(manager->instance->clock);
    if (--entry->n_requests == 0) pthread_cond_broadcast(&manager->changed);
    pthread_mutex_unlock(&manager->mutex);
}

/* ---- Brief leases ---- */

struct model *brief_lease_take(struct model_entry *entry)
{
    struct model_manager *manager = entry->manager;
    pthread_mutex_lock(&manager->mutex);
    bool there = entry->presence == HEARTH_MODEL_LOADED;
    if (there) entry->n_brief++;
    struct model *model = there ? entry->model : NULL;
    pthread_mutex_unlock(&manager->mutex);
    return model;
}

void brief_lease_end(struct model_entry *entry)
{
    struct model_manager *manager = entry->manager;
    pthread_mutex_lock(&manager->mutex);
    if (--entry->n_brief == 0) pthread_cond_broadcast(&manager->changed);
    pthread_mutex_unlock(&manager->mutex);
}
