/* Embedding and rerank models: see embedding_model.h. */
#include "lib/models/embedding_model.h"

#include "lib/models/model_context.h"

/* Inputs in one decode call at most: more hardly raise the throughput. */
#define INPUTS_A_CALL 64

hearth_pooling embedding_pooling(const struct config_model *config, const struct llm_model *weights)
{
    hearth_pooling wanted = llm_pooling_of(config->pooling);
    return wanted == HEARTH_POOLING_UNSPECIFIED ? llm_default_pooling(weights) : wanted;
}

hearth_model_type embedding_decide_type(const struct config_model *config, const struct llm_model *weights)
{
    bool pools = llm_is_embedder(weights) || llm_pooling_of(config->pooling) != HEARTH_POOLING_UNSPECIFIED;
    if (config->embedding == CONFIG_AUTO ? !pools : config->embedding == CONFIG_FALSE) return HEARTH_MODEL_CHAT;
    return embedding_pooling(config, weights) == HEARTH_POOLING_RANK ? HEARTH_MODEL_RERANK : HEARTH_MODEL_EMBEDDING;
}

static void set_call_limits(const struct config_model *config, struct llm_context_params *params)
{
    params->n_batch = (int32_t)config->n_batch;
    params->n_seq = INPUTS_A_CALL;
}

int embedding_context_params(const struct config_model *config, const struct llm_model *weights,
                             struct llm_context_params *params, hearth_error *error)
{
    int rc = model_context_params(config, llm_model_info(weights), params, error);
    set_call_limits(config, params);
    return rc;
}

double embedding_bytes(const struct config_model *config, const struct llm_model *weights,
                       const struct llm_context_params *context)
{
    const struct llm_model_info *info = llm_model_info(weights);
    struct llm_context_params params = *context;
    set_call_limits(config, &params);
    double cells = llm_embedder_cells(&params, info, embedding_pooling(config, weights)).total;
    return (double)info->size_bytes + (double)config->n_seq_max * cells;
}

struct llm_embedder *embedding_open_context(const struct config_model *config, struct llm_model *weights,
                                            hearth_error *error)
{
    struct llm_context_params params;
    if (embedding_context_params(config, weights, &params, error) != HEARTH_OK) return NULL;
    return llm_embedder_open(weights, &params, embedding_pooling(config, weights), error);
}
