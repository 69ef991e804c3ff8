/* Muon (K. Jordan and others, 2024): the momentum of a matrix, made nearly orthogonal by five Newton-Schulz iterations,
 * is the update, so that all of its directions are learnt at the same pace. */
#include "optimizer.h"

#include "base/memory.h"
#include "gemm.h"
#include "kernels.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void optimizer_open(struct optimizer *optimizer, const struct layout *layout)
{
    *optimizer = (struct optimizer){.layout = layout,
                                    .momentum = mem_alloc(layout->size * sizeof(float)),
                                    .square = mem_alloc(layout->size * sizeof(float))};
}

void optimizer_close(struct optimizer *optimizer)
{
    free(optimizer->momentum);
    free(optimizer->square);
}

void optimizer_reset(struct optimizer *optimizer)
{
    memset(optimizer->momentum, 0, optimizer->layout->size * sizeof(float));
    memset(optimizer->square, 0, optimizer->layout->size * sizeof(float));
    optimizer->steps = 0;
}

static size_t count(const struct tensor *tensor)
{
    return (size_t)tensor->rows * (size_t)tensor->columns;
}

float *optimizer_scratch(const struct layout *layout)
{
    size_t largest = 0;
    for (int i = 0; i < layout->n_tensors; i++) {
        const struct tensor *tensor = &layout->tensors[i];
        size_t side = (size_t)(tensor->rows < tensor->columns ? tensor->rows : tensor->columns);
        size_t needed = 2 * count(tensor) + 2 * side * side;
        if (needed > largest) largest = needed;
    }
    return mem_grow(NULL, largest, sizeof(float));
}

/* ---- Adam ---- */

static void adam(struct optimizer *o, const struct tensor *tensor, const struct update *u)
{
    const float keep = 0.9f, keep_square = 0.98f;
    float steps = (float)(o->steps + 1);
    float correction = 1.0f / (1.0f - powf(keep, steps)), square_correction = 1.0f / (1.0f - powf(keep_square, steps));
    size_t end = tensor->at + count(tensor);
    for (size_t i = tensor->at; i < end; i++) {
        float g = u->gradient[i] * u->scale;
        o->momentum[i] = keep * o->momentum[i] + (1.0f - keep) * g;
        o->square[i] = keep_square * o->square[i] + (1.0f - keep_square) * g * g;
        u->weights[i] -= u->rate * o->momentum[i] * correction / (sqrtf(o->square[i] * square_correction) + 1e-8f);
    }
}

/* ---- Muon ---- */

/* x, of fewer rows than columns, becomes a x + (b x xᵀ + c (x xᵀ)²) x. `square`, `mix` and `next` are memory. */
static void iterate(float *x, int rows, int columns, float *square, float *mix, float *next)
{
    const float a = 3.4445f, b = -4.7750f, c = 2.0315f;
    struct view v = view_of(x, rows, columns, columns);
    size_t n = (size_t)rows * (size_t)rows, all = (size_t)rows * (size_t)columns;
    gemm(v, transposed(v), square, rows, GEMM_SET);
    gemm(view_of(square, rows, rows, rows), view_of(square, rows, rows, rows), mix, rows, GEMM_SET);
    for (size_t i = 0; i < n; i++) mix[i] = b * square[i] + c * mix[i];
    gemm(view_of(mix, rows, rows, rows), v, next, columns, GEMM_SET);
    for (size_t i = 0; i < all; i++) x[i] = a * x[i] + next[i];
}

static void orthogonalise(float *x, int rows, int columns, float *memory)
{
    float *square = memory, *mix = square + (size_t)rows * (size_t)rows, *next = mix + (size_t)rows * (size_t)rows;
    size_t n = (size_t)rows * (size_t)columns;
    float inverse = 1.0f / (sqrtf(kernels_dot(x, x, (int)n)) + 1e-7f);
    for (size_t i = 0; i < n; i++) x[i] *= inverse;
    for (int i = 0; i < 5; i++) iterate(x, rows, columns, square, mix, next);
}

/* Copies a matrix of more rows than columns transposed, as it is otherwise. */
static void copy_wide(const float *from, float *to, const struct tensor *tensor)
{
    if (tensor->rows <= tensor->columns) {
        memcpy(to, from, count(tensor) * sizeof *to);
        return;
    }
    for (int row = 0; row < tensor->rows; row++)
        for (int column = 0; column < tensor->columns; column++)
            to[(ptrdiff_t)column * tensor->rows + row] = from[(ptrdiff_t)row * tensor->columns + column];
}

static void muon(struct optimizer *o, const struct tensor *tensor, const struct update *u, float *scratch)
{
    float ramp = o->steps < 300 ? (float)o->steps / 300.0f : 1.0f, keep = 0.85f + 0.10f * ramp;
    size_t n = count(tensor);
    float *momentum = o->momentum + tensor->at, *wanted = scratch, *weights = u->weights + tensor->at;
    const float *gradient = u->gradient + tensor->at;
    for (size_t i = 0; i < n; i++) momentum[i] = keep * momentum[i] + gradient[i] * u->scale;
    float *x = scratch + n;
    for (size_t i = 0; i < n; i++) x[i] = gradient[i] * u->scale + keep * momentum[i];
    copy_wide(x, wanted, tensor);
    bool tall = tensor->rows > tensor->columns;
    int rows = tall ? tensor->columns : tensor->rows, columns = tall ? tensor->rows : tensor->columns;
    orthogonalise(wanted, rows, columns, scratch + n);

    const float decay = 0.05f;
    float step = u->rate * 0.2f * sqrtf((float)columns); /* the longer side */
    ptrdiff_t down = tall ? 1 : columns, right = tall ? columns : 1;
    for (int row = 0; row < tensor->rows; row++)
        for (int column = 0; column < tensor->columns; column++) {
            float *weight = weights + (ptrdiff_t)row * tensor->columns + column;
            *weight -= u->rate * decay * *weight + step * wanted[row * down + column * right];
        }
}

void optimizer_update(struct optimizer *o, int i, const struct update *update, float *scratch)
{
    const struct tensor *tensor = &o->layout->tensors[i];
    if (tensor->kind == TENSOR_IN || tensor->kind == TENSOR_OUT) {
        muon(o, tensor, update, scratch);
    } else {
        adam(o, tensor, update);
    }
}
