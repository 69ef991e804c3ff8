/* The structs of a loaded model and of the instance that it belongs to, shared by all of src/lib; and the memory
 * estimate that decides whether it is loaded.
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

struct system_prompt;
struct slow_lane;

/* A loaded model. A chat model has weights, template, engine and the threads that prepare its requests; an embedding or
 * rerank model has weights and a pool of contexts, and none of the rest. */
struct model {
    struct model_entry *entry; /* outlives the model */
    const struct config_model *config;
    struct llm_model *weights;
    struct adapters *adapters;           /* the entry's, loaded */
    struct chat_template *template_;     /* NULL: not a chat model */
    struct system_prompt *system_prompt; /* NULL: chats without a system message get none */
    struct engine *engine;               /* NULL: not a chat model */
    struct embed_pool *pool;             /* NULL: a chat model */
    struct model_media *media;           /* NULL: it takes text only */
    struct store *store;                 /* the instance's */
    struct cache_events *events;         /* the instance's */
    int64_t resume_wait_ns;              /* how long a request waits for its parent_key to be saved */
    struct store_user waiter;            /* the store calls it when a save has ended; it wakes the preparing threads */
    bool logs_words;                     /* the log may contain words of prompts */
    struct admission *admission;
    struct llm_tokenizer_cache *tokenizer_cache; /* of the preparing threads; NULL: not a chat model */
    pthread_t preparers[MODEL_PREPARERS];
    int n_preparers;
    struct slow_lane *slow_lane; /* for requests whose documents take long to read; NULL: not a chat model */
};

struct hearth {
    struct hearth_config *config; /* own copy */
    struct clock *clock;
    struct store *store;         /* of all models; NULL: no tier is on, KV states live in cells only */
    struct cache_events *events; /* of the store; NULL: nobody follows it */
    struct model_manager *manager;
    struct model_entry *entries; /* room for the configuration's models and HEARTH_ADDED_MODELS */
    pthread_mutex_t adding;      /* of those that add models, and read their files meanwhile; nobody else takes it */
    _Atomic size_t n_entries;    /* the entries below it are complete and may be read */
    _Atomic size_t n_left_out;   /* models of the configuration that have no entry: models.*.optional */
    _Atomic bool load_failed;
};

/* reports/residents.c: where the idle conversations in the KV cells of all models end in the store: fills up to `max`,
 * returns how many there are. Any thread. */
size_t instance_stored_marks(const struct hearth *instance, struct stored_mark *marks, size_t max);

/* Passes the progress of a load to the caller of hearth_load(). */
struct model_progress {
    hearth_progress progress;
    void *ud;
    const char *name;
};

/* requests/embedding.c: the type of a model, from its configuration or else its file; opening its pool of contexts. */
hearth_model_type embedding_decide_type(const struct config_model *config, const struct llm_model *weights);
int embedding_open_pool(struct model *model, struct clock *clock, hearth_error *error);

/* The pooling type, from the configuration or else the model's file; and one context of the pool, for reports. */
hearth_pooling embedding_pooling(const struct config_model *config, const struct llm_model *weights);
struct llm_embedder *embedding_open_context(const struct config_model *config, struct llm_model *weights,
                                            hearth_error *error);

/* Bytes of the weights and the cells of such a pool; `context` as model_context_params() fills it. */
double embedding_bytes(const struct config_model *config, const struct llm_model *weights,
                       const struct llm_context_params *context);

/* estimate.c: the memory estimate of a chat model, in bytes. */
struct estimate {
    double element_k, element_v; /* one element of K and of V in a cell */
    double row;                  /* K and V of one token in one layer, the first with attention */
    double sequence;             /* the context window of one slot, over the layers with full attention */
    struct llm_cells cells;      /* of all slots and spare sequences */
    double weights, projector, total;
    int32_t attention_layers, sliding_layers; /* number of layers with KV cells; of these, with a sliding window */
};

struct estimate estimate_memory(const struct config_model *config, const struct llm_context_params *context,
                                const struct llm_model_info *info);

/* Fails with HEARTH_NO_MEMORY and the numbers when the cells do not fit into free memory (the GPU's, where they are).
 */
int estimate_check(const struct config_model *config, const struct llm_context_params *context,
                   const struct llm_model_info *info, hearth_error *error);

#endif
