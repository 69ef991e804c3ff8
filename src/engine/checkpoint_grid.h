/* Where the prefill of a long prompt stops to save a checkpoint, beside the ends of its messages, if a model's state
 * cannot be cut at any position. Another prompt may diverge anywhere, and goes back to the checkpoint before. An eighth
 * of the prompt apart, and 256 tokens in the last eighth, where edits and next turns are likelier. Pure functions. */
#ifndef ENGINE_CHECKPOINT_GRID_H
#define ENGINE_CHECKPOINT_GRID_H

#include <stdint.h>

/* The first position after `from`, which may be in another prompt's cells already; INT32_MAX: none before the end of a
 * prompt of n tokens. `most`: so many positions at most in the whole prompt. All are multiples of 64. */
int32_t checkpoint_grid_after(int32_t n, int32_t most, int32_t from);

/* The last position that is not beyond `at`; 0: none. */
int32_t checkpoint_grid_before(int32_t n, int32_t most, int32_t at);

#endif
