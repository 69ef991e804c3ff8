/* A loaded model and the instance that it belongs to, as all of src/lib sees them. */
#ifndef LIB_MODELS_LOADED_MODEL_H
#define LIB_MODELS_LOADED_MODEL_H

#include "chat/chat.h"
#include "config/config.h"
#include "embed/pool.h"
#include "engine/admission.h"
#include "engine/engine.h"
#include "hearth.h"
#include "lib/models/adapters.h"
#include "lib/models/entry.h"
#include "llm/model.h"

#define MODEL_PREPARERS 2 /* threads that render and tokenise: one long prompt must not hold up the next request */

struct system_prompt;

/* A model of the configuration, loaded: weights, template, engine, and the threads that prepare its requests; or
 * weights and a pool of contexts for vectors or scores, and none of the rest. */
struct model {
    struct model_entry *entry; /* which outlives it */
    const struct config_model *config;
    struct llm_model *weights;
    struct adapters *adapters;           /* those that are known of it, loaded */
    struct chat_template *template_;     /* NULL: it is no chat model */
    struct system_prompt *system_prompt; /* NULL: none is assumed */
    struct engine *engine;               /* NULL: not a chat model */
    struct embed_pool *pool;             /* NULL: a chat model */
    struct store *store;                 /* the instance's */
    int64_t resume_wait_ns;              /* how long a request waits for what is still being stored */
    struct store_user waiter;            /* woken for requests that do; wakes the preparers */
    bool logs_words;                     /* the log may hold words of prompts */
    struct admission *admission;
    pthread_t preparers[MODEL_PREPARERS];
    int n_preparers;
};

struct hearth {
    struct hearth_config *config; /* own copy */
    struct clock *clock;
    struct store *store; /* of all models; NULL: nothing outlives the cells */
    struct model_manager *manager;
    struct model_entry *entries; /* room for all of the configuration */
    _Atomic size_t n_entries;    /* those before it are known */
    _Atomic bool load_failed;
};

/* How far a load is, for whom. */
struct model_progress {
    hearth_progress progress;
    void *ud;
    const char *name;
};

/* embedding.c: what the model is for, and its pool of contexts. */
enum model_type embedding_decide_type(const struct config_model *config, const struct llm_model *weights);
int embedding_open_pool(struct model *model, struct clock *clock, hearth_error *error);

/* The chat template of a model, its own or ChatML; the caller frees it. NULL: the file named cannot be read. */
char *instance_template_text(const struct config_model *config, const struct llm_model *weights, hearth_error *error);

/* How the vectors of an input become one, by the configuration or else by the model's file; and one context of the
 * pool, for reports. */
enum llm_pooling embedding_pooling(const struct config_model *config, const struct llm_model *weights);
struct llm_embedder *embedding_open_context(const struct config_model *config, struct llm_model *weights,
                                            hearth_error *error);

/* Bytes that the weights and the cells of such a pool take, for `context` as instance_context_params() says. */
double embedding_bytes(const struct config_model *config, const struct llm_model *weights,
                       const struct llm_context_params *context);

/* What the context of a model is to be, from its configuration and its weights. Fails where they contradict. */
int instance_context_params(const struct config_model *config, const struct llm_model *weights,
                            struct llm_context_params *params, hearth_error *error);

/* estimate.c: the arithmetic of memory, in bytes. */
struct estimate {
    double element_k, element_v; /* bytes of one element of a cell */
    double row;             /* one token in one layer, K and V, as the model's heads say; of the first such layer */
    double sequence;        /* one slot's window, over the layers that look at all of it */
    struct llm_cells cells; /* of all slots and spare sequences */
    double weights, total;
    int32_t attention_layers, sliding_layers; /* layers that keep cells; of them those that keep a sliding window */
};

struct estimate estimate_memory(const struct llm_context_params *context, const struct llm_model_info *info);

/* Fails with the numbers when the model cannot fit into the memory that is free. */
int estimate_check(const struct config_model *config, const struct llm_context_params *context,
                   const struct llm_model_info *info, hearth_error *error);

#endif
