/* EAGLE-3 heads: the inputs of layers that they read, and what they guess, against llama.cpp's own driver. The models
 * are random ones of hearth-mkmodel's, in F32. */
#include "support.h"

#include "base/clock.h"
#include "base/log.h"
#include "engine/draft_model.h"
#include "llm/context_struct.h"
#include "speculative.h"

#include <gguf.h>

enum { WINDOW = 256, N_SEQ = 3, TOKENS = 40, GUESSES = 6, GAP_NS = 1000000000 };

static const float bound = 1e-3F;

static char *folder;

static const char *const heads[] = {"eagle3", "eagle3-own"}; /* with the model's embedding and output, with its own */

struct rig {
    size_t which;
    char *path, *head_path;
    struct llm_model *model, *head;
    const struct llm_model_info *info, *its;
};

static struct rig rig;

/* `n_seq` sequences in one pool; it gives the rows that the head reads. */
static struct llm_context *open_giving(int32_t n_seq, int32_t n_ubatch)
{
    struct llm_context_params params = context_params(WINDOW, n_seq);
    params.hidden_rows = params.unified = true;
    params.hidden_layers = rig.its->eagle.layers;
    params.n_ubatch = n_ubatch;
    return open_context(rig.model, &params);
}

static int32_t token_at(int32_t seed, int32_t i)
{
    return 20 + (seed * 131 + i * i * 7 + i) % 900;
}

/* ---- Rows ---- */

static void the_input_of_the_first_layer_is_the_embedding(void **state)
{
    (void)state;
    struct ggml_context *tensors = NULL;
    struct gguf_context *file =
        gguf_init_from_file(rig.path, (struct gguf_init_params){.no_alloc = false, .ctx = &tensors});
    const float *embedding = ggml_get_tensor(tensors, "token_embd.weight")->data;
    struct llm_context *context = open_giving(1, 512);
    struct llm_batch_token batch[TOKENS];
    for (int32_t i = 0; i < TOKENS; i++)
        batch[i] = (struct llm_batch_token){.token = token_at(1, i), .pos = i, .logits = i % 3 == 0};
    assert_int_equal(llm_decode(context, batch, TOKENS), LLM_DECODED);
    for (int32_t i = 0; i < TOKENS; i++)
        assert_memory_equal(llm_hidden_row(context, i), embedding + (size_t)batch[i].token * (size_t)rig.info->n_embd,
                            (size_t)rig.info->n_embd * sizeof(float));
    llm_context_close(context);
    gguf_free(file);
    ggml_free(tensors);
}

/* Whatever else is in the call, and however it is cut into micro-batches. */
static void a_row_is_its_tokens_own(void **state)
{
    (void)state;
    int32_t n_row = rig.its->eagle.layers.n * rig.info->n_embd;
    float *alone = mem_alloc((size_t)(N_SEQ * TOKENS * n_row) * sizeof *alone);
    struct llm_context *one = open_giving(N_SEQ, 512);
    for (int32_t k = 0; k < N_SEQ * TOKENS; k++) {
        int32_t seq = k / TOKENS, i = k % TOKENS;
        struct llm_batch_token token = {.token = token_at(seq, i), .pos = i, .seq = seq};
        token.logits = i % (seq + 2) == 0;
        assert_int_equal(llm_decode(one, &token, 1), LLM_DECODED);
        memcpy(alone + (size_t)k * (size_t)n_row, llm_hidden_row(one, 0), (size_t)n_row * sizeof(float));
    }
    for (int32_t n_ubatch = 16; n_ubatch <= 512; n_ubatch *= 32) {
        struct llm_context *together = open_giving(N_SEQ, n_ubatch);
        struct llm_batch_token batch[N_SEQ * TOKENS];
        int32_t n = 0, at[N_SEQ * TOKENS];
        for (int32_t i = 0; i < TOKENS; i++)
            for (int32_t seq = N_SEQ - 1; seq >= 0; seq--) {
                if (i >= TOKENS - 9 * seq) continue;
                at[n] = seq * TOKENS + i;
                batch[n++] = (struct llm_batch_token){
                    .token = token_at(seq, i), .pos = i, .seq = seq, .logits = i % (seq + 2) == 0};
            }
        assert_int_equal(llm_decode(together, batch, n), LLM_DECODED);
        for (int32_t k = n - 1; k >= 0; k--) {
            const float *row = llm_hidden_row(together, k), *right = alone + (size_t)at[k] * (size_t)n_row;
            for (int32_t v = 0; v < n_row; v++)
                if (!(fabsf(row[v] - right[v]) < bound))
                    fail_msg("row %d, number %d: %g, not %g", k, v, row[v], right[v]);
        }
        llm_context_close(together);
    }
    llm_context_close(one);
    free(alone);
}

/* ---- Guesses ---- */

static struct llm_context *open_head(int32_t n_slots, struct llm_context *other)
{
    struct llm_context_params params = draft_model_context(rig.its, n_slots);
    params.other = other;
    return open_context(rig.head, &params);
}

/* What llama.cpp guesses behind the first n tokens of that seed. */
static void right_guess(int32_t seed, int32_t n, int32_t guess[GUESSES])
{
    struct llm_context_params params = context_params(WINDOW, 1);
    struct llm_context *model = open_context(rig.model, &params), *head = open_head(1, model);
    int32_t tokens[TOKENS];
    for (int32_t i = 0; i < n; i++) tokens[i] = token_at(seed, i);
    int32_t found = speculative_guess(llm_context_handle(model), llm_context_handle(head), tokens, n, guess, GUESSES);
    assert_int_equal(found, GUESSES);
    llm_context_close(head);
    llm_context_close(model);
}

/* Several replies, one behind the other and in one call, with all lengths up to TOKENS. */
static void it_guesses_what_llama_cpp_does(void **state)
{
    (void)state;
    hearth_error error;
    struct llm_context *context = open_giving(N_SEQ, 512);
    struct draft_model_params params = {.model = rig.head,
                                        .context = draft_model_context(rig.its, N_SEQ),
                                        .n_vocab = rig.info->n_vocab,
                                        .n_row = rig.its->eagle.layers.n * rig.info->n_embd,
                                        .n_own = rig.its->n_embd_out};
    params.context.other = context;
    params.context.type_k = params.context.type_v = "f32";
    struct draft_model *model = draft_model_open(&params, GAP_NS, clock_monotonic(), &error);
    if (model == NULL) fail_msg("%s", error.message);
    struct tokens tokens[N_SEQ] = {{0}};
    for (int32_t i = 0; i < TOKENS; i++) {
        struct draft_ask asks[N_SEQ];
        for (int32_t seq = 0; seq < N_SEQ; seq++) {
            if (i > 0) {
                struct llm_batch_token one = {.token = tokens[seq].v[i - 1], .pos = i - 1, .seq = seq, .logits = true};
                assert_int_equal(llm_decode(context, &one, 1), LLM_DECODED);
            }
            tokens_push(&tokens[seq], token_at(seq, i));
            asks[seq] = (struct draft_ask){.stream = seq, .owner = (uint64_t)seq + 1, .tokens = &tokens[seq]};
            if (i > 0)
                draft_model_keep_row(model, &(struct draft_row){.stream = seq,
                                                                .owner = (uint64_t)seq + 1,
                                                                .index = i,
                                                                .row = llm_hidden_row(context, 0)});
        }
        if (i % 5 != 3) continue;
        for (bool any = true; any;) {
            assert_true(draft_model_next(model, asks, N_SEQ));
            any = false;
            for (int32_t seq = 0; seq < N_SEQ; seq++) {
                asks[seq].over = asks[seq].n == GUESSES;
                any = any || !asks[seq].over;
            }
        }
        for (int32_t seq = 0; seq < N_SEQ; seq++) {
            int32_t right[GUESSES];
            right_guess(seq, i + 1, right);
            assert_memory_equal(asks[seq].guess, right, sizeof right);
        }
    }
    for (int32_t seq = 0; seq < N_SEQ; seq++) tokens_release(&tokens[seq]);
    draft_model_close(model);
    llm_context_close(context);
}

/* ---- Whether it fits ---- */

static void expect_refused(const struct llm_model_info *head, const struct llm_model_info *model, const char *part)
{
    hearth_error error = {0};
    assert_true(llm_eagle_fits(head, model, &error) < 0);
    if (strstr(error.message, part) == NULL) fail_msg("%s", error.message);
}

static void what_llama_cpp_would_end_the_process_for_is_refused(void **state)
{
    (void)state;
    hearth_error error;
    struct llm_model_info head = *rig.its, model = *rig.info;
    assert_int_equal(llm_eagle_fits(&head, &model, &error), HEARTH_OK);
    snprintf(model.architecture, sizeof model.architecture, "falcon");
    expect_refused(&head, &model, "falcon");
    model = *rig.info;
    model.n_embd = 128;
    expect_refused(&head, &model, "128");
    model = *rig.info;
    model.n_layer = 3;
    expect_refused(&head, &model, "layer 3");
    head.eagle.layers.v[0] = -1;
    expect_refused(&head, rig.info, "layer -1");
    head = *rig.its;
    head.eagle.borrows = true;
    head.n_embd = 32;
    expect_refused(&head, rig.info, "32 wide");
    head.n_embd = rig.its->n_embd;
    head.n_vocab--;
    expect_refused(&head, rig.info, "with");
    model = *rig.info;
    model.n_embd_out *= 2;
    expect_refused(rig.its, &model, "output is 128 wide");
    head.eagle.borrows = false;
    assert_int_equal(llm_eagle_fits(&head, rig.info, &error), HEARTH_OK);
    head.n_layer = 2;
    expect_refused(&head, rig.info, "one layer");
}

static void a_model_is_no_head(void **state)
{
    (void)state;
    assert_int_equal(rig.info->eagle.layers.n, 0);
    assert_int_equal(rig.its->eagle.layers.n, 3);
    assert_int_equal(rig.its->eagle.borrows, strcmp(heads[rig.which], "eagle3") == 0);
    assert_false(rig.its->has_decoder); /* nobody opens it as a model that generates */
}

static int set_up(void **state)
{
    (void)state;
    hearth_error error;
    llm_init();
    folder = folder_open();
    rig.path = make_model(folder, "llama", "--type f32 --layers 4");
    rig.head_path = make_model(folder, heads[rig.which], "--type f32 --seed 3");
    rig.model = open_model(rig.path);
    rig.head = open_model(rig.head_path);
    rig.info = llm_model_info(rig.model);
    rig.its = llm_model_info(rig.head);
    return log_open(NULL, "error", "text", &error);
}

static int tear_down(void **state)
{
    (void)state;
    llm_model_close(rig.head);
    llm_model_close(rig.model);
    free(rig.path);
    free(rig.head_path);
    folder_remove(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_input_of_the_first_layer_is_the_embedding),
        cmocka_unit_test(a_row_is_its_tokens_own),
        cmocka_unit_test(it_guesses_what_llama_cpp_does),
        cmocka_unit_test(what_llama_cpp_would_end_the_process_for_is_refused),
        cmocka_unit_test(a_model_is_no_head),
    };
    int failed = 0;
    for (rig.which = 0; rig.which < sizeof heads / sizeof *heads; rig.which++)
        failed += cmocka_run_group_tests(tests, set_up, tear_down);
    return failed;
}
