/* llama.cpp's own driver of draft models, which tests compare guesses with. */
#ifndef UNIT_LLM_SPECULATIVE_H
#define UNIT_LLM_SPECULATIVE_H

#include <llama.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What an EAGLE-3 head guesses behind n tokens, up to `max`; both contexts are empty, with one sequence. Returns how
 * many. */
int32_t speculative_guess(struct llama_context *model, struct llama_context *head, const int32_t *tokens, int32_t n,
                          int32_t *guess, int32_t max);

#ifdef __cplusplus
}
#endif

#endif
