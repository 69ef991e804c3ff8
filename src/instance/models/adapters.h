/* The LoRA adapters of a model: loaded with it, named by their index in models.*.lora, each with a scale per request.
 *
 * The default scales, for requests that name no adapters, may be changed at any time, by any thread, also while the
 * model is not in memory. A submitted request keeps the scales it was submitted with. The rest changes with the model
 * alone: the thread that loads it calls adapters_load(), and adapters_unload() after its engine was closed. */
#ifndef INSTANCE_MODELS_ADAPTERS_H
#define INSTANCE_MODELS_ADAPTERS_H

#include "config/config.h"
#include "hearth.h"
#include "llm/adapter.h"
#include "store/store.h"

struct adapters;

/* The adapters that the configuration names, with their default scales; their files are not read yet. */
struct adapters *adapters_open(const struct config_model *config, hearth_error *error);
void adapters_close(struct adapters *adapters); /* NULL is fine; unloads */

/* Reads the files. `store` (NULL: none): where the model's states are stored; their digests are found then, since
 * states of different adapters must have different identities after a restart too. */
int adapters_load(struct adapters *adapters, struct llm_model *weights, struct store *store, hearth_error *error);
void adapters_unload(struct adapters *adapters);

/* Ends the computation of their digests, which nothing needs any more. Any thread; NULL is fine. */
void adapters_abandon(struct adapters *adapters);

size_t adapters_count(const struct adapters *adapters);
struct llm_adapter *const *adapters_handles(const struct adapters *adapters);

/* Waits for the digests of all files. False: one could not be computed, and the error says why. */
bool adapters_finish(struct adapters *adapters, hearth_error *error);

/* The scales of a request, one per adapter, to be freed; NULL with HEARTH_OK: all are 0. `wanted` NULL: the default
 * scales. */
int adapters_choose(struct adapters *adapters, const hearth_lora *wanted, size_t n, double **scales,
                    hearth_error *error);

/* The scope of a request's resident cells: requests with different scopes never share cells. 0: neither a salt nor an
 * adapter. */
uint64_t adapters_scope(const struct adapters *adapters, const char *salt, const double *scales);

/* The same for the store: the identity of a request's slabs. */
struct identity adapters_identity(const struct adapters *adapters, const struct identity *base, const char *salt,
                                  const double *scales);

/* The adapters of a request for routers: their files' names without folder and .gguf, "a+b:0.5"; free() it. NULL: none.
 */
char *adapters_label(const struct adapters *adapters, const double *scales);

#endif
