/* DRY: penalises tokens that would continue a repetition of what came before. The same results as llama.cpp's sampler
 * of that name, bit by bit, whose sequence breakers take seconds to prepare for each sampler (dry_breakers.h). */
#ifndef LLM_DRY_H
#define LLM_DRY_H

#include "llm/dry_breakers.h"

struct dry_params {
    float multiplier, base;
    int32_t allowed_length; /* of a repetition without a penalty */
    int32_t last_n;         /* tokens that it looks back at, from 1 */
};

/* Takes the reference to the breakers. The sampler is one of llama.cpp's, for a chain. */
struct llama_sampler *dry_open(const struct dry_params *params, struct dry_breakers *breakers);

#endif
