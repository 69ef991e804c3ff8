/* Flash attention on a CPU over a pool of cells most of which are masked, against attention that is written out.
 * llama.cpp computes one token, a few row by row, and tiles of up to 64; each skips masked cells in its own way
 * (patches/). Which of the last two is taken depends on how many tokens see the same cells. */
#include "support.h"

#include <ggml-cpu.h>

/* CELLS: more than 32 tiles of 64, and a part of one. OWN: of a conversation that is computed. */
enum { HEAD = 32, HEADS = 2, STREAMS = 2, TILE = 64, CELLS = 33 * TILE + 15, OWN = 50, TOKENS_MAX = 100 };

static const int n_tokens[] = {1, 3, 4, 5, 16, 33, TILE - 1, TILE, TILE + 1, TOKENS_MAX};

/* ---- Which cells a token sees ---- */

typedef bool sees_fn(int token, int cell);

static bool cells_below_the_idle_ones(int token, int cell)
{
    return cell <= OWN + token;
}

static bool cells_above_the_idle_ones(int token, int cell)
{
    int first = CELLS - OWN - TOKENS_MAX;
    return cell >= first && cell <= first + OWN + token;
}

static bool cells_on_both_sides(int token, int cell)
{
    return cell < OWN || cells_above_the_idle_ones(token, cell);
}

static bool cells_in_turn_with_others(int token, int cell)
{
    return cell % 32 == token % 32;
}

static bool cells_of_its_own(int token, int cell)
{
    return cell / (CELLS / TOKENS_MAX) == token;
}

static bool half_shared_and_cells_of_its_own(int token, int cell)
{
    return cell < CELLS / 2 || (cell - CELLS / 2) / (CELLS / 2 / TOKENS_MAX) == token;
}

static bool the_last_cell_alone(int token, int cell)
{
    return token % 3 == 0 && cell == CELLS - 1;
}

static bool all_cells(int token, int cell)
{
    return token >= 0 && cell >= 0;
}

/* ---- Attention ---- */

struct attention {
    int n_tokens, n_streams;
    sees_fn *sees[STREAMS]; /* in each stream of cells */
    float max_bias;         /* ALiBi's; 0: none */
    struct ggml_context *memory;
    struct ggml_tensor *q, *k, *v, *mask, *out;
};

static float *row(const struct ggml_tensor *t, int i1, int i2, int i3)
{
    return (float *)((char *)t->data + (size_t)i1 * t->nb[1] + (size_t)i2 * t->nb[2] + (size_t)i3 * t->nb[3]);
}

static bool tile_is_seen(const struct attention *a, int stream, int cell)
{
    for (int c = cell / TILE * TILE; c < CELLS && c < (cell / TILE + 1) * TILE; c++)
        for (int token = 0; token < a->n_tokens; token++)
            if (a->sees[stream](token, c)) return true;
    return false;
}

static float bias_of(const struct attention *a, int stream, int token, int cell)
{
    if (!a->sees[stream](token, cell)) return -INFINITY;
    return a->max_bias > 0 ? (float)(cell % 64) / -8 : 0;
}

/* Cells of a tile that no token sees hold no numbers: whoever reads one says so in every result. */
static void mask_cells(struct attention *a, int stream)
{
    for (int cell = 0; cell < CELLS; cell++) {
        bool seen = tile_is_seen(a, stream, cell);
        for (int d = 0; d < HEAD && !seen; d++) row(a->k, cell, 0, stream)[d] = row(a->v, cell, 0, stream)[d] = NAN;
        for (int token = 0; token < a->n_tokens; token++)
            ((ggml_fp16_t *)row(a->mask, token, 0, stream))[cell] = ggml_fp32_to_fp16(bias_of(a, stream, token, cell));
    }
}

static void fill(struct attention *a)
{
    uint32_t random = 1;
    struct ggml_tensor *tensors[] = {a->q, a->k, a->v};
    for (size_t i = 0; i < 3; i++)
        for (int64_t n = 0; n < ggml_nelements(tensors[i]); n++) {
            random = random * 1664525 + 1013904223;
            ((float *)tensors[i]->data)[n] = (float)(random >> 8) / (1 << 23) - 1;
        }
    for (int stream = 0; stream < a->n_streams; stream++) mask_cells(a, stream);
}

/* `other`: of a second stream of cells; NULL: there is one. */
static struct attention attention_open(int tokens, sees_fn *sees, sees_fn *other, float max_bias)
{
    struct attention a = {
        .n_tokens = tokens, .n_streams = other == NULL ? 1 : STREAMS, .sees = {sees, other}, .max_bias = max_bias};
    a.memory = ggml_init((struct ggml_init_params){.mem_size = 16 << 20});
    assert_non_null(a.memory);
    a.q = ggml_new_tensor_4d(a.memory, GGML_TYPE_F32, HEAD, tokens, HEADS, a.n_streams);
    a.k = ggml_new_tensor_4d(a.memory, GGML_TYPE_F32, HEAD, CELLS, 1, a.n_streams);
    a.v = ggml_new_tensor_4d(a.memory, GGML_TYPE_F32, HEAD, CELLS, 1, a.n_streams);
    a.mask = ggml_new_tensor_4d(a.memory, GGML_TYPE_F16, CELLS, tokens, 1, a.n_streams);
    fill(&a);
    a.out = ggml_flash_attn_ext(a.memory, a.q, a.k, a.v, a.mask, 1, max_bias, 0);
    struct ggml_cgraph *graph = ggml_new_graph(a.memory);
    ggml_build_forward_expand(graph, a.out);
    assert_int_equal(ggml_graph_compute_with_ctx(a.memory, graph, 2), GGML_STATUS_SUCCESS);
    return a;
}

struct place {
    int stream, token, head;
};

/* What a head of a token attends to, in the order of the cells. */
static void written_out(const struct attention *a, struct place at, double out[HEAD])
{
    double sum = 0, slope = a->max_bias > 0 ? pow(2, -(double)a->max_bias / HEADS * (at.head + 1)) : 1;
    memset(out, 0, HEAD * sizeof(double));
    for (int cell = 0; cell < CELLS; cell++) {
        if (!a->sees[at.stream](at.token, cell)) continue;
        const float *q = row(a->q, at.token, at.head, at.stream), *k = row(a->k, cell, 0, at.stream),
                    *v = row(a->v, cell, 0, at.stream);
        double score = slope * bias_of(a, at.stream, at.token, cell);
        for (int d = 0; d < HEAD; d++) score += (double)q[d] * k[d];
        sum += exp(score);
        for (int d = 0; d < HEAD; d++) out[d] += exp(score) * v[d];
    }
    for (int d = 0; d < HEAD && sum > 0; d++) out[d] /= sum;
}

/* cmocka's own comparison of numbers takes NaN for any. */
static void check_head(const struct attention *a, struct place at)
{
    double expected[HEAD];
    const float *got = row(a->out, at.head, at.token, at.stream);
    written_out(a, at, expected);
    for (int d = 0; d < HEAD; d++)
        if (!(fabs(got[d] - expected[d]) < 1e-4))
            fail_msg("%d tokens: token %d of stream %d has %g, not %g", a->n_tokens, at.token, at.stream,
                     (double)got[d], expected[d]);
}

static void check_all(const struct attention *a)
{
    for (int stream = 0; stream < a->n_streams; stream++)
        for (int token = 0; token < a->n_tokens; token++)
            for (int head = 0; head < HEADS; head++) check_head(a, (struct place){stream, token, head});
}

static void check(sees_fn *sees, float max_bias)
{
    for (size_t i = 0; i < sizeof(n_tokens) / sizeof(n_tokens[0]); i++) {
        struct attention a = attention_open(n_tokens[i], sees, NULL, max_bias);
        check_all(&a);
        ggml_free(a.memory);
    }
}

static void a_token_attends_to_the_cells_that_it_sees(void **state)
{
    (void)state;
    check(cells_below_the_idle_ones, 0);
    check(cells_above_the_idle_ones, 0);
    check(cells_on_both_sides, 0);
    check(cells_in_turn_with_others, 0);
    check(cells_of_its_own, 0);
    check(half_shared_and_cells_of_its_own, 0);
    check(all_cells, 0);
}

static void a_token_that_sees_nothing_gets_nothing(void **state)
{
    (void)state;
    check(the_last_cell_alone, 0);
}

static void biases_of_cells_that_are_seen_count(void **state)
{
    (void)state;
    check(cells_on_both_sides, 8);
    check(half_shared_and_cells_of_its_own, 8);
    check(cells_in_turn_with_others, 8);
}

/* One stream's tokens see enough for tiles, the other's do not: a thread goes row by row while the other has a tile.
 * They meet for a moment only, so it is tried often. */
static void streams_of_which_one_goes_row_by_row_keep_apart(void **state)
{
    (void)state;
    for (int round = 0; round < 50; round++) {
        struct attention a = attention_open(16, round % 2 == 0 ? all_cells : cells_of_its_own,
                                            round % 2 == 0 ? cells_of_its_own : all_cells, 0);
        check_all(&a);
        ggml_free(a.memory);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_attends_to_the_cells_that_it_sees),
        cmocka_unit_test(a_token_that_sees_nothing_gets_nothing),
        cmocka_unit_test(biases_of_cells_that_are_seen_count),
        cmocka_unit_test(streams_of_which_one_goes_row_by_row_keep_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
