/* The structs of a loaded model and of the instance that it belongs to, shared by all of src/lib.
 *
 * A model's fields are set while it is loaded (model_manager.h) and constant until it is unloaded; whoever reads them
 * holds a lease. */
#ifndef LIB_MODELS_LOADED_MODEL_H
#define LIB_MODELS_LOADED_MODEL_H

#include "chat/chat.h"
#include "config/config.h"
#include "embed/pool.h"
#include "engine/admission.h"
#include "engine/engine.h"
#include "hearth.h"
#include "lib/events/cache_events.h"
#include "lib/media/model_media.h"
#include "lib/models/adapters.h"
#include "lib/models/entry.h"
#include "llm/model.h"

#define MODEL_PREPARERS 2 /* threads that render and tokenise: one long prompt must not hold up the next request */

struct preset_templates;
struct system_prompt;
struct reply_book;
struct slow_lane;
struct preparing;

/* A loaded model. A chat model has weights, template, engine and the threads that prepare its requests; an embedding or
 * rerank model has weights and a pool of contexts, and none of the rest. */
struct model {
    struct model_entry *entry; /* outlives the model */
    const struct config_model *config;
    struct llm_model *weights;
    struct adapters *adapters;           /* the entry's, loaded */
    struct chat_template *template_;     /* NULL: not a chat model */
    struct preset_templates *templates;  /* those of presets; likewise */
    struct system_prompt *system_prompt; /* NULL: chats without a system message get none */
    struct engine *engine;               /* NULL: not a chat model */
    struct embed_pool *pool;             /* NULL: a chat model */
    struct model_media *media;           /* NULL: it takes text only */
    struct file_watch *watch;            /* of all files that its states depend on; NULL: it caches nothing */
    struct store *store;                 /* the instance's */
    struct cache_events *events;         /* the instance's */
    int64_t resume_wait_ns;              /* how long a request waits for its parent_key to be saved */
    struct store_user waiter;            /* the store calls it when a save has ended; it wakes the preparing threads */
    bool logs_words;                     /* the log may contain words of prompts */
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
    struct cache_events *events; /* of the store; NULL: nobody follows it */
    struct model_manager *manager;
    struct presets *presets;
    struct model_entry *entries; /* room for the configuration's models and HEARTH_ADDED_MODELS */
    pthread_mutex_t adding;      /* of those that add models, and read their files meanwhile; nobody else takes it */
    _Atomic size_t n_entries;    /* the entries below it are complete and may be read */
    _Atomic size_t n_left_out;   /* models of the configuration that have no entry: models.*.optional */
    _Atomic bool load_failed;
};

#endif
