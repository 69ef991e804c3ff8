/* llama.cpp's samplers in the order asked for, with only those among them that change something. */
#ifndef LLM_CHAIN_H
#define LLM_CHAIN_H

#include "llm/llm_parts.h"
#include "llm/sampler.h"

struct chain {
    struct llama_sampler *samplers;
    bool greedy; /* the likeliest token after bias and penalties is taken: nothing is drawn */
    bool plain;  /* not even these are there */
};

/* The prompt's end has been replayed. */
struct chain chain_open(const struct llama_vocab *vocab, const struct llm_sampling *sampling,
                        const struct tokens *prompt);

#endif
