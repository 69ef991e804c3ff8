/* What a sampler's last token was drawn from: candidates with their logprobs. NULL: the token was certain. */
#ifndef LLM_CANDIDATES_H
#define LLM_CANDIDATES_H

#include "llm/llm_parts.h"
#include "llm/sampler.h"

const llama_token_data_array *llm_sampler_candidates(const struct llm_sampler *sampler);

#endif
