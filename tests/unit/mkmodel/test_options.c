/* The options of hearth-mkmodel: sizes, tokenizer and template, refusals. */
#include "support.h"

/* ---- Options ---- */

static void lengths_are_those_of_the_options(void **state)
{
    (void)state;
    char *path = WRITE("sizes.gguf", "--arch", "qwen3moe", "--layers", "3", "--embd", "96", "--heads", "6",
                       "--kv-heads", "3", "--head-dim", "16", "--ff", "32", "--ctx", "777", "--experts", "5");
    struct gguf_context *gguf = open_gguf(path);
    assert_int_equal(u32_of(gguf, "qwen3moe.attention.key_length"), 16);
    assert_int_equal(u32_of(gguf, "qwen3moe.expert_feed_forward_length"), 32);
    assert_int_equal(u32_of(gguf, "qwen3moe.expert_count"), 5);
    gguf_free(gguf);
    struct llama_model *model = load(path);
    assert_int_equal(llama_model_n_layer(model), 3);
    assert_int_equal(llama_model_n_embd(model), 96);
    assert_int_equal(llama_model_n_head(model), 6);
    assert_int_equal(llama_model_n_head_kv(model), 3);
    assert_int_equal(llama_model_n_ctx_train(model), 777);
    llama_token out[DECODED];
    generate(model, PROMPT, out, DECODED);
    llama_model_free(model);
    free(path);
}

static void the_window_is_that_of_the_option(void **state)
{
    (void)state;
    char *path = WRITE("window.gguf", "--arch", "gemma3", "--swa", "48");
    struct llama_model *model = load(path);
    assert_int_equal(llama_model_n_swa(model), 48);
    llama_model_free(model);
    free(path);
}

/* ---- Tokenizer and template ---- */

static size_t value_size(const struct gguf_context *gguf, int64_t id)
{
    enum gguf_type type = gguf_get_kv_type(gguf, id);
    return type == GGUF_TYPE_BOOL ? 1 : type == GGUF_TYPE_ARRAY || type == GGUF_TYPE_STRING ? 0 : 4;
}

static void assert_same_array(const struct gguf_context *a, int64_t ia, const struct gguf_context *b, int64_t ib)
{
    size_t n = gguf_get_arr_n(a, ia);
    assert_int_equal(gguf_get_arr_n(b, ib), n);
    assert_int_equal(gguf_get_arr_type(b, ib), gguf_get_arr_type(a, ia));
    if (gguf_get_arr_type(a, ia) != GGUF_TYPE_STRING) {
        assert_memory_equal(gguf_get_arr_data(a, ia), gguf_get_arr_data(b, ib), n * 4); /* i32 and f32 */
        return;
    }
    for (size_t i = 0; i < n; i++) assert_string_equal(gguf_get_arr_str(a, ia, i), gguf_get_arr_str(b, ib, i));
}

static void every_key_of_the_tokenizer_is_copied(void **state)
{
    (void)state;
    char *path = write_arch("llama");
    struct gguf_context *from = open_gguf(demo), *to = open_gguf(path);
    int copied = 0;
    for (int64_t i = 0; i < gguf_get_n_kv(from); i++) {
        const char *name = gguf_get_key(from, i);
        if (strncmp(name, "tokenizer.", 10) != 0) continue;
        int64_t id = gguf_find_key(to, name);
        if (id < 0) fail_msg("%s was not copied", name);
        enum gguf_type type = gguf_get_kv_type(from, i);
        assert_int_equal(gguf_get_kv_type(to, id), type);
        if (type == GGUF_TYPE_ARRAY) {
            assert_same_array(from, i, to, id);
        } else if (type == GGUF_TYPE_STRING) {
            assert_string_equal(gguf_get_val_str(from, i), gguf_get_val_str(to, id));
        } else {
            assert_memory_equal(gguf_get_val_data(from, i), gguf_get_val_data(to, id), value_size(from, i));
        }
        copied++;
    }
    assert_true(copied >= 5);
    gguf_free(from);
    gguf_free(to);
    free(path);
}

static void the_template_of_the_option_replaces_the_vocabularys_own(void **state)
{
    (void)state;
    const char *text = "{% for m in messages %}{{ m.content }}\n{% endfor %}";
    char *file = in_folder("template.jinja");
    FILE *out = fopen(file, "wb");
    assert_non_null(out);
    fputs(text, out);
    fclose(out);

    char *own = write_arch("llama");
    char *other = WRITE("template.gguf", "--arch", "llama", "--template", file);
    struct llama_model *with_own = load(own), *with_other = load(other);
    assert_non_null(strstr(llama_model_chat_template(with_own, NULL), "<|im_start|>"));
    assert_string_equal(llama_model_chat_template(with_other, NULL), text);
    llama_model_free(with_own);
    llama_model_free(with_other);
    free(own);
    free(other);
    free(file);
}

static void a_vocabulary_can_be_named_and_its_folder_given(void **state)
{
    (void)state;
    char *path = in_folder("named.gguf");
    struct outcome outcome = RUN("--arch", "bert", "--vocab", "bert-bge", "-o", path);
    assert_string_equal(outcome.err, "");
    assert_int_equal(outcome.code, 0);
    release_outcome(&outcome);
    struct llama_model *model = load(path);
    assert_int_equal(llama_vocab_type(llama_model_get_vocab(model)), LLAMA_VOCAB_TYPE_WPM);
    llama_model_free(model);

    char *link = in_folder("ggml-vocab-mine.gguf");
    assert_int_equal(symlink(demo, link), 0);
    setenv("HEARTH_VOCAB_DIR", folder, 1);
    outcome = RUN("--arch", "llama", "--vocab", "mine", "-o", path);
    unsetenv("HEARTH_VOCAB_DIR");
    assert_int_equal(outcome.code, 0);
    release_outcome(&outcome);
    free(link);
    free(path);
}

/* ---- Errors ---- */

/* One line that contains `text`, the exit code, and no file. */
static void assert_refused(struct outcome outcome, int code, const char *text)
{
    assert_int_equal(outcome.code, code);
    if (strstr(outcome.err, text) == NULL) fail_msg("'%s' is not in: %s", text, outcome.err);
    char *end = strchr(outcome.err, '\n');
    assert_non_null(end);
    assert_string_equal(end, "\n");
    release_outcome(&outcome);
}

static void bad_usage_is_refused_with_exit_code_2(void **state)
{
    (void)state;
    char *path = in_folder("never.gguf");
#define MODEL "--vocab", demo, "-o", path
    assert_refused(RUN("--arch", "bogus", MODEL), 2, "unknown architecture 'bogus'");
    assert_refused(RUN("--arch", "llama", "--vocab", demo), 2, "-o OUT.gguf is missing");
    assert_refused(RUN("--arch", "llama", "-o", path), 2, "--vocab V is missing");
    assert_refused(RUN(MODEL), 2, "--arch A is missing");
    assert_refused(RUN("--arch", "llama", "--bogus", MODEL), 2, "unknown option --bogus");
    assert_refused(RUN("--arch", "llama", MODEL, "--seed"), 2, "--seed needs a value");
    assert_refused(RUN("--arch", "llama", MODEL, "extra"), 2, "unexpected argument 'extra'");
    assert_refused(RUN("--arch", "llama", "--layers", "many", MODEL), 2, "--layers must be a number");
    assert_refused(RUN("--arch", "llama", "--layers", "0", MODEL), 2, "--layers must be a number");
    assert_refused(RUN("--arch", "llama", "--type", "q2", MODEL), 2, "unknown type 'q2'");
    assert_refused(RUN("--arch", "llama", "--experts", "4", MODEL), 2, "leave it out");
    assert_refused(RUN("--arch", "qwen3", "--heads", "3", MODEL), 2, "not a multiple of --kv-heads");
    assert_refused(RUN("--arch", "llama", "--embd", "100", MODEL), 2, "multiple of 32");
    assert_refused(RUN("--arch", "qwen2vl", "--head-dim", "64", MODEL), 2, "--heads x --head-dim");
    assert_refused(RUN("--arch", "lfm2", "--layers", "1", MODEL), 2, "needs --layers 2");
    assert_refused(RUN("--arch", "llama", "--head-dim", "12", MODEL), 2, "--head-dim");
    assert_refused(RUN("--lora-for", demo), 2, "-o OUT.gguf is missing");
    assert_refused(RUN("--lora-for", demo, "--rank", "0", "-o", path), 2, "--rank must be a number");
    assert_refused(RUN("--mmproj", "bogus", "--for", demo, "-o", path), 2, "unknown kind of projector 'bogus'");
    assert_refused(RUN("--mmproj", "llava", "-o", path), 2, "--for MODEL.gguf is missing");
    assert_refused(RUN("--for", demo, "-o", path), 2, "--mmproj K is missing");
    assert_refused(RUN("--mmproj", "llava", "--for", demo), 2, "-o OUT.gguf is missing");
    assert_false(exists(path));
    free(path);
}

static void what_cannot_be_read_or_written_fails_with_exit_code_1(void **state)
{
    (void)state;
    char *path = in_folder("never.gguf"), *part = in_folder("never.gguf.part");
    char *text = in_folder("not-a-model.gguf");
    FILE *out = fopen(text, "wb");
    assert_non_null(out);
    fputs("not a model", out);
    fclose(out);
    assert_refused(RUN("--arch", "llama", "--vocab", "/nowhere/v.gguf", "-o", path), 1, "cannot open the vocabulary");
    assert_refused(RUN("--lora-for", "/nowhere/m.gguf", "-o", path), 1, "give --lora-for another file");
    assert_refused(RUN("--mmproj", "llava", "--for", text, "-o", path), 1, "give --for another file");
    assert_refused(RUN("--mmproj", "llava", "--for", demo, "-o", "/nowhere/o.gguf"), 1, "cannot create");
    assert_refused(RUN("--arch", "llama", "--vocab", "no-such-name", "-o", path), 1, "ggml-vocab-no-such-name.gguf");
    assert_refused(RUN("--arch", "llama", "--vocab", text, "-o", path), 1, "not a GGUF file with a tokenizer");
    assert_refused(RUN("--arch", "llama", MODEL, "--pooling", "rank"), 2, "--arch reranker");
    assert_refused(RUN("--arch", "llama", MODEL, "--template", "/nowhere/t"), 1, "cannot open the chat template");
    assert_refused(RUN("--arch", "llama", "--vocab", demo, "-o", "/nowhere/o.gguf"), 1, "cannot create");
    assert_false(exists(path));
    assert_int_equal(mkdir(path, 0700), 0); /* where a file cannot be renamed to */
    assert_refused(RUN("--arch", "llama", MODEL), 1, "into place");
    assert_false(exists(part));
    assert_int_equal(rmdir(path), 0);
    free(path);
    free(part);
    free(text);
}

static void help_names_every_architecture_and_projector_and_shows_examples(void **state)
{
    (void)state;
    struct outcome outcome = RUN("--help");
    assert_int_equal(outcome.code, 0);
    assert_string_equal(outcome.err, "");
    assert_non_null(strstr(outcome.out, "examples:"));
    for (int i = 0; i < ARCHS; i++) assert_non_null(strstr(outcome.out, expectations[i].arch));
    static const char *const kinds[] = {"  llava ", "  qwen2vl ", "  gemma3 ", "  audio ", "  whisper "};
    const char *projectors = strstr(outcome.out, "kinds of projectors:");
    assert_non_null(projectors);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) assert_non_null(strstr(projectors, kinds[i]));
    release_outcome(&outcome);
}

/* ---- Main ---- */

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_are_those_of_the_options),
        cmocka_unit_test(the_window_is_that_of_the_option),
        cmocka_unit_test(every_key_of_the_tokenizer_is_copied),
        cmocka_unit_test(the_template_of_the_option_replaces_the_vocabularys_own),
        cmocka_unit_test(a_vocabulary_can_be_named_and_its_folder_given),
        cmocka_unit_test(bad_usage_is_refused_with_exit_code_2),
        cmocka_unit_test(what_cannot_be_read_or_written_fails_with_exit_code_1),
        cmocka_unit_test(help_names_every_architecture_and_projector_and_shows_examples),
    };
    return cmocka_run_group_tests(tests, open_folder, remove_folder);
}
