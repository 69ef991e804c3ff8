/* Which models are in memory: one is loaded when somebody wants it, and leaves when it has been idle for long, when
 * another needs its room, or when it is told to.
 *
 * Whoever uses a model holds on to it: requests with a lease from submission to the end of their handle, other calls
 * with a visit while they last. Only what nobody holds on to leaves. Two threads: the mover loads and unloads, one
 * model at a time; the usher tells requests that waited that their model is there, or that it will not be. */
#ifndef LIB_MODELS_MODEL_MANAGER_H
#define LIB_MODELS_MODEL_MANAGER_H

#include "lib/models/entry.h"
#include "lib/models/loaded_model.h"

struct model_manager;

/* How a model gets into memory and out of it. Nobody else holds on to one that is closed; what is resident of it is
 * stored first. */
struct model_loader {
    struct model *(*open)(struct hearth *instance, struct model_entry *entry, struct model_progress *progress,
                          hearth_error *error);
    void (*close)(struct model *model);
};

struct model_manager *manager_open(struct hearth *instance, const struct model_loader *loader);
void manager_close(struct model_manager *manager); /* after manager_stop(), and after the last request; NULL is fine */

/* Loads a model on the calling thread: before manager_start(), where nothing else moves. */
int manager_load(struct model_manager *manager, struct model_entry *entry, hearth_progress progress, void *ud,
                 hearth_error *error);

/* Whether a model could ever have room. */
int manager_check(const struct model_manager *manager, const struct model_entry *entry, hearth_error *error);

/* From here on models come and go. Where its threads cannot be had, everything is refused as after manager_stop(). */
int manager_start(struct model_manager *manager, hearth_error *error);

/* Breaks off a load, fails requests that wait, refuses those to come. Afterwards nothing moves any more. */
void manager_stop(struct model_manager *manager);

/* ---- Leases ---- */

/* A request's hold on a model. Whoever takes it fills in the first part. */
struct lease {
    struct model_entry *entry;
    const _Atomic bool *cancelled; /* it waits no longer once this is set: lease_wake_notifier() */
    int64_t deadline;              /* nor after that */
    /* On the usher's thread, if it had to wait: the model is there, or with an error never will be for it. */
    void (*on_ready)(void *ud, const hearth_error *error);
    void *ud;

    struct model *_Atomic model; /* NULL: not there yet */
    _Atomic int parties;         /* who still stands for the request: lease_drop_party() */
    /* The manager's: */
    bool failed;
    hearth_error error;
    struct lease *next;
};

/* on_ready is called only of one that waits, and then exactly once. */
enum lease_taken { LEASE_READY, LEASE_WAITS, LEASE_REFUSED };

enum lease_taken lease_take(struct lease *lease, hearth_error *error);
void lease_wake_notifier(struct lease *lease);

/* Called by each of a request's two parties: before its last event is told, and when its handle is given back. After
 * both it counts as active no longer, though its thread may not be quite through with it. */
void lease_drop_party(struct lease *lease);
void lease_end(struct lease *lease); /* nobody needs the model; also of one that never got it */

/* ---- Visits ---- */

/* The model while it is looked at, or NULL: it is not in memory. Must be short. */
struct model *brief_lease_take(struct model_entry *entry);
void brief_lease_end(struct model_entry *entry);

/* ---- How it stands ---- */

const char *manager_state(struct model_entry *entry); /* as hearth.h tells it */
bool manager_has(struct model_entry *entry);          /* in memory */
size_t manager_waiting(struct model_entry *entry);    /* requests that wait for it */

#endif
