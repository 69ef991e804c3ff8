/* Picks tokens: a chain of samplers for one request, with its own random state.
 *
 * Order of the chain: logit_bias, penalties, top_k, top_p, min_p, temperature, draw. With temperature <= 0 the most
 * likely token after bias and penalties is taken. A sampler belongs to the thread that decodes. */
#ifndef LLM_SAMPLER_H
#define LLM_SAMPLER_H

#include "llm/context.h"

struct llm_sampler;

struct llm_sampling {
    double temperature, top_p, min_p;
    double repeat_penalty, frequency_penalty, presence_penalty;
    int32_t top_k;
    int32_t repeat_last_n; /* -1: as many as `window` */
    int32_t window;
    uint32_t seed;
    const hearth_bias *bias; /* copied */
    size_t n_bias;
    bool ignore_eos; /* forbids every token that ends generation */
};

/* The penalties start with the prompt's last tokens. Never fails. */
struct llm_sampler *llm_sampler_open(const struct llm_model *model, const struct llm_sampling *sampling,
                                     const struct tokens *prompt);
void llm_sampler_close(struct llm_sampler *sampler);

/* Picks from the logits of that row of the last decode, and remembers the choice for the penalties. */
int32_t llm_sample(struct llm_sampler *sampler, struct llm_context *context, int32_t row);

#endif
