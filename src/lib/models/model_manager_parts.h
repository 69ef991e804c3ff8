/* The fields of the model manager and the functions that model_manager.c (the loader thread) and lease.c (the notifier
 * thread) share. */
#ifndef LIB_MODELS_MODEL_MANAGER_PARTS_H
#define LIB_MODELS_MODEL_MANAGER_PARTS_H

#include "lib/models/loaded_model.h"
#include "lib/models/model_manager.h"

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

/* With the mutex held: */
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
