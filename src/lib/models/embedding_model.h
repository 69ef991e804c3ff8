/* Whether a model is for chats, for embeddings or for reranking, and what a context of its pool is like. No state; any
 * thread. `weights` may be opened for metadata only, but for opening a context. */
#ifndef LIB_MODELS_EMBEDDING_MODEL_H
#define LIB_MODELS_EMBEDDING_MODEL_H

#include "config/config.h"
#include "hearth.h"
#include "llm/embedder.h"

/* The type of a model and its pooling, from the configuration or else its file. */
hearth_model_type embedding_decide_type(const struct config_model *config, const struct llm_model *weights);
hearth_pooling embedding_pooling(const struct config_model *config, const struct llm_model *weights);

/* The parameters of one context of the pool, and one of them, for reports. */
int embedding_context_params(const struct config_model *config, const struct llm_model *weights,
                             struct llm_context_params *params, hearth_error *error);
struct llm_embedder *embedding_open_context(const struct config_model *config, struct llm_model *weights,
                                            hearth_error *error);

/* Bytes of the weights and the cells of such a pool; `context` as model_context_params() fills it. */
double embedding_bytes(const struct config_model *config, const struct llm_model *weights,
                       const struct llm_context_params *context);

#endif
