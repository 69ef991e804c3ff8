/* A model's weights: see weights.h. */
#include "lib/models/weights.h"

#include "base/memory.h"
#include "config/text.h"

#include <stdlib.h>

/* Of a list that was checked. */
static float *numbers(const struct config_strings *list)
{
    float *out = mem_alloc((list->len + 1) * sizeof *out);
    double number;
    for (size_t i = 0; i < list->len; i++)
        if (text_to_number(list->v[i], &number)) out[i] = (float)number;
    return out;
}

struct llm_model *weights_open(const struct config_model *config, bool (*progress)(void *ud, float fraction), void *ud,
                               hearth_error *error)
{
    float *parts = numbers(&config->tensor_split);
    struct llm_model_params params = {.path = config->path,
                                      .n_gpu_layers = (int)config->n_gpu_layers,
                                      .split_mode = config->split_mode,
                                      .rpc = (const char *const *)config->rpc.v,
                                      .n_rpc = config->rpc.len,
                                      .tensor_split = parts,
                                      .n_tensor_split = config->tensor_split.len,
                                      .weights = true,
                                      .progress = progress,
                                      .ud = ud};
    struct llm_model *model = llm_model_open(&params, error);
    free(parts);
    return model;
}
