/* Models other than dense: their reported kind, and where their sequences can be cut. The models are random ones of
 * hearth-mkmodel's. */
#include "support.h"

#include "base/log.h"

#include <stdatomic.h>

static char *folder;

static struct llm_model *make(const char *arch, const char *options)
{
    char *path = make_model(folder, arch, options);
    struct llm_model *model = open_model(path);
    assert_int_equal(unlink(path), 0);
    free(path);
    return model;
}

static void every_kind_has_its_name(void **state)
{
    (void)state;
    static const struct {
        const char *arch, *kind;
    } cases[] = {{"llama", "dense"},   {"qwen3moe", "moe"},     {"gemma3", "dense"}, {"gpt-oss", "moe"},
                 {"qwen35", "hybrid"}, {"falcon-h1", "hybrid"}, {"lfm2", "hybrid"},  {"mamba2", "recurrent"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct llm_model *model = make(cases[i].arch, "");
        assert_string_equal(llm_model_info(model)->architecture, cases[i].arch);
        assert_string_equal(hearth_model_kind_name(llm_model_info(model)->kind), cases[i].kind);
        assert_true(llm_model_info(model)->has_decoder);
        llm_model_close(model);
    }
}

static void an_encoder_has_no_decoder_and_gets_no_context(void **state)
{
    (void)state;
    hearth_error error = {0};
    struct llm_model *model = make("bert", "");
    assert_false(llm_model_info(model)->has_decoder);
    struct llm_context_params params = context_params(256, 1);
    assert_null(llm_context_open(model, &params, &error));
    assert_int_equal(error.code, HEARTH_UNSUPPORTED);
    assert_non_null(strstr(error.message, "bert"));
    llm_model_close(model);
}

/* The KV cells that the metadata promise, against those that llama.cpp allocates. */
static void the_heads_of_every_layer_add_up_to_the_cells_allocated(void **state)
{
    (void)state;
    static const char *const archs[] = {"llama", "qwen3", "qwen3moe"};
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++) {
        struct llm_model *model = make(archs[i], "--head-dim 64 --layers 3");
        const struct llm_model_info *info = llm_model_info(model);
        double formula = 0;
        for (int32_t layer = 0; layer < info->n_layer; layer++)
            formula += (double)info->n_head_kv[layer] * (info->n_embd_head_k + info->n_embd_head_v) * 2 * 8192;
        struct llm_context_params params = context_params(8192, 1);
        struct llm_context *context = open_context(model, &params);
        assert_true(fabs((double)llm_context_memory(context).cells - formula) < 0.02 * formula);
        llm_context_close(context);
        llm_model_close(model);
    }
}

static void recurrent_layers_keep_no_cells(void **state)
{
    (void)state;
    struct llm_model *model = make("qwen35", "");
    const int32_t *heads = llm_model_info(model)->n_head_kv;
    int with = 0, without = 0;
    for (int32_t i = 0; i < llm_model_info(model)->n_layer; i++) *(heads[i] > 0 ? &with : &without) += 1;
    assert_int_equal(with, 2);
    assert_int_equal(without, 2);
    llm_model_close(model);
    model = make("mamba2", "");
    for (int32_t i = 0; i < llm_model_info(model)->n_layer; i++)
        assert_int_equal(llm_model_info(model)->n_head_kv[i], 0);
    llm_model_close(model);
    model = make("falcon-h1", "");
    for (int32_t i = 0; i < llm_model_info(model)->n_layer; i++) assert_true(llm_model_info(model)->n_head_kv[i] > 0);
    llm_model_close(model);
}

/* llama.cpp logs the size of each buffer with two decimals of a MiB, and each context has three at most. */
static void assert_counted(struct llm_model *model, const struct llm_context_params *params)
{
    const double rounding = 3 * 0.0051 * 1024 * 1024;
    struct llm_context *context = open_context(model, params);
    double counted = llm_cells_of(params, llm_model_info(model)).total;
    double allocated = (double)llm_context_memory(context).cells;
    if (fabs(counted - allocated) > rounding)
        fail_msg("%s, %d sequences of %d, n_ubatch %d, %s: %.0f bytes, not %.0f", llm_model_info(model)->architecture,
                 params->n_seq, params->window, params->n_ubatch, params->unified ? "one pool" : "streams", counted,
                 allocated);
    llm_context_close(context);
}

static void what_is_counted_is_what_is_allocated(void **state)
{
    (void)state;
    static const struct {
        int32_t window, n_seq, n_cells, n_ubatch;
        const char *type;
        bool scratch;
    } cases[] = {{256, 1, 0, 128, "f16", true},  {300, 5, 0, 7, "q8_0", true},      {2048, 3, 0, 500, "f32", true},
                 {100, 40, 0, 32, "f16", false}, {1000, 20, 4000, 64, "f16", true}, {4096, 2, 0, 512, "f16", false}};
    static const char *const archs[] = {"llama",  "qwen3moe",  "gemma3", "gpt-oss",
                                        "qwen35", "falcon-h1", "lfm2",   "mamba2"};
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        struct llm_model *model = make(archs[i], "");
        for (size_t k = 0; k < 2 * (sizeof cases / sizeof *cases); k++) {
            struct llm_context_params params = context_params(cases[k / 2].window, cases[k / 2].n_seq);
            params.unified = k % 2 == 0;
            params.n_cells = cases[k / 2].n_cells;
            params.n_ubatch = cases[k / 2].n_ubatch;
            params.type_k = params.type_v = cases[k / 2].type;
            params.scratch = cases[k / 2].scratch;
            assert_counted(model, &params);
        }
        llm_model_close(model);
    }
}

/* Metadata alone give the same facts as the weights. */
static void layer_memory_is_known_without_weights(void **state)
{
    (void)state;
    static const char *const archs[] = {"gemma3", "gpt-oss", "qwen35", "falcon-h1", "lfm2", "mamba2"};
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        hearth_error error = {0};
        char *path = make_model(folder, archs[i], "");
        struct llm_model_params params = model_params(path);
        struct llm_model *loaded = open_model(path);
        params.weights = false;
        struct llm_model *described = llm_model_open(&params, &error);
        assert_non_null(described);
        const struct llm_model_info *a = llm_model_info(loaded), *b = llm_model_info(described);
        assert_int_equal(a->state_bytes, b->state_bytes);
        assert_int_equal(a->state_bytes > 0, a->n_swa == 0);
        bool any = false;
        for (int32_t layer = 0; layer < a->n_layer; layer++) {
            assert_int_equal(a->n_head_kv[layer], b->n_head_kv[layer]);
            assert_int_equal(a->is_swa[layer], b->is_swa[layer]);
            any = any || a->is_swa[layer];
        }
        assert_int_equal(any, a->n_swa > 0);
        llm_model_close(described);
        llm_model_close(loaded);
        assert_int_equal(unlink(path), 0);
        free(path);
    }
}

static void experts_are_counted(void **state)
{
    (void)state;
    struct llm_model *model = make("qwen3moe", "--experts 6");
    assert_int_equal(llm_model_info(model)->n_expert, 6);
    llm_model_close(model);
}

/* ---- Sliding windows ---- */

enum { WINDOW = 1024, SWA = 64, LONG = 700 };

/* Either the cut is refused and nothing is lost, or the sequence continues like a fresh one. */
static bool cut_and_compare(struct llm_context *context, const struct llm_model *model, const struct tokens *tokens,
                            int32_t from)
{
    enum { MORE = 20 };
    llm_seq_clear(context, 0);
    llm_seq_clear(context, 1);
    int32_t n_vocab = llm_model_info(model)->n_vocab;
    assert_int_equal(decode_range(context, tokens, 0, 0, LONG, 64), LLM_DECODED);
    assert_int_equal(decode_range(context, tokens, 1, 0, from, 64), LLM_DECODED);
    bool cut = llm_seq_cut(context, 0, from);
    int32_t end = cut ? from : LONG;
    assert_int_equal(llm_seq_end(context, 0), end);
    if (!cut) { /* unchanged: it continues as if nobody had tried to cut it */
        llm_seq_clear(context, 1);
        assert_int_equal(decode_range(context, tokens, 1, 0, LONG, 64), LLM_DECODED);
    }
    float *after = logits_after(context, model, tokens, 0, end, end + MORE, MORE);
    float *fresh = logits_after(context, model, tokens, 1, end, end + MORE, MORE);
    for (int32_t i = 0; i < n_vocab; i++) assert_true(fabsf(after[i] - fresh[i]) < 1e-3F);
    free(after);
    free(fresh);
    return cut;
}

static void a_cut_that_leaves_the_sliding_window_incomplete_is_refused(void **state)
{
    (void)state;
    struct llm_model *model = make("gemma3", "--swa 64 --ctx 4096");
    assert_int_equal(llm_model_info(model)->n_swa, SWA);
    struct tokens tokens = prompt_of(model, WINDOW);
    for (int unified = 0; unified < 2; unified++) {
        struct llm_context_params params = context_params(WINDOW, 2);
        params.unified = unified == 1;
        params.type_k = params.type_v = "f32"; /* rounding would hide an incomplete window */
        params.flash_attention = "off";
        struct llm_context *context = open_context(model, &params);
        assert_false(cut_and_compare(context, model, &tokens, LONG - 600));
        assert_false(cut_and_compare(context, model, &tokens, SWA / 2));
        int32_t possible = LONG; /* the boundary, wherever it is: every cut is right or refused */
        for (int32_t from = LONG - 10; from > LONG - 300; from -= 40)
            if (cut_and_compare(context, model, &tokens, from)) possible = from;
        /* In a unified KV cache the other sequence takes every cell that has left this one's window. */
        assert_int_equal(possible < LONG - 40, params.unified ? 0 : 1);
        assert_true(possible > LONG - 300);
        assert_true(llm_seq_cut(context, 0, 0));
        assert_int_equal(llm_seq_end(context, 0), 0);
        llm_context_close(context);
    }
    tokens_release(&tokens);
    llm_model_close(model);
}

static void a_sequence_shorter_than_the_window_can_be_cut_anywhere(void **state)
{
    (void)state;
    struct llm_model *model = make("gemma3", "--swa 64");
    struct tokens tokens = prompt_of(model, SWA);
    struct llm_context_params params = context_params(256, 1);
    struct llm_context *context = open_context(model, &params);
    assert_int_equal(decode_range(context, &tokens, 0, 0, SWA, SWA), LLM_DECODED);
    for (int32_t from = SWA - 1; from > 0; from -= 7) {
        assert_true(llm_seq_cut(context, 0, from));
        assert_int_equal(llm_seq_end(context, 0), from);
    }
    llm_context_close(context);
    tokens_release(&tokens);
    llm_model_close(model);
}

/* ---- Recurrent states ---- */

static const char *const forward_only[] = {"qwen35", "falcon-h1", "lfm2", "mamba2"};

static void a_recurrent_state_refuses_cuts_but_can_be_cleared(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof forward_only / sizeof forward_only[0]; i++) {
        struct llm_model *model = make(forward_only[i], "");
        struct tokens tokens = prompt_of(model, 100);
        struct llm_context_params params = context_params(256, 2);
        struct llm_context *context = open_context(model, &params);
        assert_true(llm_context_memory(context).cells > 0);
        size_t size = (size_t)llm_model_info(model)->n_vocab * sizeof(float);
        float *plain = logits_after(context, model, &tokens, 1, 0, 100, 50);
        assert_int_equal(decode_range(context, &tokens, 0, 0, 50, 50), LLM_DECODED);
        assert_false(llm_seq_cut(context, 0, 49));
        assert_false(llm_seq_cut(context, 0, 1));
        assert_true(llm_seq_cut(context, 0, 50));
        assert_int_equal(llm_seq_end(context, 0), 50);
        float *after = logits_after(context, model, &tokens, 0, 50, 100, 50); /* the refusals changed nothing */
        assert_memory_equal(plain, after, size);
        assert_true(llm_seq_cut(context, 0, 0));
        assert_int_equal(llm_seq_end(context, 0), 0);
        assert_int_equal(llm_seq_end(context, 1), 100);
        free(after);
        after = logits_after(context, model, &tokens, 0, 0, 100, 50);
        assert_memory_equal(plain, after, size);
        free(plain);
        free(after);
        llm_context_close(context);
        tokens_release(&tokens);
        llm_model_close(model);
    }
}

static bool is_set(void *ud)
{
    return atomic_load((_Atomic bool *)ud);
}

static void a_recurrent_state_whose_decode_was_aborted_is_dropped(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof forward_only / sizeof forward_only[0]; i++) {
        _Atomic bool stop = false;
        struct llm_model *model = make(forward_only[i], "");
        struct tokens tokens = prompt_of(model, 100);
        struct llm_context_params params = context_params(256, 2);
        params.abort = is_set;
        params.ud = &stop;
        struct llm_context *context = open_context(model, &params);
        assert_int_equal(decode_range(context, &tokens, 0, 0, 50, 50), LLM_DECODED);
        assert_int_equal(decode_range(context, &tokens, 1, 0, 50, 50), LLM_DECODED);
        atomic_store(&stop, true);
        assert_int_equal(decode_range(context, &tokens, 0, 50, 100, 50), LLM_ABORTED);
        atomic_store(&stop, false);
        assert_int_equal(llm_seq_end(context, 0), 0);
        assert_int_equal(llm_seq_end(context, 1), 50);
        assert_int_equal(decode_range(context, &tokens, 0, 0, 100, 50), LLM_DECODED);
        llm_context_close(context);
        tokens_release(&tokens);
        llm_model_close(model);
    }
}

/* Aborts at the given call of the callback; -1: never. */
struct countdown {
    long left;
};

static bool runs_out(void *ud)
{
    struct countdown *countdown = ud;
    return countdown->left >= 0 && countdown->left-- == 0;
}

/* llama.cpp reassigns the cells of recurrent states so that those of the batch are adjacent: aborting in between must
 * not leave a sequence with another's state. */
static void an_aborted_decode_leaves_no_other_sequence_with_a_wrong_state(void **state)
{
    (void)state;
    static const long breaks[] = {1, 20, 60};
    for (size_t i = 0; i < sizeof forward_only / sizeof forward_only[0]; i++) {
        struct llm_model *model = make(forward_only[i], "");
        struct tokens tokens = prompt_of(model, 100), other = {0};
        for (size_t k = 0; k < tokens.len; k++) tokens_push(&other, tokens.v[tokens.len - 1 - k]);
        for (size_t k = 0; k < sizeof breaks / sizeof *breaks; k++) {
            struct countdown countdown = {-1};
            struct llm_context_params params = context_params(256, 4);
            params.unified = true;
            params.abort = runs_out;
            params.ud = &countdown;
            struct llm_context *context = open_context(model, &params);
            float *right = logits_after(context, model, &tokens, 3, 0, 60, 50);
            llm_seq_clear(context, 3);
            assert_int_equal(decode_range(context, &other, 0, 0, 50, 50), LLM_DECODED);
            assert_int_equal(decode_range(context, &tokens, 1, 0, 50, 50), LLM_DECODED);
            assert_int_equal(decode_range(context, &other, 2, 0, 50, 50), LLM_DECODED);
            struct llm_batch_token batch[20];
            for (int32_t r = 0; r < 20; r++)
                batch[r] = (struct llm_batch_token){
                    .token = other.v[50 + r % 10], .pos = 50 + r % 10, .seq = r < 10 ? 0 : 2, .logits = r % 10 == 9};
            countdown.left = breaks[k];
            if (llm_decode(context, batch, 20) == LLM_ABORTED) {
                countdown.left = -1;
                int32_t from = llm_seq_end(context, 1);
                assert_true(from == 0 || from == 50);
                float *left = logits_after(context, model, &tokens, 1, from, 60, 50);
                for (int32_t v = 0; v < llm_model_info(model)->n_vocab; v++)
                    assert_true(fabsf(right[v] - left[v]) < 1e-3f);
                free(left);
            }
            free(right);
            llm_context_close(context);
        }
        tokens_release(&tokens);
        tokens_release(&other);
        llm_model_close(model);
    }
}

/* ---- */

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
        cmocka_unit_test(every_kind_has_its_name),
        cmocka_unit_test(an_encoder_has_no_decoder_and_gets_no_context),
        cmocka_unit_test(the_heads_of_every_layer_add_up_to_the_cells_allocated),
        cmocka_unit_test(recurrent_layers_keep_no_cells),
        cmocka_unit_test(what_is_counted_is_what_is_allocated),
        cmocka_unit_test(layer_memory_is_known_without_weights),
        cmocka_unit_test(experts_are_counted),
        cmocka_unit_test(a_cut_that_leaves_the_sliding_window_incomplete_is_refused),
        cmocka_unit_test(a_sequence_shorter_than_the_window_can_be_cut_anywhere),
        cmocka_unit_test(a_recurrent_state_refuses_cuts_but_can_be_cleared),
        cmocka_unit_test(a_recurrent_state_whose_decode_was_aborted_is_dropped),
        cmocka_unit_test(an_aborted_decode_leaves_no_other_sequence_with_a_wrong_state),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
