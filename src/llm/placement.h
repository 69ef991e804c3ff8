/* Where the tensors of a model go: which devices take its layers, which part each of them takes, and which tensors stay
 * elsewhere, such as experts in the machine's memory. Any thread. */
#ifndef LLM_PLACEMENT_H
#define LLM_PLACEMENT_H

#include "llm/model.h"

#include <llama.h>

struct llm_placement {
    enum llama_split_mode split_mode;
    int32_t main_gpu;
    enum llama_load_mode load_mode;
    ggml_backend_dev_t *devices;                        /* a NULL ends them; NULL: as llama.cpp chooses */
    float *parts;                                       /* one for each device; NULL: by their free memory */
    struct llama_model_tensor_buft_override *overrides; /* the first one whose pattern matches counts; NULL: none */
    char **patterns;                                    /* of these */
    size_t n_overrides;
};

/* Fails with HEARTH_INVALID or HEARTH_UNSUPPORTED and the key at fault. Release it also then. The RPC servers are in
 * use (llm_rpc_open()). */
int llm_placement_choose(struct llm_placement *out, const struct llm_model_params *params, hearth_error *error);
void llm_placement_release(struct llm_placement *placement);

/* Whether it can take layers: a GPU, or graphics within a processor. */
bool llm_is_gpu(ggml_backend_dev_t device);

/* Two backends may see one card. */
bool llm_is_same_card(ggml_backend_dev_t a, ggml_backend_dev_t b);

#endif
