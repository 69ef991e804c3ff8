#include "documents.h"
#include "model.h"
#include "support.h"

#include <math.h>

static const struct shape small = {.vocabulary = 40,
                                   .dim = 24,
                                   .layers = 2,
                                   .heads = 2,
                                   .ff = 20,
                                   .context = 64,
                                   .rope_base = 1000.0f,
                                   .epsilon = 1e-5f};

enum { TOKENS = 150 };

/* A model, a batch and a workspace. */
struct fixture {
    struct layout layout;
    struct batch batch;
    struct workspace *workspace;
    float *weights;
};

/* Two documents, of which the longer takes more than one block of queries where `tokens` is above 128. */
static void fill_batch(struct batch *batch, int vocabulary, int tokens)
{
    struct random random = random_of(9, 9);
    for (int i = 0; i < tokens; i++) {
        int32_t token = random_below(&random, vocabulary);
        static const float weights[] = {1.0f, 0.1f, 1.0f, 0.0f};
        batch_add(batch, &token, 1, weights[random_below(&random, 4)]);
        if (i == 8 || i == tokens - 1) batch_end_document(batch);
    }
}

static void open_fixture(struct fixture *f, const struct shape *shape)
{
    *f = (struct fixture){0};
    layout_make(&f->layout, shape);
    f->weights = mem_alloc(f->layout.size * sizeof(float));
    layout_fill(&f->layout, f->weights, 4);
    struct random random = random_of(1, 2);
    for (int i = 0; i < f->layout.n_tensors; i++) { /* so that no gradient is small for the way that training begins */
        const struct tensor *t = &f->layout.tensors[i];
        float deviation = t->kind == TENSOR_NORM ? 0.2f : 0.3f / sqrtf((float)t->columns);
        for (int k = 0; k < t->rows * t->columns; k++)
            f->weights[t->at + (size_t)k] += deviation * random_normal(&random);
    }
    fill_batch(&f->batch, shape->vocabulary, TOKENS);
    f->workspace = workspace_open(&f->layout, TOKENS);
}

static void close_fixture(struct fixture *f)
{
    workspace_close(f->workspace);
    batch_release(&f->batch);
    free(f->weights);
}

static double loss_of(struct fixture *f)
{
    struct loss loss = {0};
    model_forward(f->workspace, f->weights, &f->batch);
    model_loss(f->workspace, &f->batch, &loss);
    return loss.loss;
}

/* How fast the loss changes along `direction`, which is added to one tensor's weights: by differences. */
static double slope(struct fixture *f, const struct tensor *t, const float *direction, float step)
{
    size_t n = (size_t)t->rows * (size_t)t->columns;
    float *weights = f->weights + t->at, *kept = mem_grow(NULL, n, sizeof *kept);
    memcpy(kept, weights, n * sizeof *kept);
    for (size_t i = 0; i < n; i++) weights[i] = kept[i] + step * direction[i];
    double above = loss_of(f);
    for (size_t i = 0; i < n; i++) weights[i] = kept[i] - step * direction[i];
    double below = loss_of(f);
    memcpy(weights, kept, n * sizeof *kept);
    free(kept);
    return (above - below) / (2.0 * (double)step);
}

static void check_tensor(struct fixture *f, const struct tensor *t, const float *gradient, struct random *random)
{
    size_t n = (size_t)t->rows * (size_t)t->columns;
    const float *g = gradient + t->at;
    float *direction = mem_alloc(n * sizeof *direction);
    double length = 0;
    for (size_t i = 0; i < n; i++) length += (double)g[i] * (double)g[i];
    length = sqrt(length);
    assert_true(length > 1e-3);
    for (int attempt = 0; attempt < 3; attempt++) { /* along the gradient itself, then twice in a random direction */
        double norm = 0, expected = 0;
        for (size_t i = 0; i < n; i++) {
            direction[i] = attempt == 0 ? g[i] : random_normal(random);
            norm += (double)direction[i] * (double)direction[i];
        }
        for (size_t i = 0; i < n; i++) {
            direction[i] /= (float)sqrt(norm);
            expected += (double)direction[i] * (double)g[i];
        }
        double found = slope(f, t, direction, 0.01f);
        if (fabs(found - expected) >
            0.01 * length / (attempt == 0 ? 1.0 : sqrt((double)n) / 4.0) + 0.01 * fabs(expected))
            fail_msg("%s, direction %d: the loss changes by %g, the gradient says %g", t->name, attempt, found,
                     expected);
    }
    free(direction);
}

static void the_gradient_of_every_tensor_is_that_of_finite_differences(void **state)
{
    (void)state;
    struct fixture f;
    struct random random = random_of(6, 6);
    open_fixture(&f, &small);
    float *gradient = mem_alloc(f.layout.size * sizeof *gradient);
    loss_of(&f);
    model_backward(f.workspace, f.weights, &f.batch, gradient);
    for (int i = 0; i < f.layout.n_tensors; i++) check_tensor(&f, &f.layout.tensors[i], gradient, &random);
    free(gradient);
    close_fixture(&f);
}

/* What a token is predicted as depends on the tokens before it in its document, and on nothing else. */
static void a_token_sees_its_own_document_up_to_itself(void **state)
{
    (void)state;
    struct fixture f;
    int seen = 60, n = small.vocabulary;
    open_fixture(&f, &small);
    model_forward(f.workspace, f.weights, &f.batch);
    size_t bytes = (size_t)n * sizeof(float);
    float *before = mem_alloc(bytes), *first = mem_alloc(bytes);
    memcpy(before, model_logits(f.workspace) + seen * n, bytes);
    memcpy(first, model_logits(f.workspace) + 4 * n, bytes);
    f.batch.tokens[seen + 1] = (f.batch.tokens[seen + 1] + 1) % n; /* later */
    f.batch.tokens[2] = (f.batch.tokens[2] + 1) % n;               /* another document */
    model_forward(f.workspace, f.weights, &f.batch);
    assert_memory_equal(before, model_logits(f.workspace) + seen * n, bytes);
    assert_memory_not_equal(first, model_logits(f.workspace) + 4 * n, bytes);
    f.batch.tokens[20] = (f.batch.tokens[20] + 1) % n;
    model_forward(f.workspace, f.weights, &f.batch);
    assert_memory_not_equal(before, model_logits(f.workspace) + seen * n, bytes);
    free(before);
    free(first);
    close_fixture(&f);
}

static void adam_and_muon_make_the_loss_fall(void **state)
{
    (void)state;
    struct fixture f;
    struct optimizer optimizer;
    open_fixture(&f, &small);
    optimizer_open(&optimizer, &f.layout);
    float *gradient = mem_alloc(f.layout.size * sizeof *gradient), *scratch = optimizer_scratch(&f.layout);
    double begin = loss_of(&f), end = begin;
    for (int step = 0; step < 40; step++) {
        memset(gradient, 0, f.layout.size * sizeof *gradient);
        loss_of(&f);
        model_backward(f.workspace, f.weights, &f.batch, gradient);
        const struct update update = {f.weights, gradient, 0.01f, 0.01f};
        for (int i = 0; i < f.layout.n_tensors; i++) optimizer_update(&optimizer, i, &update, scratch);
        optimizer.steps++;
        end = loss_of(&f);
    }
    if (!(end < 0.3 * begin)) fail_msg("from %g to %g", begin, end);
    free(gradient);
    free(scratch);
    optimizer_close(&optimizer);
    close_fixture(&f);
}

/* Muon's update of a matrix has singular values near 1: its rows are nearly orthogonal. */
static void muon_moves_a_matrix_by_an_orthogonal_one(void **state)
{
    (void)state;
    struct fixture f;
    struct optimizer optimizer;
    open_fixture(&f, &small);
    optimizer_open(&optimizer, &f.layout);
    const struct tensor *t = NULL;
    int at = 0;
    for (; at < f.layout.n_tensors; at++) {
        t = &f.layout.tensors[at];
        if (strstr(t->name, "ffn_gate") != NULL) break;
    }
    size_t n = (size_t)t->rows * (size_t)t->columns; /* 20 x 24 */
    float *gradient = mem_alloc(f.layout.size * sizeof *gradient), *scratch = optimizer_scratch(&f.layout);
    struct random random = random_of(8, 8);
    for (size_t i = 0; i < n; i++) gradient[t->at + i] = random_normal(&random);
    memset(f.weights + t->at, 0, n * sizeof(float)); /* then weight decay changes nothing */
    const struct update update = {f.weights, gradient, 1.0f, 1.0f};
    optimizer_update(&optimizer, at, &update, scratch);
    double scale = 0.2 * sqrt(24.0);
    for (int a = 0; a < t->rows; a++) {
        double own = 0, along = 0;
        for (int i = 0; i < t->columns; i++) {
            double v = (double)f.weights[t->at + (size_t)(a * t->columns + i)] / scale;
            own += v * v;
            along -= v * (double)gradient[t->at + (size_t)(a * t->columns + i)];
        }
        assert_true(own > 0.4 && own < 1.6);
        assert_true(along > 0);
    }
    free(gradient);
    free(scratch);
    optimizer_close(&optimizer);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_gradient_of_every_tensor_is_that_of_finite_differences),
        cmocka_unit_test(a_token_sees_its_own_document_up_to_itself),
        cmocka_unit_test(adam_and_muon_make_the_loss_fall),
        cmocka_unit_test(muon_moves_a_matrix_by_an_orthogonal_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
