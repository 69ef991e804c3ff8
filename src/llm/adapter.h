/* LoRA adapters: low-rank matrices that a context adds to the model's own weights. They are opened before the model's
 * first context and closed after its last, before the model; in between they are immutable. Each context chooses by
 * itself, on its own thread, which of them apply. */
#ifndef LLM_ADAPTER_H
#define LLM_ADAPTER_H

#include "llm/context.h"

struct llm_adapter;

/* Fails with one line naming the file: missing, truncated, no adapter, made for another model. */
struct llm_adapter *llm_adapter_open(struct llm_model *model, const char *path, hearth_error *error);
void llm_adapter_close(struct llm_adapter *adapter); /* NULL is fine */

/* The scale of each of a model's n adapters. */
struct llm_adapters {
    struct llm_adapter *const *v;
    const double *scales; /* 0: the adapter is off; NULL: all are off */
    size_t n;
};

/* Sets the adapters of the context from its next llm_decode() on; all others are off. */
void llm_adapt(struct llm_context *context, const struct llm_adapters *adapters);

#endif
