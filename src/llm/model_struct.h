/* An open model as the files of src/llm see it. Immutable but for `texts`; any thread. */
#ifndef LLM_MODEL_STRUCT_H
#define LLM_MODEL_STRUCT_H

#include "llm/model.h"

#include <llama.h>
#include <pthread.h>

enum { LLM_MAX_SAMPLERS = 16 };

/* Made at the first use, on any thread. */
struct llm_lazy_texts {
    pthread_mutex_t mutex;
    struct llm_token_texts *v;
};

struct llm_model {
    struct llama_model *handle;
    const struct llama_vocab *vocab; /* the handle's */
    uint64_t weights;                /* bytes in buffers */
    int32_t *n_head_kv;
    bool *is_swa;
    uint64_t *layer_bytes, *expert_bytes;
    int32_t *ending;
    struct llm_special_tokens *special_tokens;
    struct llm_splitter *splitter;
    size_t recursion; /* bytes of stack that the tokenizer takes for each character of a run; 0: it does not recurse */
    const char *samplers[LLM_MAX_SAMPLERS];
    struct llm_lazy_texts *texts;
    struct dry_sets *dry_sets;
    struct llm_model_info info;
    char **servers; /* that have its layers: endpoints */
    size_t n_servers;
};

struct llama_model *llm_model_handle(const struct llm_model *model);

/* llama.cpp's n_gpu_layers, where negative is all layers and 0 none, from hearth's, where 0 is all and -1 none. */
int32_t llm_layers_on_gpu(int wanted);

#endif
