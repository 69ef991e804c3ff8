/* llama.cpp's context with the thread pool that computes for it, as chat contexts and embedders have one. It belongs to
 * the thread of its owner; the workers of the pool run inside llm_handle_run() alone and sleep otherwise. */
#ifndef LLM_HANDLE_H
#define LLM_HANDLE_H

#include "llm/context.h"
#include "llm/llama_log.h"
#include "llm/threads.h"

struct llm_handle {
    struct llama_context *v;
    struct ggml_threadpool *threads;
    struct llm_thread_place place; /* of the thread that computes with them */
    struct llm_memory memory;
};

/* Opens a context with such parameters, whose log is captured, and starts its threads, params->n_threads of them.
 * False: `error` says why or, where llama.cpp gave none (out->v is NULL), what it logged tells. */
bool llm_handle_open(struct llm_handle *out, const struct llm_model *model, const struct llama_context_params *params,
                     const struct llm_threads *threads, struct llm_log_capture *captured, hearth_error *error);
void llm_handle_close(struct llm_handle *handle);

/* Decodes a batch, or encodes it. `causal`: the attention of the context. */
enum llm_decoded llm_handle_run(const struct llm_handle *handle, struct llama_batch batch, bool encodes, bool causal);

#endif
