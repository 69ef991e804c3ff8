/* Lays the tensors out one after the other. Matrices that are multiplied with the same input are neighbours, so that
 * one product serves them. */
#include "shape.h"

#include "random.h"

#include <math.h>
#include <stdio.h>

static size_t put(struct layout *layout, const char *name, enum tensor_kind kind, int rows, int columns)
{
    struct tensor *tensor = &layout->tensors[layout->n_tensors++];
    *tensor = (struct tensor){.kind = kind, .rows = rows, .columns = columns, .at = layout->size};
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    layout->size += (size_t)rows * (size_t)columns;
    return tensor->at;
}

static size_t put_in_layer(struct layout *layout, int layer, const char *name, enum tensor_kind kind, int rows,
                           int columns)
{
    char full[48];
    snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    return put(layout, full, kind, rows, columns);
}

static void put_layer(struct layout *layout, int i)
{
    struct layer *layer = &layout->layers[i];
    int dim = layout->shape.dim, ff = layout->shape.ff;
    layer->attention_norm = put_in_layer(layout, i, "attn_norm.weight", TENSOR_NORM, 1, dim);
    layer->qkv = put_in_layer(layout, i, "attn_q.weight", TENSOR_IN, dim, dim);
    put_in_layer(layout, i, "attn_k.weight", TENSOR_IN, dim, dim);
    put_in_layer(layout, i, "attn_v.weight", TENSOR_IN, dim, dim);
    layer->attention_out = put_in_layer(layout, i, "attn_output.weight", TENSOR_OUT, dim, dim);
    layer->ff_norm = put_in_layer(layout, i, "ffn_norm.weight", TENSOR_NORM, 1, dim);
    layer->gate_up = put_in_layer(layout, i, "ffn_gate.weight", TENSOR_IN, ff, dim);
    put_in_layer(layout, i, "ffn_up.weight", TENSOR_IN, ff, dim);
    layer->down = put_in_layer(layout, i, "ffn_down.weight", TENSOR_OUT, dim, ff);
}

void layout_make(struct layout *layout, const struct shape *shape)
{
    *layout = (struct layout){.shape = *shape};
    layout->embedding = put(layout, "token_embd.weight", TENSOR_EMBEDDING, shape->vocabulary, shape->dim);
    for (int i = 0; i < shape->layers; i++) put_layer(layout, i);
    layout->norm = put(layout, "output_norm.weight", TENSOR_NORM, 1, shape->dim);
}

static float deviation_of(const struct layout *layout, const struct tensor *tensor)
{
    switch (tensor->kind) {
    case TENSOR_EMBEDDING:
        return 0.05f;
    case TENSOR_IN:
        return 1.0f / sqrtf((float)tensor->columns);
    case TENSOR_OUT:
        return 1.0f / sqrtf((float)tensor->columns * 2.0f * (float)layout->shape.layers);
    case TENSOR_NORM:
        break;
    }
    return 0.0f;
}

void layout_fill(const struct layout *layout, float *weights, uint64_t seed)
{
    struct random random = random_of(seed, 0);
    for (int i = 0; i < layout->n_tensors; i++) {
        const struct tensor *tensor = &layout->tensors[i];
        float deviation = deviation_of(layout, tensor);
        float mean = tensor->kind == TENSOR_NORM ? 1.0f : 0.0f;
        size_t n = (size_t)tensor->rows * (size_t)tensor->columns;
        for (size_t k = 0; k < n; k++) weights[tensor->at + k] = mean + deviation * random_normal(&random);
    }
}
