/* The context of the workloads that run llama.cpp in their own process. */
#ifndef BENCH_CONTEXT_PARAMS_H
#define BENCH_CONTEXT_PARAMS_H

#include "llm/context.h"

#include <math.h>

/* One pool of `window` cells for `n_seq` sequences. */
static inline struct llm_context_params context_params(int32_t window, int n_seq, int threads)
{
    return (struct llm_context_params){.window = window,
                                       .n_seq = n_seq,
                                       .n_batch = 512,
                                       .n_ubatch = 512,
                                       .unified = true,
                                       .scratch = true,
                                       .type_k = "f16",
                                       .type_v = "f16",
                                       .flash_attention = "auto",
                                       .offload_kqv = true,
                                       .op_offload = true,
                                       .threads = threads,
                                       .rope_scaling = "none",
                                       .rope_freq_base = NAN,
                                       .rope_freq_scale = NAN,
                                       .yarn_ext_factor = NAN,
                                       .yarn_attn_factor = NAN,
                                       .yarn_beta_fast = NAN,
                                       .yarn_beta_slow = NAN};
}

#endif
