/* The context of the workloads that run llama.cpp in their own process. */
#ifndef BENCH_CONTEXT_PARAMS_H
#define BENCH_CONTEXT_PARAMS_H

#include "llm/context.h"

/* One pool of `window` cells for `n_seq` sequences. */
static inline struct llm_context_params context_params(int32_t window, int n_seq, int threads)
{
    struct llm_context_params params = llm_usual_context(window, n_seq);
    params.unified = params.scratch = true;
    params.threads.n = threads;
    return params;
}

#endif
