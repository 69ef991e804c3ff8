/* Writes a LoRA adapter with random weights for an existing model. It changes the model's output from the first token
 * on: matrices of every layer get about half their own strength on top. The file is a function of struct lora and of
 * the model's shapes alone. */
#ifndef MKMODEL_ADAPTER_H
#define MKMODEL_ADAPTER_H

#include "hearth.h"

struct lora {
    const char *model_path; /* a GGUF file with weights */
    const char *out_path;   /* replaced only by a complete file */
    int64_t rank;
    uint64_t seed;
};

/* Fails with HEARTH_INVALID where no matrix of the model can be adapted, else with the reason why reading or writing
 * failed. */
int adapter_write(const struct lora *lora, hearth_error *error);

#endif
