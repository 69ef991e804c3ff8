/* The LoRA adapters of a model: loaded with it, named by their place in models.*.lora, and scaled request by request.
 *
 * The scales of requests that name none may be changed at any time, by any thread, also while the model is not in
 * memory; whatever has been submitted keeps those it was submitted with. The rest changes with the model alone: whoever
 * loads it calls adapters_load(), and adapters_unload() after its engine's end. */
#ifndef LIB_MODELS_ADAPTERS_H
#define LIB_MODELS_ADAPTERS_H

#include "config/config.h"
#include "hearth.h"
#include "lib/models/instance_store.h"
#include "llm/adapter.h"

struct adapters;

/* Those that the configuration names, with their scales; the files are not read yet. */
struct adapters *adapters_open(const struct config_model *config, hearth_error *error);
void adapters_close(struct adapters *adapters); /* NULL is fine; unloads */

/* Reads their files. `named`: the states of the model are stored, and what depends on the adapters has to be told apart
 * after a restart too. */
int adapters_load(struct adapters *adapters, struct llm_model *weights, bool named, hearth_error *error);
void adapters_unload(struct adapters *adapters);

size_t adapters_count(const struct adapters *adapters);
struct llm_adapter *const *adapters_handles(const struct adapters *adapters);

/* Waits until the digests of all files are known. False: they cannot be had, and the error says why. */
bool adapters_finish(struct adapters *adapters, hearth_error *error);

/* The scales of a request, to be freed; NULL with HEARTH_OK: no adapter takes part. `wanted` NULL: as they are set. */
int adapters_choose(struct adapters *adapters, const hearth_lora *wanted, size_t n, double **scales,
                    hearth_error *error);

/* What requests that differ in either never share: 0 with neither a salt nor an adapter. */
uint64_t adapters_scope(const struct adapters *adapters, const char *salt, const double *scales);

/* The same for the store. */
struct identity adapters_identity(const struct adapters *adapters, const struct identity *base, const char *salt,
                                  const double *scales);

#endif
