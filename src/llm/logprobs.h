/* How likely tokens were: of the one picked, and of the likeliest. Buffers are kept from one token to the next; what is
 * returned is valid until the next call. Belongs to the thread that decodes. */
#ifndef LLM_LOGPROBS_H
#define LLM_LOGPROBS_H

#include "llm/sampler.h"

struct llm_logprobs;

struct llm_logprobs *llm_logprobs_open(const struct llm_model *model);
void llm_logprobs_close(struct llm_logprobs *logprobs);

/* As the model gave them, in that row of the last decode: no sampler, bias or grammar has touched them. */
const hearth_logprobs *llm_logprobs_of_model(struct llm_logprobs *logprobs, struct llm_context *context, int32_t row,
                                             int32_t chosen, int32_t n_top);

/* After the samplers: among what the sampler's last token was drawn from. Tokens without any logprob are left out. */
const hearth_logprobs *llm_logprobs_post_sampling(struct llm_logprobs *logprobs, const struct llm_sampler *sampler,
                                                  int32_t chosen, int32_t n_top);

/* ---- The arithmetic ---- */

/* The logarithm of the sum of the exponentials, without overflow. -INFINITY where every logit is. */
double llm_log_sum(const float *logits, size_t n);

/* The `n_top` largest, the largest first, of two equal ones that with the smaller token; their values are in `log`.
 * Returns how many there are. `top` has room for n_top; n log n_top steps. */
size_t llm_largest(const float *logits, size_t n, hearth_logprob *top, size_t n_top);

#endif
