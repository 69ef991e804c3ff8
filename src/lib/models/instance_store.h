/* The store of an instance: one for all of its models, and what names a model's states in it. */
#ifndef LIB_MODELS_INSTANCE_STORE_H
#define LIB_MODELS_INSTANCE_STORE_H

#include "config/config.h"
#include "hearth.h"
#include "llm/model_identity.h"
#include "store/store.h"

#include <pthread.h>

/* `store` gets NULL where every tier is off, or no model keeps anything. Fails where its threads cannot be started. */
int cache_open(const struct hearth_config *config, struct store **store, hearth_error *error);

/* The fingerprint of a model's file, computed on a thread of its own while the model is loaded. That both read the same
 * file is seen by what it was before and is after. Starts out zeroed; what was learned of a file holds for its next
 * loads too, as long as it stays what it is. */
struct fingerprint {
    const char *path;
    uint8_t stamp[SHA256_BYTES];
    pthread_t thread;
    bool verify; /* against the file's sidecar */
    bool running, known;
    _Atomic bool stop;
    int rc;
    uint8_t digest[SHA256_BYTES];
    hearth_error error;
};

/* Fails for want of a thread alone; what is wrong with the file is told at the end. */
int fingerprint_start(struct fingerprint *fingerprint, const char *path, bool verify, hearth_error *error);

/* Waits for it; the model must have been loaded. False: there is none, and the error says why. */
bool fingerprint_finish(struct fingerprint *fingerprint);

/* Gives it up. */
void fingerprint_stop(struct fingerprint *fingerprint);

/* What a model's states depend on beside the tokens, but for what its context adds (engine_params.identity) and what a
 * request's salt and adapters do (lib/models/adapters.h). */
struct identity cache_identity(const struct config_model *config, const uint8_t digest[SHA256_BYTES]);

/* Bytes that each model may keep in memory beside its cells: the tier `ram`, shared with the store where that saves to
 * it. */
uint64_t cache_state_budget(const struct hearth_config *config);

#endif
