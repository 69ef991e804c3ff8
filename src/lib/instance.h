/* libhearth from inside: what instance.c, request.c, metrics.c and report.c share. */
#ifndef LIB_INSTANCE_H
#define LIB_INSTANCE_H

#include "chat/chat.h"
#include "config/config.h"
#include "engine/admission.h"
#include "engine/engine.h"
#include "hearth.h"
#include "lib/system_prompt.h"
#include "llm/model.h"

#define MODEL_PREPARERS 2 /* threads that render and tokenise: one long prompt must not hold up the next request */

/* A model of the configuration, loaded: weights, template, engine, and the threads that prepare its requests. */
struct model {
    const struct config_model *config;
    struct llm_model *weights;
    struct chat_template *template_;     /* NULL: the model has none */
    struct system_prompt *system_prompt; /* NULL: none is assumed */
    struct engine *engine;
    struct store *store;    /* the instance's */
    int64_t resume_wait_ns; /* how long a request waits for what is still being stored */
    struct admission *admission;
    pthread_t preparers[MODEL_PREPARERS];
    int64_t created;
};

struct hearth {
    struct hearth_config *config; /* own copy */
    struct clock *clock;
    struct store *store;     /* of all models; NULL: nothing outlives the cells */
    struct model *models;    /* room for all of the configuration */
    _Atomic size_t n_loaded; /* those before it are complete and never change again */
    _Atomic bool load_failed;
};

/* request.c: the loop of a preparing thread; `ud` is a struct model. */
void *request_prepare_loop(void *ud);

/* The loaded model of that name (NULL: the first), or NULL with the error saying which there are. */
struct model *instance_find_model(const struct hearth *instance, const char *name, hearth_error *error);

/* What the context of a model is to be, from its configuration and its weights. Fails where they contradict. */
int instance_context_params(const struct config_model *config, const struct llm_model *weights,
                            struct llm_context_params *params, hearth_error *error);

/* estimate.c: the arithmetic of memory, in bytes. */
struct estimate {
    double element_k, element_v; /* bytes of one element of a cell */
    double row;      /* one token in one layer, K and V, as the model's heads say; of the first such layer */
    double sequence; /* one slot's window, over all layers */
    double cells;    /* all slots */
    double weights, total;
    int32_t attention_layers; /* layers that keep cells */
};

struct estimate estimate_memory(const struct config_model *config, const struct llm_model_info *info, int32_t window);

/* Fails with the numbers when the model cannot fit into the memory that is free. */
int estimate_check(const struct config_model *config, const struct llm_model_info *info, int32_t window,
                   hearth_error *error);

#endif
