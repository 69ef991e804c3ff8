/* The structs of a model's entry, of a loaded model and of the instance that both belong to, shared by all of
 * src/instance.
 *
 * A model's fields are set while it is loaded (model_manager.h) and constant until it is unloaded; a thread that reads
 * them holds a lease. */
#ifndef INSTANCE_MODELS_LOADED_MODEL_H
#define INSTANCE_MODELS_LOADED_MODEL_H

#include "chat/chat.h"
#include "config/config.h"
#include "embed/pool.h"
#include "engine/admission.h"
#include "engine/engine.h"
#include "hearth.h"
#include "instance/events/cache_events.h"
#include "instance/media/encoder.h"
#include "instance/media/model_media.h"
#include "instance/models/adapters.h"
#include "instance/models/fingerprint.h"
#include "llm/model.h"
#include "llm/tokenizer_cache.h"

/* ---- Entries ----
 * The entry of a model, configured or added, loaded or not: its model_facts, its adapters, its metrics, and its state
 * in the model manager. It lives as long as the instance, at a fixed address, also when its model is removed: requests
 * and lists that have found it before may still look at it.
 *
 * The model_facts are read once, from the file's metadata or from the loaded weights, before other threads see the
 * entry (n_entries), and never change again. Fields marked as guarded are under the model manager's mutex. */

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

#define MODEL_PREPARERS 2 /* threads that render and tokenise: one long prompt must not hold up the next request */

struct preset_templates;
struct system_prompt;
struct reply_book;
struct slow_lane;
struct preparing;

/* A loaded model. A chat model has weights, template, engine and the threads that prepare its requests. An embedding or
 * rerank model has weights and a pool of contexts, and none of the rest. */
struct model {
    struct model_entry *entry; /* outlives the model */
    const struct config_model *config;
    struct llm_model *weights, *draft_weights; /* the latter NULL: no draft model */
    struct adapters *adapters;                 /* the entry's, loaded */
    struct chat_template *template_;           /* NULL: not a chat model */
    struct preset_templates *templates;        /* those of presets; likewise */
    struct system_prompt *system_prompt;       /* NULL: chats without a system message get none */
    struct engine *engine;                     /* NULL: not a chat model */
    struct embed_pool *pool;                   /* NULL: a chat model */
    struct model_media *media;                 /* NULL: it takes text only */
    struct file_watch *watch;                  /* of all files that its states depend on; NULL: it caches nothing */
    struct store *store;                       /* the instance's */
    struct cache_events *events;               /* the instance's */
    int64_t resume_wait_ns;                    /* how long a request waits for its parent_key to be saved */
    struct store_user waiter; /* the store calls it when a save has ended; it wakes the preparing threads */
    bool logs_words;          /* the log may contain words of prompts */
    struct admission *admission;
    struct llm_tokenizer_cache *tokenizer_cache; /* of the preparing threads; NULL: not a chat model */
    struct reply_book *reply_book;               /* NULL: replies that come back are tokenised like other text */
    pthread_t preparers[MODEL_PREPARERS];
    int n_preparers;
    struct preparing *preparing; /* the requests that those threads and the slow lane's prepare; likewise */
    struct slow_lane *slow_lane; /* for requests whose documents take long to read; NULL: not a chat model */
};

struct hearth {
    struct hearth_config *config; /* own copy */
    struct clock *clock;
    struct store *store;         /* of all models; NULL: no tier is on, KV states live in cells only */
    struct cache_events *events; /* of the store; NULL: it has no follower */
    struct model_manager *manager;
    struct presets *presets;
    struct model_entry *entries; /* room for the configuration's models and HEARTH_ADDED_MODELS */
    pthread_mutex_t adding;      /* of hearth_add_model() alone, which reads the model's file meanwhile */
    _Atomic size_t n_entries;    /* the entries below it are complete and may be read */
    _Atomic size_t n_left_out;   /* models of the configuration that have no entry: models.*.optional */
    _Atomic bool load_failed;
};

#endif
