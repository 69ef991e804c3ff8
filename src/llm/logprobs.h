/* Logprobs of a token, sampled or of a prompt, and of the n most likely tokens, by the model or post-sampling. Buffers
 * are reused from token to token; results are valid until the next call. Belongs to the thread that decodes. */
#ifndef LLM_LOGPROBS_H
#define LLM_LOGPROBS_H

#include "llm/sampler.h"

struct llm_logprobs;

struct llm_logprobs *llm_logprobs_open(const struct llm_model *model);
void llm_logprobs_close(struct llm_logprobs *logprobs);

/* The model's own, from the logits of that batch token of the last decode: no sampler, bias or grammar has changed
 * them. */
const hearth_logprobs *llm_logprobs_of_model(struct llm_logprobs *logprobs, struct llm_context *context, int32_t index,
                                             int32_t chosen, int32_t n_top);

/* Post-sampling probabilities: among the candidates from which the sampler took its last token. Tokens of probability 0
 * are left out. */
const hearth_logprobs *llm_logprobs_post_sampling(struct llm_logprobs *logprobs, const struct llm_sampler *sampler,
                                                  int32_t chosen, int32_t n_top);

#endif
