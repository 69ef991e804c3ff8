/* LoRA adapters: small matrices beside a model's own. They are opened before the model's first context, closed after
 * its last and before the model; in between nothing about them changes. Which of them a context computes under is its
 * own matter, and its thread's. */
#ifndef LLM_ADAPTER_H
#define LLM_ADAPTER_H

#include "llm/context.h"

struct llm_adapter;

/* Fails with one line naming the file: missing, truncated, no adapter, made for another model. */
struct llm_adapter *llm_adapter_open(struct llm_model *model, const char *path, hearth_error *error);
void llm_adapter_close(struct llm_adapter *adapter); /* NULL is fine */

/* What each of a model's n adapters counts for. */
struct llm_adapters {
    struct llm_adapter *const *v;
    const double *scales; /* 0: without it. NULL: without any */
    size_t n;
};

/* From its next llm_decode() on the context computes under these and no others. */
void llm_adapt(struct llm_context *context, const struct llm_adapters *adapters);

#endif
