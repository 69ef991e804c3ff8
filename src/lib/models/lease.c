/* Holding on to models: leases of requests, of which some have to wait, and visits of other calls. The manager's mutex
 * guards it all; the usher's thread tells those that wait. */
#include "lib/models/model_manager_parts.h"

#include "base/error.h"

#include <string.h>

/* ---- Waiting; locked ---- */

void manager_want(struct model_entry *entry)
{
    if (!entry->asked && entry->n_waiting == 0) entry->wanted_at = ++entry->manager->n_wanted;
}

static void append(struct model_manager *manager, struct lease *lease)
{
    manager_want(lease->entry);
    lease->entry->n_waiting++;
    lease->next = NULL;
    *manager->tail = lease;
    manager->tail = &lease->next;
}

static void strike(struct model_manager *manager, struct lease **link)
{
    struct lease *lease = *link;
    *link = lease->next;
    if (*link == NULL) manager->tail = link;
    if (!lease->failed) lease->entry->n_waiting--;
}

static void hold(struct lease *lease)
{
    lease->entry->n_requests++;
    lease->entry->n_active++;
    atomic_store(&lease->model, lease->entry->model);
}

/* What is wrong with a model's file is no fault of the request's. */
static hearth_error as_told(const struct model_entry *entry)
{
    hearth_error error = entry->error;
    if (error.code != HEARTH_NO_MEMORY) error.code = HEARTH_UNAVAILABLE;
    error.param[0] = '\0';
    error_prefix(&error, "model '%s' could not be loaded: ", entry->config->name);
    return error;
}

/* They are out of the count at once: whoever comes after them has the model tried anew. */
void leases_fail(struct model_entry *entry)
{
    hearth_error error = as_told(entry);
    for (struct lease *lease = entry->manager->first; lease != NULL; lease = lease->next) {
        if (lease->entry != entry || lease->failed) continue;
        lease->failed = true;
        lease->error = error;
        entry->n_waiting--;
    }
}

/* ---- The usher ---- */

static void say_late(const struct lease *lease, hearth_error *error)
{
    const struct model_entry *entry = lease->entry;
    if (entry->presence == MODEL_LOADING || manager_can_fit(entry->manager, entry))
        error_set(error, HEARTH_UNAVAILABLE, "model '%s' is still loading: try again in a moment", entry->config->name);
    else
        error_at(error, HEARTH_BUSY, "server.memory_budget_mb",
                 "no memory for model '%s': other models are in use, and server.memory_budget_mb is %llu; try again "
                 "later",
                 entry->config->name, (unsigned long long)(entry->manager->budget >> 20));
}

/* Whether it waits no longer; the error says why it goes without its model. */
static bool decide(struct model_manager *manager, struct lease *lease, hearth_error *error)
{
    struct clock *clock = manager->instance->clock;
    *error = lease->failed ? lease->error : (hearth_error){0};
    if (manager->stopping)
        error_set(error, HEARTH_UNAVAILABLE, "engine shutting down");
    else if (atomic_load(lease->cancelled))
        error_set(error, HEARTH_CANCELLED, "request was cancelled");
    else if (!lease->failed && lease->entry->presence == MODEL_LOADED)
        return true;
    else if (!lease->failed && lease->deadline != CLOCK_NEVER && clock_now(clock) >= lease->deadline)
        say_late(lease, error);
    return error->code != HEARTH_OK;
}

static struct lease *take_decided(struct model_manager *manager, hearth_error *error)
{
    for (struct lease **link = &manager->first; *link != NULL; link = &(*link)->next) {
        struct lease *lease = *link;
        if (!decide(manager, lease, error)) continue;
        strike(manager, link);
        if (error->code == HEARTH_OK) hold(lease);
        return lease;
    }
    return NULL;
}

static int64_t next_deadline(const struct model_manager *manager)
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
            clock->wait(clock, &manager->changed, &manager->mutex, next_deadline(manager));
            continue;
        }
        pthread_cond_broadcast(&manager->changed); /* whoever loads or leaves for it may think again */
        pthread_mutex_unlock(&manager->mutex);
        lease->on_ready(lease->ud, error.code == HEARTH_OK ? NULL : &error);
        pthread_mutex_lock(&manager->mutex);
    }
    pthread_mutex_unlock(&manager->mutex);
    return NULL;
}

/* ---- Leases ---- */

/* Whoever finds others waiting waits behind them. */
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
    } else if (entry->presence == MODEL_LOADED && entry->n_waiting == 0) {
        hold(lease);
        taken = LEASE_READY;
    } else {
        append(manager, lease);
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

static void drop_active(struct model_entry *entry)
{
    pthread_mutex_lock(&entry->manager->mutex);
    entry->n_active--;
    pthread_mutex_unlock(&entry->manager->mutex);
}

void lease_drop_party(struct lease *lease)
{
    bool last = atomic_fetch_sub(&lease->parties, 1) == 1;
    if (last && atomic_load(&lease->model) != NULL) drop_active(lease->entry);
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

/* ---- Visits ---- */

struct model *brief_lease_take(struct model_entry *entry)
{
    struct model_manager *manager = entry->manager;
    pthread_mutex_lock(&manager->mutex);
    bool there = entry->presence == MODEL_LOADED;
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
