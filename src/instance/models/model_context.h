/* Decides how a model's weights and contexts are opened, from its section of the configuration and facts of the model.
 * Of a chat model it decides the window, cells, sequences and layout of its context, and estimates its memory before
 * anything is allocated. It also decides whether a model is for embeddings or for reranking instead, and how a context
 * of its pool is opened then. No state; any thread. `weights` may be opened for metadata only, but for opening a
 * context. */
#ifndef INSTANCE_MODELS_MODEL_CONTEXT_H
#define INSTANCE_MODELS_MODEL_CONTEXT_H

#include "config/config.h"
#include "hearth.h"
#include "llm/context.h"
#include "llm/embedder.h"
#include "llm/model.h"

/* ---- Weights ---- */

/* How the file of a model is opened, with the placement of its weights; the caller chooses what of it is loaded, and
 * frees *parts, the numbers of tensor_split. */
struct llm_model_params weights_params(const struct config_model *config, float **parts);

/* Fails as llm_model_open() does; so does `progress` mean what it means there. */
struct llm_model *weights_open(const struct config_model *config, bool (*progress)(void *ud, float fraction), void *ud,
                               hearth_error *error);

/* Whether guesses of a draft model are used: of models.*.draft.path, or of an MTP head in the model's own file; and
 * whether that is asked for by name. */
bool uses_draft_model(const struct config_model *config);
bool names_draft_model(const struct config_model *config);

/* Of the context of a draft model with these facts. */
struct llm_threads model_threads(const struct config_model *config); /* borrows its strings */
struct llm_context_params draft_context_params(const struct config_model *config, const struct llm_model_info *info);

/* The draft model's weights (models.*.draft.path). Fails also where its vocabulary is another one than the model's, or
 * its states cannot be cut. An EAGLE-3 head fails where it does not fit the model, or this context of it. */
struct llm_model *draft_weights_open(const struct config_model *config, const struct llm_model *weights,
                                     const struct llm_context_params *context, hearth_error *error);

/* Bytes of the files that are loaded whole beside the weights: the projector's and the draft model's. Beside these
 * bytes, the projector needs memory that depends on the image, and the draft model some MiB a slot. */
double projector_bytes(const struct config_model *config);
double draft_bytes(const struct config_model *config);
double file_bytes(const char *path); /* 0: NULL, or it cannot be looked at */

/* Bytes that drafts take for so many slots: copies of recurrent states (engine/draft_mark.c), and an MTP head's cells.
 */
double draft_slots_bytes(const struct config_model *config, const struct llm_model_info *info, int64_t n_slots);

/* ---- The context of a chat model ---- */

/* The context window of a slot, in tokens. Beyond what it was trained for a model writes nonsense, unless RoPE scaling
 * stretches its positions. */
int32_t model_window(const struct config_model *config, const struct llm_model_info *info);

/* Whether layers with a sliding window keep all of their cells. A window that has wrapped around has its cells in
 * another order, and gives other bits, which deterministic mode must not. Beside a recurrent state, which cannot be
 * cut, whole windows would be of no use. */
bool model_keeps_full_windows(const struct config_model *config, const struct llm_model_info *info);

/* Fails where the settings contradict each other. */
int model_context_params(const struct config_model *config, const struct llm_model_info *info,
                         struct llm_context_params *params, hearth_error *error);

/* ---- The estimate ---- */

/* In bytes, but for the numbers of layers. */
struct estimate {
    double element_k, element_v; /* one element of K and of V in a cell */
    double row;                  /* K and V of one token in one layer, the first with attention */
    double sequence;             /* the context window of one slot, over the layers with full attention */
    struct llm_cells cells;      /* of all slots and spare sequences */
    double weights, projector, total;
    double draft;                             /* the draft model's weights, and copies of states */
    int32_t attention_layers, sliding_layers; /* number of layers with KV cells; of these, with a sliding window */
};

struct estimate estimate_memory(const struct config_model *config, const struct llm_context_params *context,
                                const struct llm_model_info *info);

/* Fails with HEARTH_NO_MEMORY and the numbers when the cells do not fit into free memory (the GPU's, where they are).
 */
int estimate_check(const struct config_model *config, const struct llm_context_params *context,
                   const struct llm_model_info *info, hearth_error *error);

/* ---- Embedding and rerank models ---- */

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
