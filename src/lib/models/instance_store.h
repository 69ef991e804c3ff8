/* Opens the KV store of an instance, one for all of its models, from the configuration; and computes what identifies a
 * model's states in it, the fingerprint of its file. */
#ifndef LIB_MODELS_INSTANCE_STORE_H
#define LIB_MODELS_INSTANCE_STORE_H

#include "config/config.h"
#include "hearth.h"
#include "llm/model_identity.h"
#include "store/store.h"

#include <pthread.h>

/* `store` becomes NULL where every tier is off or no model caches. Fails where the store's threads cannot be started.
 */
int instance_store_open(const struct hearth_config *config, struct store **store, hearth_error *error);

/* The fingerprint (SHA-256) of a model's file, computed on a thread of its own while another loads the model. The
 * file's stamp is compared before and after, which shows that both read the same file. Zeroed at first; a digest is
 * kept for later loads as long as the stamp stays the same. */
struct fingerprint {
    const char *path;
    uint8_t stamp[SHA256_BYTES];
    pthread_t thread;
    bool verify;         /* compare the digest with the file's sidecar */
    bool running, known; /* the thread was started; `digest` is that of `stamp` */
    _Atomic bool stop;
    int rc;
    uint8_t digest[SHA256_BYTES];
    hearth_error error;
};

/* Fails only where no thread can be started; errors of the file are reported by fingerprint_finish(). */
int fingerprint_start(struct fingerprint *fingerprint, const char *path, bool verify, hearth_error *error);

/* Joins the thread; called after the model was loaded. False: there is no digest, and fingerprint->error says why. */
bool fingerprint_finish(struct fingerprint *fingerprint);

/* Aborts the computation and joins the thread. */
void fingerprint_stop(struct fingerprint *fingerprint);

/* The identity of a model's states in the store: what they depend on beside the tokens. The engine adds its context's
 * parameters (engine_params.identity), adapters_identity() a request's salt and adapters. */
struct identity instance_store_identity(const struct config_model *config, const uint8_t digest[SHA256_BYTES]);

/* Bytes of snapshots and checkpoints that each model may keep in memory beside its cells: its part of the tier `ram`'s
 * quota, of which the store has half where cache.save_tier is `ram`. */
uint64_t instance_store_state_budget(const struct hearth_config *config);

#endif
