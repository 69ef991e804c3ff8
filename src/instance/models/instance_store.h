/* Opens the KV store of an instance, one for all of its models, from the configuration; and says what identifies a
 * model's states in it. */
#ifndef INSTANCE_MODELS_INSTANCE_STORE_H
#define INSTANCE_MODELS_INSTANCE_STORE_H

#include "config/config.h"
#include "hearth.h"
#include "store/store.h"

/* `store` becomes NULL where every tier is off or no model caches. Fails where the store's threads cannot be started.
 */
int instance_store_open(const struct hearth_config *config, struct store **store, hearth_error *error);

/* STORE_TIERS: there is no such tier. */
enum store_tier tier_named(const char *name);

/* The identity of a model's states in the store, made of all that they depend on beside the tokens. The engine adds its
 * context's parameters (engine_params.identify), adapters_identity() a request's salt and adapters. */
struct identity instance_store_identity(const struct config_model *config, const uint8_t digest[SHA256_BYTES]);

/* Bytes of snapshots and checkpoints that each model may keep in memory beside its cells: its part of the tier `ram`'s
 * quota. The store has half of that quota where cache.save_tier is `ram`. */
uint64_t instance_store_state_budget(const struct hearth_config *config, size_t n_models);

#endif
