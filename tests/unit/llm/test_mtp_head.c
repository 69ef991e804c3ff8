/* MTP heads against the model's own matrix, and against themselves: rows read one by one, together, and beside those of
 * other sequences. The models are random ones of hearth-mkmodel's, in F32. */
#include "support.h"

#include "base/log.h"

#include <gguf.h>

enum { WINDOW = 256, N_SEQ = 3, TOKENS = 20, VARIANTS = 3 };

static const char *const archs[VARIANTS] = {"qwen35-mtp", "qwen35moe", "glm4moe"};
static const float bound = 1e-3F;

static char *folder;

static struct llm_model *open_with_head(const char *path)
{
    hearth_error error = {0};
    struct llm_model_params params = model_params(path);
    params.mtp = true;
    struct llm_model *model = llm_model_open(&params, &error);
    if (model == NULL) fail_msg("%s", error.message);
    return model;
}

/* Of each architecture a model with its head; the tests are called for both. */
struct rig {
    const char *path;
    struct llm_model *model;
    struct llm_context *context, *head;
    int32_t n_row, n_vocab;
};

static void with_each(void (*test)(struct rig *rig))
{
    for (size_t i = 0; i < VARIANTS; i++) {
        char *path = make_model(folder, archs[i], "--type f32");
        struct llm_context_params params = context_params(WINDOW, N_SEQ), head = params;
        params.hidden_rows = true;
        head.head = LLM_HEAD_MTP;
        head.unified = head.full_windows = true;
        head.scratch = false;
        head.n_cells = WINDOW * N_SEQ;
        struct rig rig = {.path = path, .model = open_with_head(path)};
        assert_true(llm_model_info(rig.model)->mtp);
        rig.context = open_context(rig.model, &params);
        rig.head = open_context(rig.model, &head);
        rig.n_row = llm_model_info(rig.model)->n_embd_out;
        rig.n_vocab = llm_model_info(rig.model)->n_vocab;
        test(&rig);
        llm_context_close(rig.head);
        llm_context_close(rig.context);
        llm_model_close(rig.model);
        free(path);
    }
}

static float *copy_of(const float *v, int32_t n)
{
    float *copy = mem_alloc((size_t)n * sizeof *copy);
    memcpy(copy, v, (size_t)n * sizeof *copy);
    return copy;
}

static float difference(const float *a, const float *b, int32_t n)
{
    float most = 0;
    for (int32_t i = 0; i < n; i++) most = fmaxf(most, fabsf(a[i] - b[i]));
    return most;
}

/* ---- The model's rows ---- */

/* The matrix that makes logits of rows, as the file has it. */
static float *output_matrix(const struct rig *rig)
{
    struct ggml_context *tensors = NULL;
    struct gguf_context *file =
        gguf_init_from_file(rig->path, (struct gguf_init_params){.no_alloc = false, .ctx = &tensors});
    struct ggml_tensor *output = ggml_get_tensor(tensors, "output.weight");
    assert_int_equal(output->type, GGML_TYPE_F32);
    float *matrix = copy_of(output->data, rig->n_row * rig->n_vocab);
    gguf_free(file);
    ggml_free(tensors);
    return matrix;
}

static void expect_logits_of_row(struct rig *rig, const float *matrix, int32_t index)
{
    const float *row = llm_hidden_row(rig->context, index), *logits = llm_logits(rig->context, index);
    for (int32_t v = 0; v < rig->n_vocab; v++) {
        float sum = 0;
        for (int32_t k = 0; k < rig->n_row; k++) sum += row[k] * matrix[(size_t)v * (size_t)rig->n_row + (size_t)k];
        if (fabsf(sum - logits[v]) > bound) fail_msg("token %d of row %d: %g, not %g", v, index, sum, logits[v]);
    }
}

static void check_rows_of_model(struct rig *rig)
{
    float *matrix = output_matrix(rig);
    struct llm_batch_token batch[3 * TOKENS];
    int32_t n = 0;
    for (int32_t seq = 0; seq < 3; seq++)
        for (int32_t i = 0; i < TOKENS - 3 * seq; i++)
            batch[n++] =
                (struct llm_batch_token){.token = 20 + 7 * seq + i, .pos = i, .seq = seq, .logits = i % (seq + 2) == 1};
    assert_int_equal(llm_decode(rig->context, batch, n), LLM_DECODED);
    for (int32_t i = n - 1; i >= 0; i--)
        if (batch[i].logits) expect_logits_of_row(rig, matrix, i);
    free(matrix);
}

/* Of several sequences in one call, in any order of asking. */
static void a_hidden_row_is_what_the_logits_are_made_of(void **state)
{
    (void)state;
    with_each(check_rows_of_model);
}

/* ---- The head's ---- */

struct seen {
    float *logits, *row;
};

static void release(struct seen *seen, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        free(seen[i].logits);
        free(seen[i].row);
    }
}

static struct seen look(const struct rig *rig, int32_t index)
{
    return (struct seen){copy_of(llm_logits(rig->head, index), rig->n_vocab),
                         copy_of(llm_hidden_row(rig->head, index), rig->n_row)};
}

static bool same(const struct rig *rig, const struct seen *a, const struct seen *b)
{
    return difference(a->logits, b->logits, rig->n_vocab) < bound && difference(a->row, b->row, rig->n_row) < bound;
}

/* Tokens of a sequence with the rows of the model's that come before them. */
static void read_tokens(struct rig *rig, struct llm_batch_token *tokens, float **rows, int32_t seed)
{
    struct llm_batch_token batch[TOKENS];
    for (int32_t i = 0; i < TOKENS; i++)
        batch[i] = (struct llm_batch_token){.token = 20 + (seed * 31 + i * 7) % 900, .pos = i, .logits = true};
    llm_seq_clear(rig->context, 0);
    assert_int_equal(llm_decode(rig->context, batch, TOKENS), LLM_DECODED);
    for (int32_t i = 0; i + 1 < TOKENS; i++) {
        rows[i] = copy_of(llm_hidden_row(rig->context, i), rig->n_row);
        tokens[i] = (struct llm_batch_token){
            .token = batch[i + 1].token, .pos = i, .logits = i % 3 == 0 || i + 2 == TOKENS, .row = rows[i]};
    }
}

static void check_rows_of_head(struct rig *rig)
{
    enum { N = TOKENS - 1 };
    struct llm_batch_token tokens[2][N], both[2 * N];
    float *rows[2][N];
    struct seen alone[2][N] = {{{0}}};
    for (int32_t s = 0; s < 2; s++) {
        read_tokens(rig, tokens[s], rows[s], s + 1);
        for (int32_t i = 0; i < N; i++) {
            struct llm_batch_token one = tokens[s][i];
            one.seq = 2;
            one.logits = true;
            assert_int_equal(llm_decode(rig->head, &one, 1), LLM_DECODED);
            alone[s][i] = look(rig, 0);
        }
        llm_seq_clear(rig->head, 2);
    }
    for (int32_t s = 0; s < 2; s++)
        for (int32_t i = 0; i < N; i++) {
            both[s * N + i] = tokens[s][i];
            both[s * N + i].seq = s;
        }
    assert_int_equal(llm_decode(rig->head, both, 2 * N), LLM_DECODED);
    for (int32_t k = 0; k < 2 * N; k++) {
        if (!both[k].logits) continue;
        struct seen together = look(rig, k);
        if (!same(rig, &together, &alone[k / N][k % N])) fail_msg("row %d differs", k);
        release(&together, 1);
    }
    /* A stream is cut, though the model's own states cannot be. Another row is another guess. */
    assert_true(llm_cuts_anywhere(rig->head));
    assert_true(llm_seq_cut(rig->head, 0, 10));
    assert_int_equal(llm_seq_end(rig->head, 0), 10);
    for (int32_t wrong = 0; wrong < 2; wrong++) {
        struct llm_batch_token one = tokens[0][10];
        one.logits = true;
        if (wrong) one.row = rows[1][10];
        assert_int_equal(llm_decode(rig->head, &one, 1), LLM_DECODED);
        struct seen again = look(rig, 0);
        assert_int_equal(same(rig, &again, &alone[0][10]), !wrong);
        assert_true(llm_seq_cut(rig->head, 0, 10));
        release(&again, 1);
    }
    for (int32_t s = 0; s < 2; s++) {
        release(alone[s], N);
        for (int32_t i = 0; i < N; i++) free(rows[s][i]);
    }
}

static void a_head_reads_each_token_with_its_row(void **state)
{
    (void)state;
    with_each(check_rows_of_head);
}

static void check_refused(struct rig *rig)
{
    struct llm_batch_token one = {.token = 20, .logits = true};
    assert_int_equal(llm_decode(rig->head, &one, 1), LLM_REFUSED);
    assert_int_equal(llm_seq_end(rig->head, 0), 0);
}

static void a_token_without_a_row_is_refused(void **state)
{
    (void)state;
    with_each(check_refused);
}

static void check_cells(struct rig *rig)
{
    struct llm_context_params params = context_params(8192, 4);
    params.head = LLM_HEAD_MTP;
    params.scratch = false;
    for (int unified = 0; unified < 2; unified++) {
        params.unified = unified != 0;
        struct llm_context *context = open_context(rig->model, &params);
        double counted = llm_cells_of(&params, llm_model_info(rig->model)).total;
        assert_true(fabs(counted - (double)llm_context_memory(context).cells) < 2e4);
        llm_context_close(context);
    }
}

static void its_cells_are_those_of_one_layer(void **state)
{
    (void)state;
    with_each(check_cells);
}

/* ---- Whether there is one ---- */

static void only_a_model_that_is_to_have_its_head_has_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < VARIANTS; i++) {
        char *path = make_model(folder, archs[i], "");
        struct llm_model *with = open_with_head(path), *without = open_model(path);
        assert_true(llm_model_info(with)->mtp);
        assert_false(llm_model_info(without)->mtp);
        assert_int_equal(llm_model_info(with)->n_layer, llm_model_info(without)->n_layer);
        llm_model_close(with);
        llm_model_close(without);
        free(path);
    }
    char *path = make_model(folder, "qwen35", "");
    struct llm_model *model = open_with_head(path);
    assert_false(llm_model_info(model)->mtp);
    llm_model_close(model);
    free(path);
}

/* Writes the tensors of the last block, which is the head, or all others. `parts`: each is a part of a model in two. */
static void write_part(const char *path, const char *to, bool head, bool parts)
{
    struct ggml_context *tensors = NULL;
    struct gguf_context *file =
        gguf_init_from_file(path, (struct gguf_init_params){.no_alloc = false, .ctx = &tensors});
    struct gguf_context *out = gguf_init_empty();
    if (!head) gguf_set_kv(out, file);
    gguf_set_val_u16(out, "split.count", parts ? 2 : 0);
    gguf_set_val_u16(out, "split.no", head ? 1 : 0);
    gguf_set_val_i32(out, "split.tensors.count", (int32_t)gguf_get_n_tensors(file));
    for (int64_t i = 0; i < gguf_get_n_tensors(file); i++) {
        const char *name = gguf_get_tensor_name(file, i);
        if ((strncmp(name, "blk.2.", 6) == 0) == head) gguf_add_tensor(out, ggml_get_tensor(tensors, name));
    }
    assert_true(gguf_write_to_file(out, to, false));
    gguf_free(out);
    gguf_free(file);
    ggml_free(tensors);
}

static void expect_head(const char *path, bool has)
{
    struct llm_model *model = open_with_head(path);
    assert_int_equal(llm_model_info(model)->mtp, has);
    llm_model_close(model);
}

/* Some files say that they have a head, and were written without it. Of a model in parts the last one has it. */
static void a_file_without_its_tensors_has_none(void **state)
{
    (void)state;
    char *path = make_model(folder, "glm4moe", ""), *first = mem_format("%s/in-00001-of-00002.gguf", folder);
    char *second = mem_format("%s/in-00002-of-00002.gguf", folder);
    write_part(path, first, false, false);
    expect_head(first, false);
    write_part(path, first, false, true);
    write_part(path, second, true, true);
    expect_head(first, true);
    free(path);
    free(first);
    free(second);
}

/* llama.cpp would end the process on the head of M-RoPE, and leaves rows unwritten where there is pooling. */
static void a_form_that_cannot_be_computed_has_none(void **state)
{
    (void)state;
    char *path = make_model(folder, "glm4moe", ""), *to = mem_format("%s/form.gguf", folder);
    for (int form = 0; form < 3; form++) {
        struct ggml_context *tensors = NULL;
        struct gguf_context *file =
            gguf_init_from_file(path, (struct gguf_init_params){.no_alloc = false, .ctx = &tensors});
        struct gguf_context *out = gguf_init_empty();
        const int32_t sections[4] = {8, 4, 4, 0};
        gguf_set_kv(out, file);
        if (form == 1) gguf_set_val_u32(out, "glm4moe.pooling_type", 3);
        if (form == 2) gguf_set_arr_data(out, "glm4moe.rope.dimension_sections", GGUF_TYPE_INT32, sections, 4);
        for (int64_t i = 0; i < gguf_get_n_tensors(file); i++)
            gguf_add_tensor(out, ggml_get_tensor(tensors, gguf_get_tensor_name(file, i)));
        assert_true(gguf_write_to_file(out, to, false));
        gguf_free(out);
        gguf_free(file);
        ggml_free(tensors);
        expect_head(to, form == 0);
    }
    free(path);
    free(to);
}

static int set_up(void **state)
{
    (void)state;
    hearth_error error;
    llm_init();
    folder = folder_open();
    return log_open(NULL, "error", "text", &error);
}

static int tear_down(void **state)
{
    (void)state;
    folder_remove(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hidden_row_is_what_the_logits_are_made_of),
        cmocka_unit_test(a_head_reads_each_token_with_its_row),
        cmocka_unit_test(a_token_without_a_row_is_refused),
        cmocka_unit_test(its_cells_are_those_of_one_layer),
        cmocka_unit_test(only_a_model_that_is_to_have_its_head_has_it),
        cmocka_unit_test(a_file_without_its_tensors_has_none),
        cmocka_unit_test(a_form_that_cannot_be_computed_has_none),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
