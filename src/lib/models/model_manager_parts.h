/* What model_manager.c and lease.c share: the keeper from inside. */
#ifndef LIB_MODELS_MODEL_MANAGER_PARTS_H
#define LIB_MODELS_MODEL_MANAGER_PARTS_H

#include "lib/models/loaded_model.h"
#include "lib/models/model_manager.h"

struct keeper {
    struct hearth *instance;
    struct model_loader loader;
    uint64_t budget; /* bytes; 0: no limit */
    pthread_t mover, usher;

    pthread_mutex_t mutex; /* guards what follows, and what of each known model is marked so */
    pthread_cond_t changed;
    bool has_mover, has_usher, stopping;
    uint64_t n_wanted;           /* so often was a model wanted: their order */
    struct lease *first, **tail; /* that wait, in order */
};

/* Models that are known so far. */
static inline size_t keeper_count(const struct keeper *keeper)
{
    return atomic_load(&keeper->instance->n_known);
}

static inline struct known *keeper_at(const struct keeper *keeper, size_t i)
{
    return &keeper->instance->known[i];
}

/* With the mutex held: */
bool keeper_can_fit(const struct keeper *keeper, const struct known *known); /* if all that is idle left */
void keeper_want(struct known *known);                                       /* gives it its place, unless it has one */
void leases_fail(struct known *known); /* of those that wait for it, with its error */

/* The usher's loop; `ud` is the keeper. Ends once that stops and nobody waits. */
void *leases_usher(void *ud);

#endif
