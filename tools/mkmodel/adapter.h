/* Writes a LoRA adapter with random weights for a model that is there. It changes what the model says from the first
 * token on: matrices of every layer get about half as much on top of what they are.
 *
 * The file is a function of struct lora and of the model's shapes alone. */
#ifndef MKMODEL_ADAPTER_H
#define MKMODEL_ADAPTER_H

#include "hearth.h"

struct lora {
    const char *model_path; /* a GGUF file with weights */
    const char *out_path;   /* replaced only by a complete file */
    int64_t rank;
    uint64_t seed;
};

/* Fails with HEARTH_INVALID where no matrix of the model can be adapted, else with what kept it from reading or
 * writing. */
int adapter_write(const struct lora *lora, hearth_error *error);

#endif
