/* The model manager: loads and unloads the models of an instance, and counts who uses them. A model is loaded when a
 * request or hearth_load_model() wants it. It is unloaded after `idle_unload` seconds without use, when another model
 * needs its memory (the least recently used one first), or by hearth_unload_model().
 *
 * A request holds a lease on its model from submission until its handle is released; other calls hold a brief lease
 * while they last. Only a model without leases is unloaded. Two threads: the loader thread loads and unloads, one model
 * at a time; the notifier thread calls requests that waited, once their model is loaded or failed to load. The
 * manager's mutex guards what all threads share. */
#ifndef INSTANCE_MODELS_MODEL_MANAGER_H
#define INSTANCE_MODELS_MODEL_MANAGER_H

#include "instance/models/loaded_model.h"

/* Passes the progress of a load to the caller of hearth_load(). */
struct model_progress {
    hearth_progress progress;
    void *ud;
    const char *name;
};

/* Callbacks that load and unload one model. close() is called when nobody holds a lease on the model; it stores what is
 * resident first. */
struct model_loader {
    struct model *(*open)(struct hearth *instance, struct model_entry *entry, struct model_progress *progress,
                          hearth_error *error);
    void (*close)(struct model *model);
};

struct model_manager {
    struct hearth *instance;
    struct model_loader loader;
    uint64_t budget; /* bytes; 0: no limit */
    pthread_t loader_thread, notifier_thread;

    pthread_mutex_t mutex; /* guards what follows, and the fields of each model entry that are marked so */
    pthread_cond_t changed;
    bool has_loader, has_notifier, stopping; /* has_*: the thread was started and is not joined */
    uint64_t n_wanted;                       /* counts the models asked for: numbers their order (wanted_at) */
    struct lease_list failed;                /* leases whose requests have yet to be told */
};

/* Number of entries whose facts are complete. */
static inline size_t manager_count(const struct model_manager *manager)
{
    return atomic_load(&manager->instance->n_entries);
}

static inline struct model_entry *manager_at(const struct model_manager *manager, size_t i)
{
    return &manager->instance->entries[i];
}

struct model_manager *manager_open(struct hearth *instance, const struct model_loader *loader);
void manager_close(struct model_manager *manager); /* after manager_stop(), and after the last request; NULL is fine */

/* Loads a model on the calling thread; until manager_start() any thread may call it, afterwards only the loader thread.
 */
int manager_load(struct model_manager *manager, struct model_entry *entry, hearth_progress progress, void *ud,
                 hearth_error *error);

/* Fails with HEARTH_NO_MEMORY where server.memory_budget_mb has no room for the model: beside those loaded, or with
 * load: demand even alone. */
int manager_check_budget(const struct model_manager *manager, const struct model_entry *entry, hearth_error *error);

/* Starts both threads. Where one cannot be started, the manager refuses everything, as after manager_stop(). */
int manager_start(struct model_manager *manager, hearth_error *error);

/* Aborts a load, fails requests that wait, refuses later ones, and joins both threads: afterwards nothing is loaded or
 * unloaded any more. */
void manager_stop(struct model_manager *manager);

/* ---- Leases ---- */

/* A request's use of a model. The caller of lease_take() fills in the first part. */
struct lease {
    struct model_entry *entry;
    int64_t deadline; /* clock time in nanoseconds at which the wait ends; CLOCK_NEVER: another one's holds for both */
    /* Called on the notifier thread, if the request had to wait: without an error the model is loaded, with one the
     * request gets none. */
    void (*on_ready)(void *ud, const hearth_error *error);
    void *ud;

    struct model *_Atomic model; /* NULL: not granted yet */
    _Atomic int parties;         /* 2, 1 or 0 of those that call lease_drop_party() */
    /* Guarded by the manager's mutex: */
    enum lease_station { LEASE_ELSEWHERE, LEASE_QUEUED, LEASE_FAILED } station;
    hearth_error error; /* of a failed one */
    struct lease *next, *previous;
};

/* on_ready is called only for LEASE_WAITS, and then exactly once. */
enum lease_taken { LEASE_READY, LEASE_WAITS, LEASE_REFUSED };

enum lease_taken lease_take(struct lease *lease, hearth_error *error);
void lease_cancel(struct lease *lease); /* ends its wait, if it still waits */

/* Called by both parties of a request: the engine side before it emits the last event, the caller's side when the
 * handle is released. After both the request no longer counts as active (hearth_unload_model() does not refuse because
 * of it), though its thread may not be quite through with the model. */
void lease_drop_party(struct lease *lease);
void lease_end(struct lease *lease); /* the request no longer needs the model; also for one that never got it */

/* ---- Brief leases ---- */

/* Keeps a loaded model in memory until brief_lease_end(); NULL: it is not loaded. The manager waits for it before it
 * unloads, so the time in between must be short. */
struct model *brief_lease_take(struct model_entry *entry);
void brief_lease_end(struct model_entry *entry);

/* ---- Status ---- */

hearth_model_state manager_state(struct model_entry *entry);

/* The model stays without use as long as the configuration says. Before anybody knows the entry, or under the mutex. */
void manager_forget_keep(struct model_entry *entry);

/* Seconds after which the model is unloaded if no request comes; negative: never. Any thread. */
double manager_idle_left(struct model_entry *entry);
bool manager_has(struct model_entry *entry);       /* whether the model is in memory */
size_t manager_waiting(struct model_entry *entry); /* number of requests that wait for it */

/* Why its states are neither stored nor looked up; "": they are. */
void manager_note_unstored(struct model_entry *entry, const char *reason);
void manager_unstored(struct model_entry *entry, char *reason, size_t size);

/* ---- Between the loader thread (model_manager.c) and the notifier thread (lease.c) ---- */

/* With the mutex held: */
/* Asserts the invariants of states, leases, waiting lists and memory, after each change. */
#ifndef NDEBUG
void model_manager_check(const struct model_manager *manager);
#else
static inline void model_manager_check(const struct model_manager *manager)
{
    (void)manager;
}
#endif
/* Whether the model would fit if every idle model were unloaded. */
bool manager_can_fit(const struct model_manager *manager, const struct model_entry *entry);
/* Numbers the entry in the order in which models are loaded, unless it has a number. */
void manager_want(struct model_entry *entry);
/* Fails the leases that wait for the model, with the entry's error. */
void leases_fail(struct model_entry *entry);

/* HEARTH_NOT_FOUND, of an entry that was found before its model was removed. */
int manager_refuse_removed(const struct model_entry *entry, hearth_error *error);

/* The notifier thread; `ud` is the manager. Returns once the manager is stopping and no lease waits. */
void *leases_notify_loop(void *ud);

#endif
