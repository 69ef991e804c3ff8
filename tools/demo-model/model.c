/* A transformer read from top to bottom: forward, the loss, and the same steps in reverse. All tokens of a batch go
 * through the matrix products together; attention and positions are those of each document alone. */
#include "model.h"

#include "attention.h"
#include "base/memory.h"
#include "gemm.h"
#include "kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What one layer computed, in order; a row a token. */
struct trace {
    float *x, *normed, *qkv, *found, *log_sums, *middle, *ff_normed, *gates, *gated;
    float *inverse, *ff_inverse; /* of the norms: a number a token */
};

struct workspace {
    const struct layout *layout;
    int capacity; /* tokens */
    struct trace layers[LAYERS_MAX];
    float *x, *normed, *inverse, *logits;     /* after the layers */
    float *d_x, *d_normed, *d_wide, *d_gated; /* gradients on their way back */
    float *angles, *scratch;
};

/* ---- Memory ---- */

static float *rows_of(int tokens, int columns)
{
    return mem_grow(NULL, (size_t)tokens * (size_t)columns, sizeof(float));
}

static void open_trace(struct trace *t, const struct shape *shape, int tokens)
{
    int dim = shape->dim;
    *t = (struct trace){.x = rows_of(tokens, dim),
                        .normed = rows_of(tokens, dim),
                        .qkv = rows_of(tokens, 3 * dim),
                        .found = rows_of(tokens, dim),
                        .log_sums = rows_of(tokens, shape->heads),
                        .middle = rows_of(tokens, dim),
                        .ff_normed = rows_of(tokens, dim),
                        .gates = rows_of(tokens, 2 * shape->ff),
                        .gated = rows_of(tokens, shape->ff),
                        .inverse = rows_of(tokens, 1),
                        .ff_inverse = rows_of(tokens, 1)};
}

static void close_trace(struct trace *t)
{
    float *const all[] = {t->x,         t->normed, t->qkv,   t->found,   t->log_sums,  t->middle,
                          t->ff_normed, t->gates,  t->gated, t->inverse, t->ff_inverse};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

struct workspace *workspace_open(const struct layout *layout, int tokens)
{
    const struct shape *shape = &layout->shape;
    struct workspace *w = mem_alloc(sizeof *w);
    int dim = shape->dim, wide = 2 * shape->ff > 3 * dim ? 2 * shape->ff : 3 * dim;
    *w = (struct workspace){.layout = layout,
                            .capacity = tokens,
                            .x = rows_of(tokens, dim),
                            .normed = rows_of(tokens, dim),
                            .inverse = rows_of(tokens, 1),
                            .logits = rows_of(tokens, shape->vocabulary),
                            .d_x = rows_of(tokens, dim),
                            .d_normed = rows_of(tokens, dim),
                            .d_wide = rows_of(tokens, wide),
                            .d_gated = rows_of(tokens, shape->ff),
                            .angles = rows_of(tokens, head_size(shape)),
                            .scratch = mem_grow(NULL, attention_scratch(tokens, head_size(shape)), sizeof(float))};
    for (int i = 0; i < shape->layers; i++) open_trace(&w->layers[i], shape, tokens);
    rotation_fill(w->angles, tokens, head_size(shape), shape->rope_base);
    return w;
}

void workspace_close(struct workspace *w)
{
    if (w == NULL) return;
    float *const all[] = {w->x,        w->normed, w->inverse, w->logits, w->d_x,
                          w->d_normed, w->d_wide, w->d_gated, w->angles, w->scratch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    for (int i = 0; i < w->layout->shape.layers; i++) close_trace(&w->layers[i]);
    free(w);
}

/* ---- Forward ---- */

/* out (+)= x W, where the matrix W maps `columns` numbers to `rows`. */
static void apply(const float *x, int tokens, const float *matrix, int rows, int columns, float *out,
                  enum gemm_mode mode)
{
    gemm(view_of(x, tokens, columns, columns), transposed(view_of(matrix, rows, columns, columns)), out, rows, mode);
}

/* Calls `turn` for queries and keys of every token. */
static void rotate(const struct workspace *w, float *qkv, const struct batch *batch,
                   void (*turn)(const struct rotation *, float *, int))
{
    const struct shape *shape = &w->layout->shape;
    const struct rotation rotation = {w->angles, 2 * shape->heads, head_size(shape)}; /* keys follow the queries */
    for (int d = 0; d < batch->n_documents; d++)
        for (int i = batch->starts[d]; i < batch->starts[d + 1]; i++)
            turn(&rotation, qkv + (size_t)i * 3 * (size_t)shape->dim, i - batch->starts[d]);
}

static struct attention attention_of(const struct workspace *w, const struct trace *t, const struct batch *batch,
                                     int document)
{
    const struct shape *shape = &w->layout->shape;
    size_t at = (size_t)batch->starts[document], dim = (size_t)shape->dim;
    return (struct attention){.qkv = t->qkv + at * 3 * dim,
                              .out = t->found + at * dim,
                              .log_sums = t->log_sums + at * (size_t)shape->heads,
                              .tokens = batch->starts[document + 1] - batch->starts[document],
                              .heads = shape->heads,
                              .size = head_size(shape),
                              .scratch = w->scratch};
}

static struct norm norm_of(const struct workspace *w, const float *gain)
{
    return (struct norm){gain, w->layout->shape.epsilon, w->layout->shape.dim};
}

/* Reads t->x, writes `out`. */
static void layer_forward(struct workspace *w, int i, const float *weights, const struct batch *batch, float *out)
{
    const struct shape *shape = &w->layout->shape;
    const struct layer *layer = &w->layout->layers[i];
    const struct trace *t = &w->layers[i];
    int n = batch->n_tokens, dim = shape->dim, ff = shape->ff;
    size_t bytes = (size_t)n * (size_t)dim * sizeof(float);

    const struct norm before = norm_of(w, weights + layer->attention_norm);
    norm_forward(&before, t->x, t->normed, t->inverse, n);
    apply(t->normed, n, weights + layer->qkv, 3 * dim, dim, t->qkv, GEMM_SET);
    rotate(w, t->qkv, batch, rotate_row);
    for (int d = 0; d < batch->n_documents; d++) {
        const struct attention attention = attention_of(w, t, batch, d);
        attention_forward(&attention);
    }
    memcpy(t->middle, t->x, bytes);
    apply(t->found, n, weights + layer->attention_out, dim, dim, t->middle, GEMM_ADD);

    const struct norm between = norm_of(w, weights + layer->ff_norm);
    norm_forward(&between, t->middle, t->ff_normed, t->ff_inverse, n);
    apply(t->ff_normed, n, weights + layer->gate_up, 2 * ff, dim, t->gates, GEMM_SET);
    gate_forward(t->gates, t->gated, ff, n);
    memcpy(out, t->middle, bytes);
    apply(t->gated, n, weights + layer->down, dim, ff, out, GEMM_ADD);
}

void model_forward(struct workspace *w, const float *weights, const struct batch *batch)
{
    const struct layout *layout = w->layout;
    const struct shape *shape = &layout->shape;
    int n = batch->n_tokens, dim = shape->dim, last = shape->layers - 1;
    for (int i = 0; i < n; i++)
        memcpy(w->layers[0].x + (size_t)i * (size_t)dim,
               weights + layout->embedding + (size_t)batch->tokens[i] * (size_t)dim, (size_t)dim * sizeof(float));
    for (int i = 0; i <= last; i++) layer_forward(w, i, weights, batch, i < last ? w->layers[i + 1].x : w->x);
    const struct norm norm = norm_of(w, weights + layout->norm);
    norm_forward(&norm, w->x, w->normed, w->inverse, n);
    apply(w->normed, n, weights + layout->embedding, shape->vocabulary, dim, w->logits, GEMM_SET);
}

const float *model_logits(const struct workspace *w)
{
    return w->logits;
}

/* ---- Loss ---- */

/* Returns the loss of one token in nats; the logits become their gradient times `weight`. */
static double token_loss(float *logits, int n, int32_t token, float weight)
{
    float largest = logits[0], sum = 0;
#pragma omp simd reduction(max : largest)
    for (int i = 0; i < n; i++) largest = logits[i] > largest ? logits[i] : largest;
    float own = logits[token] - largest;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < n; i++) {
        logits[i] = kernels_exp(logits[i] - largest);
        sum += logits[i];
    }
    float scale = weight / sum;
    for (int i = 0; i < n; i++) logits[i] *= scale;
    logits[token] -= weight;
    return log((double)sum) - (double)own;
}

static void document_loss(struct workspace *w, const struct batch *batch, int begin, int end, struct loss *loss)
{
    int n = w->layout->shape.vocabulary;
    for (int i = begin; i < end; i++) {
        float *logits = w->logits + (size_t)i * (size_t)n;
        float weight = i + 1 < end ? batch->weights[i + 1] : 0.0f;
        if (weight <= 0.0f) {
            memset(logits, 0, (size_t)n * sizeof *logits);
            continue;
        }
        double nats = token_loss(logits, n, batch->tokens[i + 1], weight);
        loss->loss += nats * (double)weight;
        loss->weight += (double)weight;
        if (weight < 1.0f) continue;
        loss->spoken_loss += nats;
        loss->spoken += 1;
    }
}

void model_loss(struct workspace *w, const struct batch *batch, struct loss *loss)
{
    for (int d = 0; d < batch->n_documents; d++) document_loss(w, batch, batch->starts[d], batch->starts[d + 1], loss);
}

/* ---- Backward ---- */

/* Of out = x W: the gradient of W is added to; that of x is written. */
static void apply_backward(const struct view d_out, const float *x, const float *matrix, int columns, float *d_matrix,
                           float *d_x)
{
    gemm(transposed(d_out), view_of(x, d_out.rows, columns, columns), d_matrix, columns, GEMM_ADD);
    gemm(d_out, view_of(matrix, d_out.columns, columns, columns), d_x, columns, GEMM_SET);
}

/* w->d_x is the gradient of the layer's output, then that of its input. */
static void layer_backward(struct workspace *w, int i, const float *weights, const struct batch *batch, float *gradient)
{
    const struct shape *shape = &w->layout->shape;
    const struct layer *layer = &w->layout->layers[i];
    const struct trace *t = &w->layers[i];
    int n = batch->n_tokens, dim = shape->dim, ff = shape->ff;
    const struct view d_x = view_of(w->d_x, n, dim, dim);

    apply_backward(d_x, t->gated, weights + layer->down, ff, gradient + layer->down, w->d_gated);
    gate_backward(t->gates, w->d_gated, w->d_wide, ff, n);
    apply_backward(view_of(w->d_wide, n, 2 * ff, 2 * ff), t->ff_normed, weights + layer->gate_up, dim,
                   gradient + layer->gate_up, w->d_normed);
    const struct norm between = norm_of(w, weights + layer->ff_norm);
    norm_backward(&between, t->middle, t->ff_inverse, w->d_normed, w->d_x, gradient + layer->ff_norm, n);

    apply_backward(d_x, t->found, weights + layer->attention_out, dim, gradient + layer->attention_out, w->d_normed);
    for (int d = 0; d < batch->n_documents; d++) {
        const struct attention attention = attention_of(w, t, batch, d);
        size_t at = (size_t)batch->starts[d] * (size_t)dim;
        attention_backward(&attention, w->d_normed + at, w->d_wide + 3 * at);
    }
    rotate(w, w->d_wide, batch, rotate_row_back);
    apply_backward(view_of(w->d_wide, n, 3 * dim, 3 * dim), t->normed, weights + layer->qkv, dim, gradient + layer->qkv,
                   w->d_normed);
    const struct norm before = norm_of(w, weights + layer->attention_norm);
    norm_backward(&before, t->x, t->inverse, w->d_normed, w->d_x, gradient + layer->attention_norm, n);
}

void model_backward(struct workspace *w, const float *weights, const struct batch *batch, float *gradient)
{
    const struct layout *layout = w->layout;
    const struct shape *shape = &layout->shape;
    int n = batch->n_tokens, dim = shape->dim;
    float *d_embedding = gradient + layout->embedding;
    apply_backward(view_of(w->logits, n, shape->vocabulary, shape->vocabulary), w->normed, weights + layout->embedding,
                   dim, d_embedding, w->d_normed);
    memset(w->d_x, 0, (size_t)n * (size_t)dim * sizeof *w->d_x);
    const struct norm norm = norm_of(w, weights + layout->norm);
    norm_backward(&norm, w->x, w->inverse, w->d_normed, w->d_x, gradient + layout->norm, n);
    for (int i = shape->layers - 1; i >= 0; i--) layer_backward(w, i, weights, batch, gradient);
    for (int i = 0; i < n; i++)
        add_to(d_embedding + (size_t)batch->tokens[i] * (size_t)dim, w->d_x + (size_t)i * (size_t)dim, (size_t)dim);
}

double model_cost(const struct layout *layout, double length)
{
    const struct shape *shape = &layout->shape;
    return 6.0 * (double)layout->size + 7.0 * (double)shape->layers * (double)shape->dim * length;
}
