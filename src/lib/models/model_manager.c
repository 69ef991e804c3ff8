/* The keeper's mover: what is loaded and unloaded next, and the calls that ask for it. lease.c has what holds on to
 * models. */
#include "lib/models/model_manager_parts.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"

#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

/* ---- What is to be done; locked ---- */

static bool is_in_memory(const struct known *known)
{
    return known->model != NULL;
}

static bool is_idle(const struct known *known)
{
    return known->presence == MODEL_LOADED && known->n_requests + known->n_waiting + known->n_visits == 0;
}

static bool is_leaving(const struct known *known)
{
    return known->presence == MODEL_UNLOADING;
}

static bool is_wanted(const struct known *known)
{
    bool away = known->presence == MODEL_UNLOADED || known->presence == MODEL_FAILED;
    return away && (known->asked || known->n_waiting > 0);
}

static uint64_t bytes_of(const struct keeper *keeper, bool (*counts)(const struct known *known))
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < keeper_count(keeper); i++)
        if (counts(keeper_at(keeper, i))) bytes += keeper_at(keeper, i)->facts.bytes;
    return bytes;
}

static bool fits(const struct keeper *keeper, const struct known *known)
{
    return keeper->budget == 0 || bytes_of(keeper, is_in_memory) + known->facts.bytes <= keeper->budget;
}

bool keeper_can_fit(const struct keeper *keeper, const struct known *known)
{
    uint64_t stay = bytes_of(keeper, is_in_memory) - bytes_of(keeper, is_idle) - bytes_of(keeper, is_leaving);
    return keeper->budget == 0 || stay + known->facts.bytes <= keeper->budget;
}

/* The one that matches and whose number is lowest; NULL: none matches. */
static struct known *lowest(const struct keeper *keeper, bool (*matches)(const struct known *known),
                            int64_t (*number)(const struct known *known))
{
    struct known *best = NULL;
    for (size_t i = 0; i < keeper_count(keeper); i++) {
        struct known *known = keeper_at(keeper, i);
        if (matches(known) && (best == NULL || number(known) < number(best))) best = known;
    }
    return best;
}

static int64_t wanted_at(const struct known *known)
{
    return (int64_t)known->wanted_at;
}

static int64_t used_at(const struct known *known)
{
    return known->used_at;
}

static bool is_wanted_and_can_fit(const struct known *known)
{
    return is_wanted(known) && keeper_can_fit(known->keeper, known);
}

static int64_t idle_until(const struct known *known)
{
    if (!is_idle(known) || known->config->idle_unload == 0) return CLOCK_NEVER;
    return known->used_at + clock_from_ms((int64_t)(known->config->idle_unload * 1e3));
}

static bool is_known(const struct known *known)
{
    (void)known;
    return true;
}

/* ---- Moving ---- */

static void give_memory_back(void)
{
#ifdef __GLIBC__
    malloc_trim(0); /* what was freed piece by piece stays with the process otherwise */
#endif
}

/* Locked when called and on return, not between. */
static void move_out(struct keeper *keeper, struct known *known)
{
    struct model *model = known->model;
    int64_t begin = clock_now(keeper->instance->clock);
    pthread_mutex_unlock(&keeper->mutex);
    keeper->loader.close(model);
    give_memory_back();
    double took = clock_to_ms(clock_now(keeper->instance->clock) - begin);
    metric_add(&known->moves.unloads, 1);
    log_event(LOG_INFO, "model", "unloaded", log_str("model", known->config->name), log_num("took_ms", took));
    pthread_mutex_lock(&keeper->mutex);
    known->model = NULL;
    known->presence = MODEL_UNLOADED;
    pthread_cond_broadcast(&keeper->changed);
}

static void settle(struct known *known, struct model *model, const hearth_error *error)
{
    known->model = model;
    known->presence = model != NULL ? MODEL_LOADED : MODEL_FAILED;
    known->error = *error;
    known->used_at = clock_now(known->keeper->instance->clock);
    if (model == NULL) leases_fail(known);
    pthread_cond_broadcast(&known->keeper->changed);
}

int keeper_load(struct keeper *keeper, struct known *known, hearth_progress progress, void *ud, hearth_error *error)
{
    struct clock *clock = keeper->instance->clock;
    int64_t begin = clock_now(clock);
    pthread_mutex_lock(&keeper->mutex);
    known->presence = MODEL_LOADING;
    known->asked = false;
    pthread_cond_broadcast(&keeper->changed);
    pthread_mutex_unlock(&keeper->mutex);
    *error = (hearth_error){0};
    struct model_progress of = {.progress = progress, .ud = ud, .name = known->config->name};
    struct model *model = keeper->loader.open(keeper->instance, known, &of, error);
    if (model != NULL)
        histogram_observe(&known->moves.load_seconds, &histogram_seconds, clock_to_ms(clock_now(clock) - begin) / 1e3);
    metric_add(model != NULL ? &known->moves.loads : &known->moves.failures, 1);
    pthread_mutex_lock(&keeper->mutex);
    settle(known, model, error);
    pthread_mutex_unlock(&keeper->mutex);
    return (int)error->code;
}

static bool goes_on(void *ud, const char *name, float fraction)
{
    struct keeper *keeper = ud;
    (void)name;
    (void)fraction;
    pthread_mutex_lock(&keeper->mutex);
    bool stopping = keeper->stopping;
    pthread_mutex_unlock(&keeper->mutex);
    return !stopping;
}

/* Locked when called and on return, not between. */
static void move_in(struct keeper *keeper, struct known *known)
{
    hearth_error error;
    pthread_mutex_unlock(&keeper->mutex);
    if (keeper_load(keeper, known, goes_on, keeper, &error) != HEARTH_OK)
        log_event(LOG_ERROR, "model", "not loaded", log_str("model", known->config->name),
                  log_str("reason", error.message));
    pthread_mutex_lock(&keeper->mutex);
}

static void send_out(struct known *known, const char *reason)
{
    known->presence = MODEL_UNLOADING;
    log_event(LOG_INFO, "model", "unloading", log_str("model", known->config->name), log_str("reason", reason));
    pthread_cond_broadcast(&known->keeper->changed);
}

/* Does the next thing, if there is one. Locked when called and on return, not between. */
static bool step(struct keeper *keeper)
{
    struct known *leaving = lowest(keeper, is_leaving, used_at);
    struct known *wanted = lowest(keeper, is_wanted_and_can_fit, wanted_at);
    struct known *overdue = lowest(keeper, is_known, idle_until);
    if (leaving != NULL && leaving->n_requests + leaving->n_visits > 0) return false;
    if (leaving != NULL)
        move_out(keeper, leaving);
    else if (wanted != NULL && fits(keeper, wanted))
        move_in(keeper, wanted);
    else if (wanted != NULL)
        send_out(lowest(keeper, is_idle, used_at), "server.memory_budget_mb");
    else if (overdue != NULL && idle_until(overdue) <= clock_now(keeper->instance->clock))
        send_out(overdue, "idle_unload");
    else
        return false;
    return true;
}

static int64_t next_deadline(const struct keeper *keeper)
{
    struct known *first = lowest(keeper, is_known, idle_until);
    return first == NULL ? CLOCK_NEVER : idle_until(first);
}

static void *move(void *ud)
{
    struct keeper *keeper = ud;
    struct clock *clock = keeper->instance->clock;
    pthread_mutex_lock(&keeper->mutex);
    while (!keeper->stopping)
        if (!step(keeper)) clock->wait(clock, &keeper->changed, &keeper->mutex, next_deadline(keeper));
    pthread_mutex_unlock(&keeper->mutex);
    return NULL;
}

/* ---- Life ---- */

struct keeper *keeper_open(struct hearth *instance, const struct model_loader *loader)
{
    struct keeper *keeper = mem_alloc(sizeof *keeper);
    keeper->instance = instance;
    keeper->loader = *loader;
    keeper->budget = (uint64_t)instance->config->server.memory_budget_mb << 20;
    keeper->tail = &keeper->first;
    pthread_mutex_init(&keeper->mutex, NULL);
    clock_cond_init(&keeper->changed);
    return keeper;
}

int keeper_check(const struct keeper *keeper, const struct known *known, hearth_error *error)
{
    const double mib = 1024.0 * 1024;
    if (fits(keeper, known) || (strcmp(known->config->load, "demand") == 0 && known->facts.bytes <= keeper->budget))
        return HEARTH_OK;
    return error_at(error, HEARTH_NO_MEMORY, "server.memory_budget_mb",
                    "model '%s' takes %.0f MiB, and %.0f MiB are taken: server.memory_budget_mb is %.0f; raise it, or "
                    "set models.%s.load: demand",
                    known->config->name, (double)known->facts.bytes / mib, (double)bytes_of(keeper, is_in_memory) / mib,
                    (double)keeper->budget / mib, known->config->name);
}

int keeper_start(struct keeper *keeper, hearth_error *error)
{
    int rc = thread_start(&keeper->mover, move, keeper, "loads and unloads models", error);
    keeper->has_mover = rc == HEARTH_OK;
    if (rc == HEARTH_OK)
        rc = thread_start(&keeper->usher, leases_usher, keeper, "tells requests of their models", error);
    keeper->has_usher = rc == HEARTH_OK;
    if (rc != HEARTH_OK) keeper_stop(keeper);
    return rc;
}

void keeper_stop(struct keeper *keeper)
{
    pthread_mutex_lock(&keeper->mutex);
    keeper->stopping = true;
    bool has_usher = keeper->has_usher, has_mover = keeper->has_mover;
    keeper->has_usher = keeper->has_mover = false;
    pthread_cond_broadcast(&keeper->changed);
    pthread_mutex_unlock(&keeper->mutex);
    if (has_usher)
        pthread_join(keeper->usher, NULL);
    else
        leases_usher(keeper); /* of an instance that was never loaded */
    if (has_mover) pthread_join(keeper->mover, NULL);
}

void keeper_close(struct keeper *keeper)
{
    if (keeper == NULL) return;
    pthread_cond_destroy(&keeper->changed);
    pthread_mutex_destroy(&keeper->mutex);
    free(keeper);
}

/* ---- How it stands ---- */

static const char *state_of(const struct known *known)
{
    static const char *const names[] = {"unloaded", "loading", "loaded", "unloading", "failed"};
    return names[is_wanted(known) ? MODEL_LOADING : known->presence];
}

const char *keeper_state(struct known *known)
{
    pthread_mutex_lock(&known->keeper->mutex);
    const char *state = state_of(known);
    pthread_mutex_unlock(&known->keeper->mutex);
    return state;
}

bool keeper_has(struct known *known)
{
    pthread_mutex_lock(&known->keeper->mutex);
    bool has = is_in_memory(known);
    pthread_mutex_unlock(&known->keeper->mutex);
    return has;
}

size_t keeper_waiting(struct known *known)
{
    pthread_mutex_lock(&known->keeper->mutex);
    size_t n = known->n_waiting;
    pthread_mutex_unlock(&known->keeper->mutex);
    return n;
}

/* ---- hearth.h ---- */

static int ask_for(struct known *known, hearth_error *error)
{
    struct keeper *keeper = known->keeper;
    if (keeper->stopping) return error_set(error, HEARTH_UNAVAILABLE, "load: engine shutting down");
    if (known->presence == MODEL_LOADED) return error_at(error, HEARTH_INVALID, "model", "load: already loaded");
    keeper_want(known);
    known->asked = known->presence != MODEL_LOADING;
    pthread_cond_broadcast(&keeper->changed);
    return HEARTH_OK;
}

/* The texts are those that people search for: they are kept word for word. */
static int send_away(struct known *known, hearth_error *error)
{
    bool asked = known->asked;
    size_t n = known->n_active + known->n_waiting;
    if (known->keeper->stopping) return error_set(error, HEARTH_UNAVAILABLE, "unload: engine shutting down");
    if (n > 0) return error_set(error, HEARTH_BUSY, "unload: cannot unload, too many active-streams[%zu]", n);
    if (known->presence == MODEL_LOADING) return error_set(error, HEARTH_BUSY, "unload: still loading");
    known->asked = false;
    if (known->presence == MODEL_LOADED)
        send_out(known, "unload");
    else if (!asked)
        return error_at(error, HEARTH_INVALID, "model", "unload: already unloaded");
    return HEARTH_OK;
}

static int wait_for(struct known *known, hearth_error *error)
{
    struct keeper *keeper = known->keeper;
    struct clock *clock = keeper->instance->clock;
    while (!keeper->stopping &&
           (is_wanted(known) || known->presence == MODEL_LOADING || known->presence == MODEL_UNLOADING))
        clock->wait(clock, &keeper->changed, &keeper->mutex, CLOCK_NEVER);
    if (known->presence != MODEL_FAILED) return HEARTH_OK;
    *error = known->error;
    return (int)error->code;
}

static int with_model(hearth *instance, const char *model, int (*act)(struct known *known, hearth_error *error),
                      hearth_error *error)
{
    hearth_error own;
    if (error == NULL) error = &own;
    struct known *known = instance_find_model(instance, model, error);
    if (known == NULL) return (int)error->code;
    pthread_mutex_lock(&known->keeper->mutex);
    int rc = act(known, error);
    pthread_mutex_unlock(&known->keeper->mutex);
    return rc;
}

int hearth_load_model(hearth *instance, const char *model, hearth_error *error)
{
    return with_model(instance, model, ask_for, error);
}

int hearth_unload(hearth *instance, const char *model, hearth_error *error)
{
    return with_model(instance, model, send_away, error);
}

int hearth_await_model(hearth *instance, const char *model, hearth_error *error)
{
    return with_model(instance, model, wait_for, error);
}
