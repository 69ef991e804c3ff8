/* Arithmetic over the logits of a whole vocabulary: argmax, log-sum-exp, the largest ones. A vocabulary has 32,000 to
 * 260,000 tokens, and each sampled token needs one or several passes over it on the engine's thread. So each pass is a
 * loop that the compiler vectorises, and most blocks of logits are only compared. No state; any thread. */
#ifndef LLM_LOGITS_H
#define LLM_LOGITS_H

#include "hearth.h"

#include <stddef.h>
#include <stdint.h>

/* The first of the largest logits; 0 where there is none. */
int32_t logits_argmax(const float *logits, size_t n);

/* Log-sum-exp of the logits, without overflow, to 1e-9. -INFINITY where every logit is. */
double logits_log_sum(const float *logits, size_t n);

/* How many logits are larger than `least`. */
size_t logits_above(const float *logits, size_t n, float least);

/* The `n_top` largest logits, in `log`, sorted in descending order, of equal ones the smaller token first. Returns how
 * many there are. `top` has room for n_top; O(n + n_top log n_top log n). */
size_t logits_largest(const float *logits, size_t n, hearth_logprob *top, size_t n_top);

/* ---- The same for what is no array: offered one by one, in ascending order of tokens, then sorted ---- */

/* Returns how many of those offered are kept now; `n`: how many were. */
size_t logits_offer(hearth_logprob *top, size_t n, size_t n_top, hearth_logprob one);
void logits_sort(hearth_logprob *top, size_t n);

#endif
