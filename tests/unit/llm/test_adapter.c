/* LoRA adapters: they change logits, can be switched off again, and invalid files are refused. */
#include "support.h"

#include "base/log.h"
#include "llm/adapter.h"

#include <gguf.h>

static char *folder, *model_path, *paths[2];
static struct llm_model *model;
static struct llm_adapter *adapters[2];

static char *make_adapter(const char *for_model, const char *name, const char *options)
{
    char *path = mem_format("%s/%s.gguf", folder, name);
    char *command = mem_format("'%s/bin/hearth-mkmodel' --lora-for '%s' %s -o '%s' >/dev/null", env("HEARTH_BUILD"),
                               for_model, options, path);
    run(command);
    free(command);
    return path;
}

/* ---- Effect ---- */

static void adapt(struct llm_context *context, double first, double second)
{
    llm_adapt(context, &(struct llm_adapters){adapters, (const double[]){first, second}, 2});
}

static float *logits_under(struct llm_context *context, const struct tokens *tokens)
{
    llm_seq_clear(context, 0);
    return logits_after(context, model, tokens, 0, 0, (int32_t)tokens->len, 128);
}

static void each_set_gives_logits_of_its_own_and_the_same_ones_again_bit_for_bit(void **state)
{
    (void)state;
    enum { SETS = 5 };
    static const double sets[SETS][2] = {{0, 0}, {1, 0}, {0, 1}, {1, 1}, {0.5, -1}};
    struct llm_context_params params = context_params(256, 1);
    struct llm_context *context = open_context(model, &params);
    struct tokens tokens = prompt_of(model, 60);
    size_t size = (size_t)llm_model_info(model)->n_vocab * sizeof(float);
    float *first[SETS];
    for (int i = 0; i < SETS; i++) {
        adapt(context, sets[i][0], sets[i][1]);
        first[i] = logits_under(context, &tokens);
        for (int k = 0; k < i; k++) assert_memory_not_equal(first[i], first[k], size);
    }
    for (int i = SETS - 1; i >= 0; i--) {
        adapt(context, sets[i][0], sets[i][1]);
        float *again = logits_under(context, &tokens);
        assert_memory_equal(again, first[i], size);
        free(again);
    }
    llm_adapt(context, &(struct llm_adapters){adapters, NULL, 2}); /* all off: by scales of NULL */
    float *bare = logits_under(context, &tokens);
    assert_memory_equal(bare, first[0], size);
    free(bare);
    for (int i = 0; i < SETS; i++) free(first[i]);
    tokens_release(&tokens);
    llm_context_close(context);
}

static void an_adapter_changes_the_models_output(void **state)
{
    (void)state;
    struct llm_context_params params = context_params(256, 1);
    struct llm_context *context = open_context(model, &params);
    struct tokens tokens = prompt_of(model, 60);
    int32_t said[3], n_vocab = llm_model_info(model)->n_vocab;
    for (int i = 0; i < 3; i++) {
        adapt(context, i == 1, i == 2);
        float *logits = logits_under(context, &tokens);
        said[i] = argmax(logits, n_vocab);
        free(logits);
    }
    assert_true(said[0] != said[1] && said[1] != said[2] && said[0] != said[2]);
    tokens_release(&tokens);
    llm_context_close(context);
}

/* ---- Refusals ---- */

static void refuse(const char *path, hearth_code code, const char *expected)
{
    hearth_error error = {0};
    assert_null(llm_adapter_open(model, path, &error));
    if (strstr(error.message, expected) == NULL) fail_msg("'%s' does not say '%s'", error.message, expected);
    assert_int_equal(error.code, code);
    assert_null(strchr(error.message, '\n'));
}

static void what_is_no_adapter_is_refused(void **state)
{
    (void)state;
    refuse("/nonexistent/a.gguf", HEARTH_NOT_FOUND, "/nonexistent/a.gguf");
    refuse(model_path, HEARTH_INVALID, "is not a LoRA adapter");
}

static void a_truncated_adapter_is_refused(void **state)
{
    (void)state;
    char *path = make_adapter(model_path, "short", "");
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size - 100), 0);
    refuse(path, HEARTH_IO, "truncated");
    free(path);
}

static void an_adapter_for_another_model_is_refused(void **state)
{
    (void)state;
    char *other = make_model(folder, "qwen3", ""), *wide = mem_format("%s/wide.gguf", folder);
    char *path = make_adapter(other, "for-qwen3", "");
    refuse(path, HEARTH_INVALID, "for models of the architecture 'qwen3', not 'llama'");
    char *command = mem_format("'%s/bin/hearth-mkmodel' --arch llama --vocab '%s/models/demo.gguf' --embd 128 -o '%s'",
                               env("HEARTH_BUILD"), env("HEARTH_SOURCE"), wide);
    run(command);
    char *for_wide = make_adapter(wide, "for-wide", "");
    refuse(for_wide, HEARTH_INVALID, "shape");
    free(command);
    free(for_wide);
    free(path);
    free(wide);
    free(other);
}

/* The adapter with one change. */
static char *spoil(const char *name, void (*change)(struct gguf_context *file))
{
    char *path = mem_format("%s/%s.gguf", folder, name);
    struct ggml_context *data = NULL;
    struct gguf_context *file = gguf_init_from_file(paths[0], (struct gguf_init_params){.ctx = &data});
    struct gguf_context *copy = gguf_init_empty();
    assert_non_null(file);
    gguf_set_kv(copy, file);
    for (struct ggml_tensor *t = ggml_get_first_tensor(data); t != NULL; t = ggml_get_next_tensor(data, t))
        if (gguf_find_tensor(file, t->name) >= 0) gguf_add_tensor(copy, t);
    change(copy);
    assert_true(gguf_write_to_file(copy, path, false));
    gguf_free(copy);
    gguf_free(file);
    ggml_free(data);
    return path;
}

static void make_alpha_a_text(struct gguf_context *file)
{
    gguf_set_val_str(file, "adapter.lora.alpha", "strong");
}

static void make_it_begin_later(struct gguf_context *file)
{
    uint32_t token = 1;
    gguf_set_arr_data(file, "adapter.alora.invocation_tokens", GGUF_TYPE_UINT32, &token, 1);
}

static void make_it_of_numbers(struct gguf_context *file)
{
    gguf_set_tensor_type(file, "blk.0.attn_q.weight.lora_a", GGML_TYPE_I32);
}

/* llama.cpp would end the process, or not notice. */
static void what_llama_cpp_does_not_check_is_refused(void **state)
{
    (void)state;
    char *alpha = spoil("alpha", make_alpha_a_text), *later = spoil("later", make_it_begin_later);
    char *numbers = spoil("numbers", make_it_of_numbers);
    refuse(alpha, HEARTH_INVALID, "alpha");
    refuse(later, HEARTH_UNSUPPORTED, "aLoRA");
    refuse(numbers, HEARTH_INVALID, "blk.0.attn_q.weight.lora_a");
    free(alpha);
    free(later);
    free(numbers);
}

/* ---- */

static int set_up(void **state)
{
    (void)state;
    hearth_error error;
    llm_init();
    log_open(NULL, "error", "text", &error);
    folder = folder_open();
    model_path = make_model(folder, "llama", "");
    model = open_model(model_path);
    for (int i = 0; i < 2; i++) {
        char *options = mem_format("--rank %d --seed %d", 4 + i, 5 + i), *name = mem_format("adapter-%d", i);
        paths[i] = make_adapter(model_path, name, options);
        adapters[i] = llm_adapter_open(model, paths[i], &error);
        if (adapters[i] == NULL) fail_msg("%s", error.message);
        free(options);
        free(name);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        llm_adapter_close(adapters[i]);
        free(paths[i]);
    }
    llm_model_close(model);
    free(model_path);
    folder_remove(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_set_gives_logits_of_its_own_and_the_same_ones_again_bit_for_bit),
        cmocka_unit_test(an_adapter_changes_the_models_output),
        cmocka_unit_test(what_is_no_adapter_is_refused),
        cmocka_unit_test(a_truncated_adapter_is_refused),
        cmocka_unit_test(an_adapter_for_another_model_is_refused),
        cmocka_unit_test(what_llama_cpp_does_not_check_is_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
