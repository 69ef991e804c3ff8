/* Leases on models: those of requests, which wait in a FIFO queue of their model's while it is not loaded, and brief
 * ones of other calls. The manager's mutex guards them all, and the HTTP thread takes it: coming and leaving take the
 * same time however many wait. The notifier thread grants those that wait, and tells those that failed. */
#include "instance/models/model_manager.h"

#include "base/error.h"

#include <assert.h>
#include <string.h>

/* ---- Where a lease stands; with the mutex held ---- */

void manager_want(struct model_entry *entry)
{
    if (!entry->asked && entry->n_waiting == 0) entry->wanted_at = ++entry->manager->n_wanted;
}

static struct lease_list *list_at(const struct lease *lease)
{
    return lease->station == LEASE_QUEUED ? &lease->entry->waiting : &lease->entry->manager->failed;
}

/* The one place where a lease's station changes. */
static void move_lease(struct lease *lease, enum lease_station station)
{
    assert(lease->station != station && (lease->station != LEASE_FAILED || station == LEASE_ELSEWHERE));
    if (station == LEASE_QUEUED) manager_want(lease->entry);
    if (lease->station != LEASE_ELSEWHERE) {
        struct lease_list *list = list_at(lease);
        *(lease->previous == NULL ? &list->first : &lease->previous->next) = lease->next;
        *(lease->next == NULL ? &list->last : &lease->next->previous) = lease->previous;
        if (lease->station == LEASE_QUEUED) lease->entry->n_waiting--;
    }
    lease->station = station;
    if (station != LEASE_ELSEWHERE) {
        struct lease_list *list = list_at(lease);
        lease->next = NULL;
        lease->previous = list->last;
        *(list->last == NULL ? &list->first : &list->last->next) = lease;
        list->last = lease;
        if (lease->station == LEASE_QUEUED) lease->entry->n_waiting++;
    }
}

static void grant(struct lease *lease)
{
    lease->entry->n_requests++;
    lease->entry->n_active++;
    atomic_store(&lease->model, lease->entry->model);
}

/* They leave the queue at once, so that a later request has the model loaded anew. */
void leases_fail(struct model_entry *entry)
{
    /* The error of the load as the request gets it: a bad model file is HEARTH_UNAVAILABLE, since the request is not at
     * fault. */
    hearth_error error = entry->error;
    if (error.code != HEARTH_NO_MEMORY) error.code = HEARTH_UNAVAILABLE;
    error.param[0] = '\0';
    error_prefix(&error, "model '%s' could not be loaded: ", entry->config->name);
    while (entry->waiting.first != NULL) {
        entry->waiting.first->error = error;
        move_lease(entry->waiting.first, LEASE_FAILED);
    }
}

/* ---- The notifier thread ---- */

/* When the wait of an entry's leases ends: all that have a deadline have the same time from their beginning. One
 * without belongs to a request that comes before, with whose leases it is cancelled, so that few are passed over. */
static const struct lease *next_to_expire(const struct model_entry *entry)
{
    const struct lease *lease = entry->waiting.first;
    while (lease != NULL && lease->deadline == CLOCK_NEVER) lease = lease->next;
    return lease;
}

/* Fails one lease of the entry that can wait no longer. */
static void fail_late(struct model_entry *entry)
{
    struct lease *lease = (struct lease *)next_to_expire(entry);
    bool is_late = lease != NULL && clock_now(entry->manager->instance->clock) >= lease->deadline;
    if (entry->manager->stopping && (lease = entry->waiting.first) != NULL)
        error_set(&lease->error, HEARTH_UNAVAILABLE, "engine shutting down");
    else if (is_late && (entry->presence == HEARTH_MODEL_LOADING || manager_can_fit(entry->manager, entry)))
        error_set(&lease->error, HEARTH_UNAVAILABLE, "model '%s' is still loading: try again in a moment",
                  entry->config->name);
    else if (is_late)
        error_at(&lease->error, HEARTH_BUSY, "server.memory_budget_mb",
                 "no memory for model '%s': other models are in use, and server.memory_budget_mb is %llu; try again "
                 "later",
                 entry->config->name, (unsigned long long)(entry->manager->budget >> 20));
    else
        return;
    move_lease(lease, LEASE_FAILED);
}

/* A lease whose wait is over. HEARTH_OK in the error: the model is loaded; else why the request gets none. */
static struct lease *take_decided(struct model_manager *manager, hearth_error *error)
{
    *error = (hearth_error){0};
    for (size_t i = 0; i < manager_count(manager) && manager->failed.first == NULL; i++) {
        struct model_entry *entry = manager_at(manager, i);
        struct lease *first = entry->waiting.first;
        if (first != NULL && !manager->stopping && entry->presence == HEARTH_MODEL_LOADED) {
            move_lease(first, LEASE_ELSEWHERE);
            grant(first);
            return first;
        }
        fail_late(entry);
    }
    struct lease *failed = manager->failed.first;
    if (failed == NULL) return NULL;
    move_lease(failed, LEASE_ELSEWHERE);
    *error = failed->error;
    return failed;
}

static int64_t next_lease_deadline(const struct model_manager *manager)
{
    int64_t deadline = CLOCK_NEVER;
    for (size_t i = 0; i < manager_count(manager); i++) {
        const struct lease *lease = next_to_expire(manager_at(manager, i));
        if (lease != NULL && lease->deadline < deadline) deadline = lease->deadline;
    }
    return deadline;
}

/* Whether a lease waits or has yet to be told. */
static bool has_leases(const struct model_manager *manager)
{
    bool any = manager->failed.first != NULL;
    for (size_t i = 0; i < manager_count(manager); i++) any = any || manager_at(manager, i)->n_waiting > 0;
    return any;
}

void *leases_notify_loop(void *ud)
{
    struct model_manager *manager = ud;
    struct clock *clock = manager->instance->clock;
    hearth_error error;
    pthread_mutex_lock(&manager->mutex);
    while (!manager->stopping || has_leases(manager)) {
        struct lease *lease = take_decided(manager, &error);
        if (lease == NULL) {
            clock->wait(clock, &manager->changed, &manager->mutex, next_lease_deadline(manager));
            continue;
        }
        model_manager_check(manager);
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
    assert(lease->station == LEASE_ELSEWHERE && atomic_load(&lease->model) == NULL);
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
        move_lease(lease, LEASE_QUEUED);
        pthread_cond_broadcast(&manager->changed);
    }
    model_manager_check(manager);
    pthread_mutex_unlock(&manager->mutex);
    return taken;
}

void lease_cancel(struct lease *lease)
{
    struct model_manager *manager = lease->entry->manager;
    pthread_mutex_lock(&manager->mutex);
    if (lease->station == LEASE_QUEUED) {
        error_set(&lease->error, HEARTH_CANCELLED, "request was cancelled");
        move_lease(lease, LEASE_FAILED);
        model_manager_check(manager);
        pthread_cond_broadcast(&manager->changed);
    }
    pthread_mutex_unlock(&manager->mutex);
}

void lease_drop_party(struct lease *lease)
{
    struct model_entry *entry = lease->entry;
    int before = atomic_fetch_sub(&lease->parties, 1);
    assert(before > 0);
    if (before > 1 || atomic_load(&lease->model) == NULL) return;
    pthread_mutex_lock(&entry->manager->mutex);
    assert(entry->n_active > 0);
    entry->n_active--;
    model_manager_check(entry->manager);
    pthread_mutex_unlock(&entry->manager->mutex);
}

/* A request that was refused once it had its model has parties that never dropped it: it is not active any more. */
void lease_end(struct lease *lease)
{
    struct model_entry *entry = lease->entry;
    struct model_manager *manager = entry->manager;
    if (atomic_load(&lease->model) == NULL) return;
    pthread_mutex_lock(&manager->mutex);
    assert(entry->n_requests > 0 && lease->station == LEASE_ELSEWHERE);
    entry->used_at = clock_now(manager->instance->clock);
    entry->keep = entry->next_keep;
    if (atomic_load(&lease->parties) > 0) entry->n_active--;
    if (--entry->n_requests == 0) pthread_cond_broadcast(&manager->changed);
    model_manager_check(manager);
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
    model_manager_check(manager);
    pthread_mutex_unlock(&manager->mutex);
    return model;
}

void brief_lease_end(struct model_entry *entry)
{
    struct model_manager *manager = entry->manager;
    pthread_mutex_lock(&manager->mutex);
    assert(entry->n_brief > 0);
    if (--entry->n_brief == 0) pthread_cond_broadcast(&manager->changed);
    pthread_mutex_unlock(&manager->mutex);
}
