/* The sampler chain of one request: llama.cpp's samplers in the requested order, without those whose parameters make
 * them do nothing. */
#ifndef LLM_CHAIN_H
#define LLM_CHAIN_H

#include "llm/sampler.h"

#include <llama.h>

struct chain {
    struct llama_sampler *samplers;
    bool greedy; /* the token with the largest logit after bias and penalties is taken: no randomness */
    bool plain;  /* greedy, and there are no bias and no penalties either: the argmax of the raw logits */

    /* The n of the sampler that keeps the n largest logits: top-k, or greedy sampling with n = 1. The chain takes the
     * same token from the tokens that bias and penalties change and the n largest logits of all others. 0: it needs
     * all, where anything but bias and penalties comes before that sampler, or there is none. */
    int32_t n_keep;
    struct tokens biased; /* owned */
    int32_t look_back;    /* penalties change the logits of as many last tokens */
};

/* The penalties have already accepted the prompt's last tokens. */
struct chain chain_open(const struct llm_model *model, const struct llm_sampling *sampling,
                        const struct tokens *prompt);
void chain_close(struct chain *chain);

#endif
