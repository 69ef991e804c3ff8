/* Holding on to models: leases of requests, of which some have to wait, and visits of other calls. The keeper's mutex
 * guards it all; the usher's thread tells those that wait. */
#include "lib/models/model_manager_parts.h"

#include "base/error.h"

#include <string.h>

/* ---- Waiting; locked ---- */

void keeper_want(struct known *known)
{
    if (!known->asked && known->n_waiting == 0) known->wanted_at = ++known->keeper->n_wanted;
}

static void append(struct keeper *keeper, struct lease *lease)
{
    keeper_want(lease->known);
    lease->known->n_waiting++;
    lease->next = NULL;
    *keeper->tail = lease;
    keeper->tail = &lease->next;
}

static void strike(struct keeper *keeper, struct lease **link)
{
    struct lease *lease = *link;
    *link = lease->next;
    if (*link == NULL) keeper->tail = link;
    if (!lease->failed) lease->known->n_waiting--;
}

static void hold(struct lease *lease)
{
    lease->known->n_requests++;
    lease->known->n_active++;
    atomic_store(&lease->model, lease->known->model);
}

/* What is wrong with a model's file is no fault of the request's. */
static hearth_error as_told(const struct known *known)
{
    hearth_error error = known->error;
    if (error.code != HEARTH_NO_MEMORY) error.code = HEARTH_UNAVAILABLE;
    error.param[0] = '\0';
    error_prefix(&error, "model '%s' could not be loaded: ", known->config->name);
    return error;
}

/* They are out of the count at once: whoever comes after them has the model tried anew. */
void leases_fail(struct known *known)
{
    hearth_error error = as_told(known);
    for (struct lease *lease = known->keeper->first; lease != NULL; lease = lease->next) {
        if (lease->known != known || lease->failed) continue;
        lease->failed = true;
        lease->error = error;
        known->n_waiting--;
    }
}

/* ---- The usher ---- */

static void say_late(const struct lease *lease, hearth_error *error)
{
    const struct known *known = lease->known;
    if (known->presence == MODEL_LOADING || keeper_can_fit(known->keeper, known))
        error_set(error, HEARTH_UNAVAILABLE, "model '%s' is still loading: try again in a moment", known->config->name);
    else
        error_at(error, HEARTH_BUSY, "server.memory_budget_mb",
                 "no memory for model '%s': other models are in use, and server.memory_budget_mb is %llu; try again "
                 "later",
                 known->config->name, (unsigned long long)(known->keeper->budget >> 20));
}

/* Whether it waits no longer; the error says why it goes without its model. */
static bool decide(struct keeper *keeper, struct lease *lease, hearth_error *error)
{
    struct clock *clock = keeper->instance->clock;
    *error = lease->failed ? lease->error : (hearth_error){0};
    if (keeper->stopping)
        error_set(error, HEARTH_UNAVAILABLE, "engine shutting down");
    else if (atomic_load(lease->cancelled))
        error_set(error, HEARTH_CANCELLED, "request was cancelled");
    else if (!lease->failed && lease->known->presence == MODEL_LOADED)
        return true;
    else if (!lease->failed && lease->deadline != CLOCK_NEVER && clock_now(clock) >= lease->deadline)
        say_late(lease, error);
    return error->code != HEARTH_OK;
}

static struct lease *take_decided(struct keeper *keeper, hearth_error *error)
{
    for (struct lease **link = &keeper->first; *link != NULL; link = &(*link)->next) {
        struct lease *lease = *link;
        if (!decide(keeper, lease, error)) continue;
        strike(keeper, link);
        if (error->code == HEARTH_OK) hold(lease);
        return lease;
    }
    return NULL;
}

static int64_t next_deadline(const struct keeper *keeper)
{
    int64_t deadline = CLOCK_NEVER;
    for (const struct lease *lease = keeper->first; lease != NULL; lease = lease->next)
        if (lease->deadline < deadline) deadline = lease->deadline;
    return deadline;
}

void *leases_usher(void *ud)
{
    struct keeper *keeper = ud;
    struct clock *clock = keeper->instance->clock;
    hearth_error error;
    pthread_mutex_lock(&keeper->mutex);
    while (!keeper->stopping || keeper->first != NULL) {
        struct lease *lease = take_decided(keeper, &error);
        if (lease == NULL) {
            clock->wait(clock, &keeper->changed, &keeper->mutex, next_deadline(keeper));
            continue;
        }
        pthread_cond_broadcast(&keeper->changed); /* whoever loads or leaves for it may think again */
        pthread_mutex_unlock(&keeper->mutex);
        lease->on_ready(lease->ud, error.code == HEARTH_OK ? NULL : &error);
        pthread_mutex_lock(&keeper->mutex);
    }
    pthread_mutex_unlock(&keeper->mutex);
    return NULL;
}

/* ---- Leases ---- */

/* Whoever finds others waiting waits behind them. */
enum lease_taken lease_take(struct lease *lease, hearth_error *error)
{
    struct known *known = lease->known;
    struct keeper *keeper = known->keeper;
    enum lease_taken taken = LEASE_WAITS;
    lease->parties = 2;
    pthread_mutex_lock(&keeper->mutex);
    if (keeper->stopping) {
        error_set(error, HEARTH_UNAVAILABLE, "submit: engine shutting down");
        taken = LEASE_REFUSED;
    } else if (known->presence == MODEL_LOADED && known->n_waiting == 0) {
        hold(lease);
        taken = LEASE_READY;
    } else {
        append(keeper, lease);
        pthread_cond_broadcast(&keeper->changed);
    }
    pthread_mutex_unlock(&keeper->mutex);
    return taken;
}

void lease_poke(struct lease *lease)
{
    struct keeper *keeper = lease->known->keeper;
    pthread_mutex_lock(&keeper->mutex);
    pthread_cond_broadcast(&keeper->changed);
    pthread_mutex_unlock(&keeper->mutex);
}

static void drop_active(struct known *known)
{
    pthread_mutex_lock(&known->keeper->mutex);
    known->n_active--;
    pthread_mutex_unlock(&known->keeper->mutex);
}

void lease_part(struct lease *lease)
{
    bool last = atomic_fetch_sub(&lease->parties, 1) == 1;
    if (last && atomic_load(&lease->model) != NULL) drop_active(lease->known);
}

void lease_end(struct lease *lease)
{
    struct known *known = lease->known;
    struct keeper *keeper = known->keeper;
    if (atomic_load(&lease->model) == NULL) return;
    pthread_mutex_lock(&keeper->mutex);
    known->used_at = clock_now(keeper->instance->clock);
    if (--known->n_requests == 0) pthread_cond_broadcast(&keeper->changed);
    pthread_mutex_unlock(&keeper->mutex);
}

/* ---- Visits ---- */

struct model *visit_begin(struct known *known)
{
    struct keeper *keeper = known->keeper;
    pthread_mutex_lock(&keeper->mutex);
    bool there = known->presence == MODEL_LOADED;
    if (there) known->n_visits++;
    struct model *model = there ? known->model : NULL;
    pthread_mutex_unlock(&keeper->mutex);
    return model;
}

void visit_end(struct known *known)
{
    struct keeper *keeper = known->keeper;
    pthread_mutex_lock(&keeper->mutex);
    if (--known->n_visits == 0) pthread_cond_broadcast(&keeper->changed);
    pthread_mutex_unlock(&keeper->mutex);
}
