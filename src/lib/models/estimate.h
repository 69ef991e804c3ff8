/* The memory estimate of a chat model, before anything is allocated. No state; any thread. */
#ifndef LIB_MODELS_ESTIMATE_H
#define LIB_MODELS_ESTIMATE_H

#include "config/config.h"
#include "hearth.h"
#include "llm/context.h"

/* In bytes, but for the numbers of layers. */
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
