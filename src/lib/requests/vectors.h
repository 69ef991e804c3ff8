/* Vectors as they are handed out: shortened and normalised; and scores from 0 to 1. No state. */
#ifndef LIB_REQUESTS_VECTORS_H
#define LIB_REQUESTS_VECTORS_H

#include <stddef.h>
#include <stdint.h>

/* Keeps the first `dimensions` (0: all) of the `width` numbers of each of `n` vectors, moves what is left together and
 * normalises it as hearth_embed_params says. Returns the width that is left. */
int32_t vectors_shape(float *v, size_t n, int32_t width, int32_t dimensions, int32_t norm);

/* The logistic function: a score from a head with one output. */
float vectors_score(float logit);

#endif
