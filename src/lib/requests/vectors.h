/* Embedding vectors of a result, cut to their first dimensions and normalised; and reranking scores from 0 to 1. No
 * state; any thread. */
#ifndef LIB_REQUESTS_VECTORS_H
#define LIB_REQUESTS_VECTORS_H

#include <stddef.h>
#include <stdint.h>

/* Keeps the first `dimensions` (0: all) of the `width` numbers of each of `n` vectors, packs them without gaps and
 * normalises each as hearth_embed_params.norm says. Returns the new width. */
int32_t vectors_shape(float *v, size_t n, int32_t width, int32_t dimensions, int32_t norm);

/* The reranking score, 0 to 1, of a head with one output: the logistic function of its logit. */
float vectors_score(float logit);

#endif
