/* The shape of the model, and where each of its tensors lies in one array of numbers: weights, gradients and the
 * optimizer's state have the same layout. Constant once made; any thread may read it. */
#ifndef DEMO_SHAPE_H
#define DEMO_SHAPE_H

#include <stddef.h>
#include <stdint.h>

/* Architecture llama: RMS norms, rotary positions, SwiGLU, embedding and output tied, as many key heads as heads. */
struct shape {
    int32_t vocabulary, dim, layers, heads, ff, context;
    float rope_base, epsilon;
};

/* What the optimizer does with a tensor, and how it begins. */
enum tensor_kind { TENSOR_EMBEDDING, TENSOR_NORM, TENSOR_IN, TENSOR_OUT };

/* rows x columns numbers, row by row; a matrix maps `columns` numbers to `rows`. */
struct tensor {
    char name[48]; /* as in the GGUF file */
    enum tensor_kind kind;
    int rows, columns;
    size_t at; /* of its first number */
};

/* Where the tensors of a layer begin. Query, key and value are one matrix for the trainer, gate and up another. */
struct layer {
    size_t attention_norm, qkv, attention_out, ff_norm, gate_up, down;
};

enum { LAYERS_MAX = 16, TENSORS_MAX = 2 + 9 * LAYERS_MAX };

struct layout {
    struct shape shape;
    struct tensor tensors[TENSORS_MAX];
    int n_tensors;
    struct layer layers[LAYERS_MAX];
    size_t embedding, norm;
    size_t size; /* numbers of all tensors together */
};

/* shape->layers is at most LAYERS_MAX; dim is a multiple of 2 heads. */
void layout_make(struct layout *layout, const struct shape *shape);

static inline int head_size(const struct shape *shape)
{
    return shape->dim / shape->heads;
}

/* First weights: normal with a deviation of 1 / sqrt(columns); what goes to the residual stream is smaller, by
 * 1 / sqrt(2 layers), embeddings have 0.05, norms are 1. */
void layout_fill(const struct layout *layout, float *weights, uint64_t seed);

#endif
