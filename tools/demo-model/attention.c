/* Each head on its own. Keys and values are transposed once a head, so that the products read rows. */
#include "attention.h"

#include "gemm.h"
#include "kernels.h"

#include <math.h>
#include <string.h>

/* The scratch memory: a block's scores, their gradient, keys and values transposed. */
struct memory {
    float *scores, *d_scores, *keys, *values;
};

size_t attention_scratch(int tokens, int size)
{
    return 2 * (size_t)ATTENTION_BLOCK * (size_t)tokens + 2 * (size_t)size * (size_t)tokens;
}

static struct memory memory_of(const struct attention *a)
{
    size_t block = (size_t)ATTENTION_BLOCK * (size_t)a->tokens, head = (size_t)a->size * (size_t)a->tokens;
    float *v = a->scratch;
    return (struct memory){v, v + block, v + 2 * block, v + 2 * block + head};
}

/* One head's part of the rows. */
struct head {
    const float *q, *k, *v;
    float *out, *log_sums;
    int stride;
};

static struct head head_of(const struct attention *a, int i)
{
    int dim = a->heads * a->size;
    const float *q = a->qkv + i * a->size;
    return (struct head){q,      q + dim, q + 2 * dim, a->out + i * a->size, a->log_sums + (ptrdiff_t)i * a->tokens,
                         3 * dim};
}

static void transpose(const float *rows, int stride, float *out, int tokens, int size)
{
    for (int i = 0; i < tokens; i++)
        for (int k = 0; k < size; k++) out[(ptrdiff_t)k * tokens + i] = rows[(ptrdiff_t)i * stride + k];
}

static int block_end(const struct attention *a, int begin)
{
    return begin + ATTENTION_BLOCK < a->tokens ? begin + ATTENTION_BLOCK : a->tokens;
}

/* Scores of queries begin … end - 1 with all keys before `end`; rows are a->tokens apart. */
static void score(const struct attention *a, const struct head *head, const struct memory *memory, int begin, int end)
{
    gemm(view_of(head->q + (ptrdiff_t)begin * head->stride, end - begin, a->size, head->stride),
         view_of(memory->keys, a->size, end, a->tokens), memory->scores, a->tokens, GEMM_SET);
}

/* Turns scores into probabilities; keys after the query, up to `end`, get 0. */
static float soften(float *scores, int n, int end, float scale)
{
    float largest = scores[0], sum = 0;
#pragma omp simd reduction(max : largest)
    for (int i = 0; i < n; i++) largest = scores[i] > largest ? scores[i] : largest;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < n; i++) {
        scores[i] = kernels_exp((scores[i] - largest) * scale);
        sum += scores[i];
    }
    float inverse = 1.0f / sum;
    for (int i = 0; i < n; i++) scores[i] *= inverse;
    memset(scores + n, 0, (size_t)(end - n) * sizeof *scores);
    return largest * scale + logf(sum);
}

static void head_forward(const struct attention *a, const struct head *head, const struct memory *memory)
{
    float scale = 1.0f / sqrtf((float)a->size);
    int dim = a->heads * a->size;
    transpose(head->k, head->stride, memory->keys, a->tokens, a->size);
    for (int begin = 0; begin < a->tokens; begin += ATTENTION_BLOCK) {
        int end = block_end(a, begin);
        score(a, head, memory, begin, end);
        for (int i = begin; i < end; i++)
            head->log_sums[i] = soften(memory->scores + (ptrdiff_t)(i - begin) * a->tokens, i + 1, end, scale);
        gemm(view_of(memory->scores, end - begin, end, a->tokens), view_of(head->v, end, a->size, head->stride),
             head->out + (ptrdiff_t)begin * dim, dim, GEMM_SET);
    }
}

void attention_forward(const struct attention *a)
{
    struct memory memory = memory_of(a);
    for (int i = 0; i < a->heads; i++) {
        struct head head = head_of(a, i);
        head_forward(a, &head, &memory);
    }
}

/* Scores become probabilities again, their gradients those of the scores. `sum` is what the query's output and its
 * gradient have in common. */
static void soften_back(float *scores, float *d_scores, int n, int end, float scale, float log_sum, float sum)
{
    for (int i = 0; i < n; i++) {
        scores[i] = kernels_exp(scores[i] * scale - log_sum);
        d_scores[i] = scores[i] * (d_scores[i] - sum) * scale;
    }
    memset(scores + n, 0, (size_t)(end - n) * sizeof *scores);
    memset(d_scores + n, 0, (size_t)(end - n) * sizeof *d_scores);
}

/* The gradients that queries begin … end - 1 give to themselves, and to keys and values before `end`. `d` is the head's
 * part of the rows' gradient. */
static void block_backward(const struct attention *a, const struct head *head, const struct memory *memory,
                           const float *d_out, float *d, int begin, int end)
{
    float scale = 1.0f / sqrtf((float)a->size);
    int dim = a->heads * a->size, rows = end - begin;
    const float *d_rows = d_out + (ptrdiff_t)begin * dim;
    score(a, head, memory, begin, end);
    gemm(view_of(d_rows, rows, a->size, dim), view_of(memory->values, a->size, end, a->tokens), memory->d_scores,
         a->tokens, GEMM_SET);
    for (int i = begin; i < end; i++) {
        ptrdiff_t row = i - begin;
        float sum = kernels_dot(d_rows + row * dim, head->out + (ptrdiff_t)i * dim, a->size);
        soften_back(memory->scores + row * a->tokens, memory->d_scores + row * a->tokens, i + 1, end, scale,
                    head->log_sums[i], sum);
    }
    struct view scores = view_of(memory->scores, rows, end, a->tokens);
    struct view d_scores = view_of(memory->d_scores, rows, end, a->tokens);
    gemm(d_scores, view_of(head->k, end, a->size, head->stride), d + (ptrdiff_t)begin * head->stride, head->stride,
         GEMM_SET);
    gemm(transposed(d_scores), view_of(head->q + (ptrdiff_t)begin * head->stride, rows, a->size, head->stride), d + dim,
         head->stride, GEMM_ADD);
    gemm(transposed(scores), view_of(d_rows, rows, a->size, dim), d + 2 * dim, head->stride, GEMM_ADD);
}

void attention_backward(const struct attention *a, const float *d_out, float *d_qkv)
{
    struct memory memory = memory_of(a);
    int dim = a->heads * a->size;
    memset(d_qkv, 0, (size_t)a->tokens * 3 * (size_t)dim * sizeof *d_qkv);
    for (int i = 0; i < a->heads; i++) {
        struct head head = head_of(a, i);
        transpose(head.k, head.stride, memory.keys, a->tokens, a->size);
        transpose(head.v, head.stride, memory.values, a->tokens, a->size);
        for (int begin = 0; begin < a->tokens; begin += ATTENTION_BLOCK)
            block_backward(a, &head, &memory, d_out + i * a->size, d_qkv + i * a->size, begin, block_end(a, begin));
    }
}
