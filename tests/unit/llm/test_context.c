/* Contexts: sizes, refusals, the state after each result of a decode, memory. The model is the demo model. */
#include "support.h"

#include "base/clock.h"
#include "base/log.h"
#include "config/table.h"
#include "llm/context_params.h"
#include "llm/context_struct.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

static float *logits_of_whole(struct llm_model *model, const struct llm_context_params *params,
                              const struct tokens *tokens, int32_t chunk)
{
    struct llm_context *context = open_context(model, params);
    float *logits = logits_after(context, model, tokens, 0, 0, (int32_t)tokens->len, chunk);
    llm_context_close(context);
    return logits;
}

/* ---- Decoding ---- */

static void a_prompt_in_one_chunk_and_in_several_has_the_same_likeliest_token(void **state)
{
    struct tokens tokens = prompt_of(*state, 200);
    struct llm_context_params params = context_params(256, 1);
    int32_t n_vocab = llm_model_info(*state)->n_vocab;
    float *whole = logits_of_whole(*state, &params, &tokens, 200);
    float *parts = logits_of_whole(*state, &params, &tokens, 37);
    assert_int_equal(argmax(whole, n_vocab), argmax(parts, n_vocab));
    free(whole);
    free(parts);
    tokens_release(&tokens);
}

static void a_cut_sequence_continues_bit_for_bit_as_if_nothing_had_been_there(void **state)
{
    struct tokens tokens = prompt_of(*state, 192);
    struct llm_context_params params = context_params(256, 2);
    float *plain = logits_of_whole(*state, &params, &tokens, 64);
    struct llm_context *context = open_context(*state, &params);
    assert_int_equal(decode_range(context, &tokens, 0, 0, 128, 64), LLM_DECODED);
    struct tokens other = {0}; /* something else in the place of the last third */
    for (size_t i = 0; i < tokens.len; i++) tokens_push(&other, tokens.v[i < 128 ? i : tokens.len - 1 - i]);
    assert_int_equal(decode_range(context, &other, 0, 128, 190, 10), LLM_DECODED);
    assert_true(llm_seq_cut(context, 0, 128));
    assert_int_equal(llm_seq_end(context, 0), 128);
    float *again = logits_after(context, *state, &tokens, 0, 128, 192, 64);
    assert_memory_equal(plain, again, (size_t)llm_model_info(*state)->n_vocab * sizeof *plain);
    llm_context_close(context);
    tokens_release(&other);
    tokens_release(&tokens);
    free(plain);
    free(again);
}

static void sequences_in_one_batch_do_not_mix(void **state)
{
    struct tokens tokens = prompt_of(*state, 40);
    for (int unified = 0; unified < 2; unified++) {
        struct llm_context_params params = context_params(256, 2);
        params.unified = unified == 1;
        int32_t n_vocab = llm_model_info(*state)->n_vocab;
        struct llm_context *context = open_context(*state, &params);
        struct llm_batch_token batch[60];
        for (int32_t i = 0; i < 20; i++)
            batch[i] = (struct llm_batch_token){.token = tokens.v[i], .pos = i, .logits = i == 19};
        for (int32_t i = 0; i < 40; i++)
            batch[20 + i] = (struct llm_batch_token){.token = tokens.v[39 - i], .pos = i, .seq = 1, .logits = i == 39};
        assert_int_equal(llm_decode(context, batch, 60), LLM_DECODED);
        int32_t first = argmax(llm_logits(context, 19), n_vocab), second = argmax(llm_logits(context, 59), n_vocab);
        llm_seq_clear(context, 0);
        assert_int_equal(llm_seq_end(context, 0), 0);
        assert_int_equal(llm_seq_end(context, 1), 40);
        llm_seq_clear(context, 1);
        assert_int_equal(llm_decode(context, batch, 20), LLM_DECODED);
        assert_int_equal(argmax(llm_logits(context, 19), n_vocab), first);
        assert_int_equal(llm_decode(context, batch + 20, 40), LLM_DECODED);
        assert_int_equal(argmax(llm_logits(context, 39), n_vocab), second);
        llm_context_close(context);
    }
    tokens_release(&tokens);
}

static void every_sequence_holds_exactly_its_window(void **state)
{
    enum { WINDOW = 300, N_SEQ = 3 };
    struct tokens tokens = prompt_of(*state, WINDOW + 1);
    for (int unified = 0; unified < 2; unified++) {
        struct llm_context_params params = context_params(WINDOW, N_SEQ);
        params.unified = unified == 1;
        params.threads.n = 2;
        struct llm_context *context = open_context(*state, &params);
        for (int32_t seq = 0; seq < N_SEQ; seq++) {
            assert_int_equal(decode_range(context, &tokens, seq, 0, WINDOW, 128), LLM_DECODED);
            assert_int_equal(decode_range(context, &tokens, seq, WINDOW, WINDOW + 1, 1), LLM_REFUSED);
            assert_int_equal(llm_seq_end(context, seq), WINDOW);
        }
        llm_context_close(context);
    }
    tokens_release(&tokens);
}

static void invalid_batch_tokens_are_refused_and_change_nothing(void **state)
{
    struct tokens tokens = prompt_of(*state, 10);
    struct llm_context_params params = context_params(256, 2);
    params.unified = true;
    params.n_batch = 64;
    struct llm_context *context = open_context(*state, &params);
    assert_int_equal(decode_range(context, &tokens, 0, 0, 10, 10), LLM_DECODED);
    const struct llm_batch_token bad[] = {
        {.token = -1, .pos = 10},
        {.token = llm_model_info(*state)->n_vocab, .pos = 10},
        {.token = 5, .pos = 10, .seq = 2},
        {.token = 5, .pos = 0, .seq = -1},
        {.token = 5, .pos = 12}, /* a gap */
        {.token = 5, .pos = 9},  /* taken */
        {.token = 5, .pos = -1},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(llm_decode(context, &bad[i], 1), LLM_REFUSED);
    struct llm_batch_token many[65];
    for (int32_t i = 0; i < 65; i++) many[i] = (struct llm_batch_token){.token = 5, .pos = i, .seq = 1};
    assert_int_equal(llm_decode(context, many, 65), LLM_REFUSED);
    assert_int_equal(llm_decode(context, many, 0), LLM_REFUSED);
    assert_int_equal(llm_seq_end(context, 0), 10);
    assert_int_equal(llm_seq_end(context, 1), 0);
    assert_int_equal(llm_decode(context, many, 64), LLM_DECODED);
    llm_context_close(context);
    tokens_release(&tokens);
}

static void cuts_at_and_past_the_ends_are_harmless(void **state)
{
    struct tokens tokens = prompt_of(*state, 20);
    struct llm_context_params params = context_params(256, 1);
    struct llm_context *context = open_context(*state, &params);
    assert_true(llm_seq_cut(context, 0, 0));
    assert_true(llm_seq_cut(context, 0, 5));
    assert_int_equal(decode_range(context, &tokens, 0, 0, 20, 20), LLM_DECODED);
    assert_true(llm_seq_cut(context, 0, 20));
    assert_true(llm_seq_cut(context, 0, 100));
    assert_int_equal(llm_seq_end(context, 0), 20);
    assert_true(llm_seq_cut(context, 0, 0));
    assert_int_equal(llm_seq_end(context, 0), 0);
    llm_context_close(context);
    tokens_release(&tokens);
}

static bool is_set(void *ud)
{
    return atomic_load((_Atomic bool *)ud);
}

static void the_abort_callback_ends_a_decode(void **state)
{
    _Atomic bool stop = false;
    struct tokens tokens = prompt_of(*state, 100);
    struct llm_context_params params = context_params(256, 1);
    params.abort = is_set;
    params.ud = &stop;
    params.threads.n = 2;
    struct llm_context *context = open_context(*state, &params);
    assert_int_equal(decode_range(context, &tokens, 0, 0, 40, 40), LLM_DECODED);
    atomic_store(&stop, true);
    assert_int_equal(decode_range(context, &tokens, 0, 40, 100, 60), LLM_ABORTED);
    assert_int_equal(llm_seq_end(context, 0), 40);
    atomic_store(&stop, false);
    assert_int_equal(decode_range(context, &tokens, 0, 40, 100, 60), LLM_DECODED);
    llm_context_close(context);
    tokens_release(&tokens);
}

/* ---- Memory ---- */

static double cpu_seconds(void)
{
    struct timespec used;
    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used), 0);
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

static void nothing_is_computed_between_decodes(void **state)
{
    struct tokens tokens = prompt_of(*state, 200);
    struct llm_context_params params = context_params(256, 1);
    params.threads.n = 2;
    struct llm_context *context = open_context(*state, &params);
    assert_int_equal(decode_range(context, &tokens, 0, 0, 200, 100), LLM_DECODED);
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond;
    clock_cond_init(&cond);
    pthread_mutex_lock(&mutex);
    double before = cpu_seconds();
    int64_t deadline = clock_now(clock_monotonic()) + clock_from_ms(500);
    while (clock_now(clock_monotonic()) < deadline) clock_monotonic()->wait(clock_monotonic(), &cond, &mutex, deadline);
    assert_true(cpu_seconds() - before < 0.01);
    pthread_mutex_unlock(&mutex);
    pthread_cond_destroy(&cond);
    llm_context_close(context);
    tokens_release(&tokens);
}

static void the_reported_memory_is_what_the_shape_of_the_cells_demands(void **state)
{
    const struct llm_model_info *info = llm_model_info(*state);
    static const char *const types[] = {"f16", "f32", "q8_0"};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct llm_context_params params = context_params(2048, 4);
        params.type_k = params.type_v = types[i];
        struct llm_context *context = open_context(*state, &params);
        struct llm_memory memory = llm_context_memory(context);
        double formula = 0;
        for (int32_t layer = 0; layer < info->n_layer; layer++)
            formula += (double)info->n_head_kv[layer] * (info->n_embd_head_k + info->n_embd_head_v);
        formula *= llm_type_bytes(types[i]) * 2048 * 4;
        assert_true(fabs((double)memory.cells - formula) < 0.02 * formula);
        assert_true(memory.compute > 0);
        assert_true(fabs((double)memory.weights - (double)info->size_bytes) < 0.1 * (double)info->size_bytes);
        llm_context_close(context);
    }
}

static void free_memory_is_known_and_bounded_by_the_machine(void **state)
{
    (void)state;
    uint64_t all = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    assert_in_range(llm_free_memory(false), 1, all);
    assert_int_equal(llm_free_memory(true) > 0, llm_has_gpu());
}

static void cell_types_have_their_size(void **state)
{
    (void)state;
    assert_float_equal(llm_type_bytes("auto"), 2, 0);
    assert_float_equal(llm_type_bytes("f32"), 4, 0);
    assert_float_equal(llm_type_bytes("bf16"), 2, 0);
    assert_float_equal(llm_type_bytes("q8_0"), 34.0 / 32, 1e-9);
    assert_float_equal(llm_type_bytes("q4_0"), 18.0 / 32, 1e-9);
    assert_float_equal(llm_type_bytes("q9_9"), 0, 0);
}

/* llama.cpp's own numbers, which files and other programs know. */
static void names_of_cell_types_are_llama_cpps_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int number;
    } types[] = {{"f32", 0},  {"f16", 1},  {"q4_0", 2},    {"q4_1", 3},  {"q5_0", 6},
                 {"q5_1", 7}, {"q8_0", 8}, {"iq4_nl", 20}, {"bf16", 30}, {"auto", -1}};
    size_t n_choices = 1;
    for (const char *c = config_row_find("models.*.cache_type_k")->choices; *c != '\0'; c++) n_choices += *c == '|';
    assert_int_equal(n_choices, sizeof types / sizeof *types); /* all choices of the configuration */
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        hearth_error error;
        struct llama_context_params usual = llama_context_default_params(), keys = usual, values = usual;
        struct llm_context_params params = context_params(256, 1);
        bool automatic = types[i].number < 0;
        keys.type_k = values.type_v = GGML_TYPE_COUNT;
        params.type_k = types[i].name;
        assert_int_equal(llm_translate_cells(&keys, &params, &error), HEARTH_OK);
        assert_int_equal(keys.type_k, automatic ? (int)usual.type_k : types[i].number);
        assert_int_equal(keys.type_v, GGML_TYPE_F16);
        params.type_k = "f32";
        params.type_v = types[i].name;
        assert_int_equal(llm_translate_cells(&values, &params, &error), HEARTH_OK);
        assert_int_equal(values.type_v, automatic ? (int)usual.type_v : types[i].number);
        assert_int_equal(values.type_k, GGML_TYPE_F32);
    }
}

/* ---- Opening ---- */

static void refuse(struct llm_model *model, const struct llm_context_params *params, hearth_code code,
                   const char *expected)
{
    hearth_error error = {0};
    assert_null(llm_context_open(model, params, &error));
    if (strstr(error.message, expected) == NULL) fail_msg("'%s' does not say '%s'", error.message, expected);
    assert_int_equal(error.code, code);
    assert_null(strchr(error.message, '\n'));
}

static void contradictory_parameters_are_refused_by_name(void **state)
{
    struct llm_context_params params = context_params(256, 1);
    params.type_v = "q8_0";
    params.flash_attention = "off";
    refuse(*state, &params, HEARTH_INVALID, "need flash attention");
    params = context_params(256, 1);
    params.type_k = "q9_9";
    refuse(*state, &params, HEARTH_INVALID, "q9_9");
    params = context_params(256, 1);
    params.flash_attention = "maybe";
    refuse(*state, &params, HEARTH_INVALID, "maybe");
    params = context_params(256, 1);
    params.rope_scaling = "logarithmic";
    refuse(*state, &params, HEARTH_INVALID, "logarithmic");
    params = context_params(256, 100000);
    refuse(*state, &params, HEARTH_INVALID, "n_seq_max");
    params = context_params(0, 1);
    refuse(*state, &params, HEARTH_INVALID, "context_window");
    params = context_params(1 << 29, 64);
    refuse(*state, &params, HEARTH_INVALID, "more cells");
}

static void heads_that_are_no_whole_blocks_are_refused_by_name(void **state)
{
    (void)state;
    char *folder = folder_open(), *path = make_model(folder, "llama", "--head-dim 40");
    struct llm_model *model = open_model(path);
    struct llm_context_params params = context_params(256, 1);
    for (int on = 0; on < 2; on++) {
        params.flash_attention = on ? "on" : "off";
        params.type_k = "q8_0";
        refuse(model, &params, HEARTH_INVALID, "cache_type_k cannot be q8_0: the model's heads have 40 elements");
        params.type_k = "f16";
    }
    params.type_v = "iq4_nl";
    refuse(model, &params, HEARTH_INVALID, "cache_type_v cannot be iq4_nl");
    llm_model_close(model);
    free(path);
    folder_remove(folder);
}

/* llama.cpp expects as many outputs as sequences, and would end the process with a smaller batch. */
static void there_may_be_more_sequences_than_tokens_of_a_batch(void **state)
{
    struct tokens tokens = prompt_of(*state, 40);
    for (int unified = 0; unified < 2; unified++) {
        struct llm_context_params params = context_params(16, 40);
        params.n_batch = params.n_ubatch = 2;
        params.unified = unified == 1;
        struct llm_context *context = open_context(*state, &params);
        assert_int_equal(decode_range(context, &tokens, 39, 0, 16, 2), LLM_DECODED);
        llm_context_close(context);
    }
    tokens_release(&tokens);
}

/* Threads that share a CPU wait for each other in time slices: 64 of them took minutes for these tokens. */
static void there_are_no_more_threads_than_cpus(void **state)
{
    struct tokens tokens = prompt_of(*state, 200);
    struct llm_context_params params = context_params(256, 1);
    params.threads.n = 64;
    struct llm_context *context = open_context(*state, &params);
    assert_in_range(context->translated.n_threads, 1, llm_count_threads(&(struct llm_threads){.n = 1024}));
    assert_int_equal(decode_range(context, &tokens, 0, 0, 200, 10), LLM_DECODED);
    llm_context_close(context);
    tokens_release(&tokens);
}

static void cells_that_memory_cannot_hold_are_refused_with_numbers(void **state)
{
    struct llm_context_params params = context_params(1 << 28, 7);
    params.type_k = params.type_v = "f32";
    refuse(*state, &params, HEARTH_NO_MEMORY, "7 sequences of 268435456 tokens");
}

static void quantised_cells_decode(void **state)
{
    struct tokens tokens = prompt_of(*state, 50);
    struct llm_context_params params = context_params(256, 1);
    params.type_k = params.type_v = "q8_0";
    struct llm_context *context = open_context(*state, &params);
    assert_true(llm_flash_attention(context));
    assert_int_equal(decode_range(context, &tokens, 0, 0, 50, 50), LLM_DECODED);
    llm_context_close(context);
    tokens_release(&tokens);
}

static void flash_attention_is_reported_as_resolved(void **state)
{
    struct llm_context_params params = context_params(256, 1);
    static const struct {
        const char *asked;
        bool got;
    } cases[] = {{"auto", true}, {"on", true}, {"off", false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        params.flash_attention = cases[i].asked;
        struct llm_context *context = open_context(*state, &params);
        assert_int_equal(llm_flash_attention(context), cases[i].got);
        llm_context_close(context);
    }
}

static void scaling_extends_the_trained_context_to_the_window(void **state)
{
    struct tokens tokens = prompt_of(*state, 60);
    int32_t trained = llm_model_info(*state)->n_ctx_train;
    size_t size = (size_t)llm_model_info(*state)->n_vocab * sizeof(float);
    struct llm_context_params params = context_params(4 * trained, 1);
    float *plain = logits_of_whole(*state, &params, &tokens, 60);
    params.rope_scaling = "linear";
    float *stretched = logits_of_whole(*state, &params, &tokens, 60);
    params.rope_freq_scale = 0.25;
    float *given = logits_of_whole(*state, &params, &tokens, 60);
    assert_memory_not_equal(plain, stretched, size);
    assert_memory_equal(stretched, given, size);
    free(plain);
    free(stretched);
    free(given);
    tokens_release(&tokens);
}

/* ---- */

static int set_up(void **state)
{
    hearth_error error;
    llm_init();
    *state = open_demo();
    return log_open(NULL, "error", "text", &error);
}

static int tear_down(void **state)
{
    llm_model_close(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prompt_in_one_chunk_and_in_several_has_the_same_likeliest_token),
        cmocka_unit_test(a_cut_sequence_continues_bit_for_bit_as_if_nothing_had_been_there),
        cmocka_unit_test(sequences_in_one_batch_do_not_mix),
        cmocka_unit_test(every_sequence_holds_exactly_its_window),
        cmocka_unit_test(invalid_batch_tokens_are_refused_and_change_nothing),
        cmocka_unit_test(cuts_at_and_past_the_ends_are_harmless),
        cmocka_unit_test(the_abort_callback_ends_a_decode),
        cmocka_unit_test(nothing_is_computed_between_decodes),
        cmocka_unit_test(the_reported_memory_is_what_the_shape_of_the_cells_demands),
        cmocka_unit_test(free_memory_is_known_and_bounded_by_the_machine),
        cmocka_unit_test(cell_types_have_their_size),
        cmocka_unit_test(names_of_cell_types_are_llama_cpps_numbers),
        cmocka_unit_test(contradictory_parameters_are_refused_by_name),
        cmocka_unit_test(heads_that_are_no_whole_blocks_are_refused_by_name),
        cmocka_unit_test(there_may_be_more_sequences_than_tokens_of_a_batch),
        cmocka_unit_test(there_are_no_more_threads_than_cpus),
        cmocka_unit_test(cells_that_memory_cannot_hold_are_refused_with_numbers),
        cmocka_unit_test(quantised_cells_decode),
        cmocka_unit_test(flash_attention_is_reported_as_resolved),
        cmocka_unit_test(scaling_extends_the_trained_context_to_the_window),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
