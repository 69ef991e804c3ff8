/* What is known of a model of the configuration, whether it is in memory or not: its facts, the scales of its adapters,
 * what was counted, and where it stands. Lives as long as the instance and never moves.
 *
 * The facts are learned once, from the file's description or from the loaded weights, before others get to see the
 * model, and never change again. What is marked as guarded belongs to the manager (model_manager.h). */
#ifndef LIB_MODELS_ENTRY_H
#define LIB_MODELS_ENTRY_H

#include "embed/pool.h"
#include "engine/engine.h"
#include "lib/models/adapters.h"
#include "lib/models/instance_store.h"

struct model_manager;
struct model;

enum model_type { MODEL_CHAT, MODEL_EMBEDDING, MODEL_RERANK };

enum presence { MODEL_UNLOADED, MODEL_LOADING, MODEL_LOADED, MODEL_UNLOADING, MODEL_FAILED };

struct facts {
    enum model_type type;
    char architecture[64], description[128];
    char *chat_template, *bos_text, *eos_text; /* "": none */
    char *chat_template_caps;
    hearth_params *defaults; /* of which the sampling counts: what holds for requests that say nothing of it */
    hearth_model_info info;  /* its strings are the configuration's, constant, or those above */
    uint64_t bytes;          /* weights and cells, as they are estimated */
};

/* How often it came and went. */
struct moves {
    metric_value loads, failures, unloads;
    struct histogram load_seconds;
};

struct model_entry {
    const struct config_model *config;
    struct model_manager *manager;
    struct facts facts;
    struct adapters *adapters;
    struct fingerprint fingerprint; /* belongs to whoever loads the model */
    struct engine_stats engine_stats;
    struct embed_stats pool_stats;
    struct moves moves;
    _Atomic int64_t created;

    /* Guarded: */
    enum presence presence;
    struct model *model;        /* NULL unless it is in memory */
    size_t n_requests, n_brief; /* that hold on to it; calls that look at it */
    size_t n_active, n_waiting; /* requests that run or have a handle; that wait for it */
    bool asked;                 /* to be loaded, by hearth_load_model() */
    uint64_t wanted_at;         /* its place among those that somebody wants */
    int64_t used_at;            /* when it was loaded, or a request last let go of it */
    hearth_error error;         /* of its last load, where that failed */
};

/* Learns the facts of a model; those of one that is known already must be the same. `weights` may be without weights.
 */
int entry_learn(struct model_entry *entry, const struct llm_model *weights, hearth_error *error);

void entry_release(struct model_entry *entry);

/* The model of that name (NULL: the first), or NULL with the error saying which there are. */
struct model_entry *instance_find_model(const struct hearth *instance, const char *name, hearth_error *error);

/* The same, of that type; with a NULL name the first of it. */
struct model_entry *instance_pick_model(const struct hearth *instance, const char *name, enum model_type type,
                                        hearth_error *error);
const char *model_type_name(enum model_type type);

#endif
