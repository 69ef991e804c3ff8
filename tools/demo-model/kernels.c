/* Norms, rotations and gates, a row at a time. Sums are marked for the compiler to vectorise, which changes their order
 * and with it the last bits. */
#include "kernels.h"

#include <math.h>

float kernels_dot(const float *a, const float *b, int n)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

void norm_forward(const struct norm *norm, const float *x, float *out, float *inverse, int rows)
{
    int dim = norm->dim;
    for (int row = 0; row < rows; row++, x += dim, out += dim) {
        float scale = 1.0f / sqrtf(kernels_dot(x, x, dim) / (float)dim + norm->epsilon);
        for (int i = 0; i < dim; i++) out[i] = x[i] * scale * norm->gain[i];
        inverse[row] = scale;
    }
}

void norm_backward(const struct norm *norm, const float *x, const float *inverse, const float *d_out, float *d_x,
                   float *d_gain, int rows)
{
    int dim = norm->dim;
    for (int row = 0; row < rows; row++, x += dim, d_out += dim, d_x += dim) {
        float scale = inverse[row], sum = 0;
        const float *gain = norm->gain;
#pragma omp simd reduction(+ : sum)
        for (int i = 0; i < dim; i++) sum += d_out[i] * gain[i] * x[i];
        float common = sum * scale * scale * scale / (float)dim;
        for (int i = 0; i < dim; i++) {
            d_x[i] += d_out[i] * gain[i] * scale - x[i] * common;
            d_gain[i] += d_out[i] * x[i] * scale;
        }
    }
}

void rotation_fill(float *table, int positions, int size, float base)
{
    for (int position = 0; position < positions; position++) {
        for (int i = 0; i < size; i += 2) {
            double angle = position * pow((double)base, -(double)i / size);
            *table++ = (float)cos(angle);
            *table++ = (float)sin(angle);
        }
    }
}

/* `way` is 1 or -1. */
static void turn(const struct rotation *rotation, float *row, int position, float way)
{
    const float *angles = rotation->table + (size_t)position * (size_t)rotation->size;
    for (int head = 0; head < rotation->heads; head++, row += rotation->size) {
        for (int i = 0; i < rotation->size; i += 2) {
            float x = row[i], y = row[i + 1], c = angles[i], s = angles[i + 1] * way;
            row[i] = x * c - y * s;
            row[i + 1] = x * s + y * c;
        }
    }
}

void rotate_row(const struct rotation *rotation, float *row, int position)
{
    turn(rotation, row, position, 1.0f);
}

void rotate_row_back(const struct rotation *rotation, float *row, int position)
{
    turn(rotation, row, position, -1.0f);
}

static inline float sigmoid(float x)
{
    return 1.0f / (1.0f + kernels_exp(x > -80.0f ? -x : 80.0f));
}

void gate_forward(const float *in, float *out, int width, int rows)
{
    for (int row = 0; row < rows; row++, in += 2 * width, out += width) {
        for (int i = 0; i < width; i++) out[i] = in[i] * sigmoid(in[i]) * in[width + i];
    }
}

void gate_backward(const float *in, const float *d_out, float *d_in, int width, int rows)
{
    for (int row = 0; row < rows; row++, in += 2 * width, d_in += 2 * width, d_out += width) {
        for (int i = 0; i < width; i++) {
            float gate = in[i], s = sigmoid(gate), silu = gate * s;
            d_in[i] = d_out[i] * in[width + i] * (s + silu * (1.0f - s));
            d_in[width + i] = d_out[i] * silu;
        }
    }
}

void add_to(float *sum, const float *v, size_t n)
{
    for (size_t i = 0; i < n; i++) sum[i] += v[i];
}
