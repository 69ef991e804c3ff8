/* The entry of a model, configured or added, loaded or not: its model_facts, its adapters, its metrics, and its state
 * in the model manager. It lives as long as the instance, at a fixed address, also when its model is removed: requests
 * and lists that have found it before may still look at it.
 *
 * The model_facts are read once, from the file's metadata or from the loaded weights, before other threads see the
 * entry (n_entries), and never change again. Fields marked as guarded are under the model manager's mutex
 * (model_manager.h).
 */
#ifndef LIB_MODELS_ENTRY_H
#define LIB_MODELS_ENTRY_H

#include "embed/pool.h"
#include "engine/engine.h"
#include "lib/media/encoder.h"
#include "lib/models/adapters.h"
#include "lib/models/fingerprint.h"
#include "llm/tokenizer_cache.h"

struct model_manager;
struct model;

struct model_facts {
    hearth_model_type type;
    char architecture[64], description[128];
    char *chat_template, *bos_text, *eos_text; /* "": none */
    char *chat_template_caps, *transcription_system, *transcription_user;
    hearth_params *defaults; /* only its sampling is used: the values of parameters that a request does not give */
    hearth_model_info info;  /* its strings belong to the configuration, are constant, or are those above */
    uint64_t bytes;          /* estimated memory of weights and KV cells */
};

struct load_metrics {
    metric_value loads, failures, unloads;
    struct histogram load_seconds;
};

struct lease;

/* A first-in, first-out list of leases (lease.c); {0} is an empty one. */
struct lease_list {
    struct lease *first, *last;
};

struct model_entry {
    const struct config_model *config;
    struct hearth_config *own; /* of an added model, with its section alone; NULL: the section is the instance's */
    struct model_manager *manager;
    struct model_facts facts;
    struct adapters *adapters;
    struct fingerprint fingerprint; /* used only by the thread that loads the model */
    struct engine_stats engine_stats;
    struct llm_tokenizer_stats tokenizer_stats;
    struct encoder_stats encoder_stats;
    struct embed_stats pool_stats;
    struct load_metrics load_metrics;
    _Atomic int64_t created_ms;
    _Atomic bool removed; /* set under the mutex, for good: no name leads to it, and it gets no lease any more */

    /* Guarded: */
    hearth_model_state presence;
    struct model *model;        /* NULL unless it is in memory */
    size_t n_requests, n_brief; /* leases of requests that have the model; brief leases */
    size_t n_active;            /* requests that run or whose handle is not released */
    struct lease_list waiting;  /* those of requests that wait for the model, in their order */
    size_t n_waiting;           /* so many */
    bool asked;                 /* hearth_load_model() asked for it */
    uint64_t wanted_at;         /* its number in the order in which models were asked for: the lowest is loaded first */
    int64_t used_at;            /* clock time in nanoseconds of its load or of the end of its last lease */
    double next_keep;           /* `keep` from the end of the next request */
    double keep; /* seconds that it stays without use: hearth_keep_model(), else its idle_unload; negative: always */
    hearth_error error; /* of its last load, where that failed */
    char unstored[200]; /* why its states are neither stored nor looked up since it was loaded; "": they are */
};

/* Reads the facts of a model. On a later load they must be what they were, else HEARTH_INVALID: requests were
 * checked with them. `weights` may be opened for metadata only. */
int entry_learn(struct model_entry *entry, const struct llm_model *weights, hearth_error *error);

void entry_release(struct model_entry *entry);

/* Whether it is in lists and in metrics: it was not removed. */
bool entry_is_listed(const struct model_entry *entry);

#endif
