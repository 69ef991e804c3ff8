/* What a transformer computes beside matrix products, forward and backward: norms, rotations, gates. Rows are tokens.
 * Pure functions; any thread. */
#ifndef DEMO_KERNELS_H
#define DEMO_KERNELS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* e^x with an error of some 1e-7, as the compiler can vectorise it; 0 or nearly for x < -87. x is at most 87. */
static inline float kernels_exp(float x)
{
    const float to_integer = 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number */
    float t = (x > -87.0f ? x : -87.0f) * 1.44269504f;
    float n = (t + to_integer) - to_integer;
    float f = t - n;
    float power =
        1.0f + f * (0.69314718f +
                    f * (0.24022651f + f * (0.05550411f + f * (0.00961813f + f * (0.00133336f + f * 0.00015404f)))));
    int32_t bits = ((int32_t)n + 127) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return power * scale;
}

/* RMS norm: out = x * gain / rms(x), row by row. `inverse` gets 1 / rms of each row, which the way back needs. */
struct norm {
    const float *gain;
    float epsilon;
    int dim;
};

void norm_forward(const struct norm *norm, const float *x, float *out, float *inverse, int rows);

/* Adds to d_x and d_gain. */
void norm_backward(const struct norm *norm, const float *x, const float *inverse, const float *d_out, float *d_x,
                   float *d_gain, int rows);

/* Rotary positions in llama.cpp's normal order: neighbours (2i, 2i + 1) of a head are turned by position *
 * base^(-2i/size). `table` has cosines and sines, in turn, of positions 0, 1, …: size numbers for each. */
struct rotation {
    const float *table;
    int heads, size;
};

void rotation_fill(float *table, int positions, int size, float base);

/* Turns the heads of one row; backward turns them back, which is also the way of the gradient. */
void rotate_row(const struct rotation *rotation, float *row, int position);
void rotate_row_back(const struct rotation *rotation, float *row, int position);

/* SwiGLU: a row of `in` has `width` gates, then `width` values; out = silu(gate) * value. */
void gate_forward(const float *in, float *out, int width, int rows);
void gate_backward(const float *in, const float *d_out, float *d_in, int width, int rows);

float kernels_dot(const float *a, const float *b, int n);
void add_to(float *sum, const float *v, size_t n);

#endif
