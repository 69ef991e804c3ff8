/* What model_manager.c and lease.c share: the manager from inside. */
#ifndef LIB_MODELS_MODEL_MANAGER_PARTS_H
#define LIB_MODELS_MODEL_MANAGER_PARTS_H

#include "lib/models/loaded_model.h"
#include "lib/models/model_manager.h"

struct model_manager {
    struct hearth *instance;
    struct model_loader loader;
    uint64_t budget; /* bytes; 0: no limit */
    pthread_t loader_thread, notifier_thread;

    pthread_mutex_t mutex; /* guards what follows, and what of each known model is marked so */
    pthread_cond_t changed;
    bool has_loader, has_notifier, stopping;
    uint64_t n_wanted;           /* so often was a model wanted: their order */
    struct lease *first, **tail; /* that wait, in order */
};

/* Models that are known so far. */
static inline size_t manager_count(const struct model_manager *manager)
{
    return atomic_load(&manager->instance->n_entries);
}

static inline struct model_entry *manager_at(const struct model_manager *manager, size_t i)
{
    return &manager->instance->entries[i];
}

/* With the mutex held: */
bool manager_can_fit(const struct model_manager *manager,
                     const struct model_entry *entry); /* if all that is idle left */
void manager_want(struct model_entry *entry);          /* gives it its place, unless it has one */
void leases_fail(struct model_entry *entry);           /* of those that wait for it, with its error */

/* The usher's loop; `ud` is the manager. Ends once that stops and nobody waits. */
void *leases_notify_loop(void *ud);

#endif
