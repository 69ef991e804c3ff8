/* Causal attention of one document, forward and backward. The probabilities are not kept: on the way back they are
 * computed again, 128 queries at a time, from the logarithm of each query's sum. Pure functions over the caller's
 * buffers; any thread. */
#ifndef DEMO_ATTENTION_H
#define DEMO_ATTENTION_H

#include <stddef.h>

enum { ATTENTION_BLOCK = 128 };

/* One document. Its row i of `qkv` has the queries, keys and values of all heads, row i of `out` what they found;
 * log_sums[head * tokens + i] is written forward and read backward. */
struct attention {
    const float *qkv;
    float *out, *log_sums;
    int tokens, heads, size; /* size of a head */
    float *scratch;          /* attention_scratch(tokens, size) numbers */
};

size_t attention_scratch(int tokens, int size);

void attention_forward(const struct attention *attention);

/* Writes the gradient of the rows of `qkv`, given that of `out`. */
void attention_backward(const struct attention *attention, const float *d_out, float *d_qkv);

#endif
