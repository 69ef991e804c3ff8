/* The candidates from which a sampler took its last token, with their post-sampling probabilities. NULL: greedy
 * sampling, the token had probability 1. */
#ifndef LLM_CANDIDATES_H
#define LLM_CANDIDATES_H

#include "llm/llm_parts.h"
#include "llm/sampler.h"

const llama_token_data_array *llm_sampler_candidates(const struct llm_sampler *sampler);

#endif
