/* Opening models, good and bad, and the tokenizer. */
#include "support.h"

#include "base/log.h"

static char *folder;

/* ---- Opening ---- */

static char *in_folder(const char *name)
{
    return mem_format("%s/%s", folder, name);
}

static char *read_demo(size_t *size)
{
    char *path = demo_path();
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    struct stat st;
    assert_int_equal(fstat(fileno(file), &st), 0);
    char *bytes = mem_alloc((size_t)st.st_size);
    *size = fread(bytes, 1, (size_t)st.st_size, file);
    fclose(file);
    free(path);
    return bytes;
}

static char *write_file(const char *name, const char *bytes, size_t size)
{
    char *path = in_folder(name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    fclose(file);
    return path;
}

/* Opens what must be refused: the message has one line, names the file and contains `expected`. Frees the path. */
static void refuse(char *path, hearth_code code, const char *expected)
{
    hearth_error error = {0};
    struct llm_model_params params = model_params(path);
    assert_null(llm_model_open(&params, &error));
    if (strstr(error.message, expected) == NULL) fail_msg("'%s' does not say '%s'", error.message, expected);
    assert_int_equal(error.code, code);
    assert_non_null(strstr(error.message, path));
    assert_null(strchr(error.message, '\n'));
    free(path);
}

static void a_missing_file_is_named(void **state)
{
    (void)state;
    refuse(in_folder("nothing.gguf"), HEARTH_NOT_FOUND, "No such file");
}

static void an_unreadable_file_is_reported_with_the_systems_reason(void **state)
{
    (void)state;
    char *demo = demo_path();
    refuse(mem_format("%s/below-a-file.gguf", demo), HEARTH_IO, "Not a directory");
    free(demo);
}

static void a_folder_is_not_a_model(void **state)
{
    (void)state;
    refuse(mem_strdup(folder), HEARTH_INVALID, "is a folder");
}

static void an_empty_file_is_not_a_model(void **state)
{
    (void)state;
    refuse(write_file("empty.gguf", "", 0), HEARTH_INVALID, "is empty");
}

static void a_file_without_the_magic_is_not_gguf(void **state)
{
    (void)state;
    refuse(write_file("text.gguf", "<html>not found</html>", 22), HEARTH_INVALID, "not a GGUF file");
    refuse(write_file("short.gguf", "GG", 2), HEARTH_INVALID, "not a GGUF file");
}

static void a_file_truncated_within_the_weights_is_reported_with_both_sizes(void **state)
{
    (void)state;
    size_t size;
    char *bytes = read_demo(&size);
    char *expected = mem_format("tensors end at byte %zu, the file at byte %zu", size, size - 1);
    refuse(write_file("cut.gguf", bytes, size - 1), HEARTH_IO, expected);
    free(expected);
    free(bytes);
}

static void a_file_cut_within_the_metadata_is_truncated(void **state)
{
    (void)state;
    size_t size;
    char *bytes = read_demo(&size);
    static const size_t lengths[] = {4, 20, 24, 25, 500, 5000};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        refuse(write_file("cut.gguf", bytes, lengths[i]), HEARTH_IO, "truncated or damaged");
    free(bytes);
}

static void an_unknown_architecture_is_named(void **state)
{
    (void)state;
    size_t size;
    char *bytes = read_demo(&size);
    char *key = memmem(bytes, 4096, "general.architecture", 20);
    assert_non_null(key);
    memcpy(key + 20 + 4 + 8, "qzxyw", 5); /* after the type and the length of "llama" */
    refuse(write_file("unknown.gguf", bytes, size), HEARTH_UNSUPPORTED, "architecture 'qzxyw'");
    free(bytes);
}

static void a_missing_key_is_reported_with_llama_cpps_reason(void **state)
{
    (void)state;
    size_t size;
    char *bytes = read_demo(&size);
    char *key = memmem(bytes, 4096, "llama.block_count", 17);
    assert_non_null(key);
    memcpy(key, "llama.bluck_count", 17);
    refuse(write_file("keyless.gguf", bytes, size), HEARTH_UNSUPPORTED, "llama.block_count");
    free(bytes);
}

static void a_vocabulary_is_not_a_model_but_opens_without_weights(void **state)
{
    (void)state;
    char *path = mem_format("%s/source/models/ggml-vocab-llama-bpe.gguf", env("HEARTH_LLAMA"));
    refuse(mem_strdup(path), HEARTH_INVALID, "no weights");
    hearth_error error = {0};
    struct llm_model_params params = model_params(path);
    params.weights = false;
    struct llm_model *model = llm_model_open(&params, &error);
    if (model == NULL) fail_msg("%s", error.message);
    assert_int_equal(llm_model_info(model)->n_vocab, 128256);
    assert_string_equal(llm_model_info(model)->bos_text, "<|begin_of_text|>");
    llm_model_close(model);
    free(path);
}

static bool abort_halfway(void *ud, float fraction)
{
    (*(int *)ud)++;
    return fraction < 0.5F;
}

static bool count_calls(void *ud, float fraction)
{
    assert_true(fraction >= 0 && fraction <= 1);
    (*(int *)ud)++;
    return true;
}

static void loading_reports_progress_and_can_be_aborted(void **state)
{
    (void)state;
    int calls = 0;
    hearth_error error = {0};
    char *path = demo_path();
    struct llm_model_params params = model_params(path);
    params.ud = &calls;
    params.progress = count_calls;
    struct llm_model *model = llm_model_open(&params, &error);
    assert_non_null(model);
    llm_model_close(model);
    assert_true(calls > 1);
    params.progress = abort_halfway;
    assert_null(llm_model_open(&params, &error));
    assert_int_equal(error.code, HEARTH_CANCELLED);
    assert_non_null(strstr(error.message, path));
    free(path);
}

static void an_unknown_split_mode_is_refused(void **state)
{
    (void)state;
    hearth_error error = {0};
    char *path = demo_path();
    struct llm_model_params params = model_params(path);
    params.split_mode = "diagonal";
    assert_null(llm_model_open(&params, &error));
    assert_int_equal(error.code, HEARTH_INVALID);
    assert_string_equal(error.param, "split_mode");
    free(path);
}

/* ---- Facts ---- */

static void the_demo_model_describes_itself(void **state)
{
    const struct llm_model_info *info = llm_model_info(*state);
    assert_string_equal(info->architecture, "llama");
    assert_string_equal(info->name, "hearth-demo");
    assert_int_equal(info->kind, HEARTH_KIND_DENSE);
    assert_string_equal(hearth_model_kind_name(info->kind), "dense");
    assert_true(info->has_decoder);
    assert_true(info->n_layer > 0 && info->n_embd > 0 && info->n_ctx_train > 0);
    assert_true(info->size_bytes > 1000000 && info->n_params > 1000000);
    assert_int_equal(info->n_swa, 0);
    assert_int_equal(info->n_expert, 0);
    assert_int_equal(info->n_embd_head_k, info->n_embd / info->n_head);
    for (int32_t i = 0; i < info->n_layer; i++) assert_true(info->n_head_kv[i] > 0);
    assert_non_null(info->chat_template);
    assert_true(info->eos_text[0] != '\0');
    assert_true(info->description[0] != '\0');
}

static void metadata_alone_gives_the_same_facts(void **state)
{
    const struct llm_model_info *loaded = llm_model_info(*state);
    hearth_error error = {0};
    char *path = demo_path();
    struct llm_model_params params = model_params(path);
    params.weights = false;
    struct llm_model *model = llm_model_open(&params, &error);
    assert_non_null(model);
    const struct llm_model_info *info = llm_model_info(model);
    assert_int_equal(info->size_bytes, loaded->size_bytes);
    assert_int_equal(info->n_params, loaded->n_params);
    assert_int_equal(info->n_layer, loaded->n_layer);
    assert_int_equal(info->n_ctx_train, loaded->n_ctx_train);
    assert_int_equal(info->n_head_kv[0], loaded->n_head_kv[0]);
    assert_string_equal(info->description, loaded->description);
    llm_model_close(model);
    free(path);
}

static void version_and_cpu_features_are_known(void **state)
{
    (void)state;
    assert_true(strchr(llm_version(), '.') != NULL);
    assert_null(strchr(llm_cpu_features(), '='));
#ifdef __x86_64__
    assert_non_null(strstr(llm_cpu_features(), "SSE3"));
#endif
}

/* ---- Tokens ---- */

static struct tokens tokenize(const struct llm_model *model, const char *text, bool parse_special)
{
    struct tokens tokens = {0};
    llm_tokenize(model, text, strlen(text), false, parse_special, &tokens);
    return tokens;
}

static struct buf detokenize(const struct llm_model *model, const struct tokens *tokens, bool special)
{
    struct buf text = {0};
    for (size_t i = 0; i < tokens->len; i++) llm_token_bytes(model, tokens->v[i], special, &text);
    return text;
}

static void text_survives_tokenising_and_detokenising(void **state)
{
    static const char *const texts[] = {"Hello, world!", "  two  spaces\n\n\ttab", "naïve café — 日本語 🙂",
                                        "a", "<|im_start|>user"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct tokens tokens = tokenize(*state, texts[i], false);
        struct buf text = detokenize(*state, &tokens, false);
        assert_string_equal(text.v, texts[i]);
        buf_release(&text);
        tokens_release(&tokens);
    }
}

static void tokens_are_appended(void **state)
{
    struct tokens tokens = {0};
    tokens_push(&tokens, 7);
    llm_tokenize(*state, "more", 4, false, false, &tokens);
    assert_int_equal(tokens.v[0], 7);
    assert_true(tokens.len > 1);
    size_t len = tokens.len;
    llm_tokenize(*state, "", 0, false, false, &tokens);
    assert_int_equal(tokens.len, len);
    tokens_release(&tokens);
}

static void megabytes_of_text_are_tokenised(void **state)
{
    size_t size = 3 << 20;
    char *text = mem_alloc(size);
    for (size_t i = 0; i < size; i++) text[i] = "the quick brown fox\n"[i % 20];
    struct tokens tokens = {0};
    llm_tokenize(*state, text, size, false, false, &tokens);
    struct buf back = detokenize(*state, &tokens, false);
    assert_int_equal(back.len, size);
    assert_memory_equal(back.v, text, size);
    buf_release(&back);
    tokens_release(&tokens);
    free(text);
}

static void special_tokens_are_parsed_only_on_request(void **state)
{
    const char *eos = llm_model_info(*state)->eos_text;
    struct tokens parsed = tokenize(*state, eos, true);
    struct tokens plain = tokenize(*state, eos, false);
    assert_int_equal(parsed.len, 1);
    assert_true(llm_token_ends_generation(*state, parsed.v[0]));
    assert_true(plain.len > 1);
    struct buf shown = detokenize(*state, &parsed, true), hidden = detokenize(*state, &parsed, false);
    assert_string_equal(shown.v, eos);
    assert_int_equal(hidden.len, 0);
    buf_release(&shown);
    buf_release(&hidden);
    tokens_release(&plain);
    tokens_release(&parsed);
}

/* ---- */

static int set_up(void **state)
{
    hearth_error error;
    llm_init();
    llm_init();
    folder = folder_open();
    char *log = in_folder("log");
    int code = log_open(log, "debug", "json", &error);
    free(log);
    *state = open_demo();
    return code;
}

static int tear_down(void **state)
{
    llm_model_close(*state);
    folder_remove(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_file_is_named),
        cmocka_unit_test(an_unreadable_file_is_reported_with_the_systems_reason),
        cmocka_unit_test(a_folder_is_not_a_model),
        cmocka_unit_test(an_empty_file_is_not_a_model),
        cmocka_unit_test(a_file_without_the_magic_is_not_gguf),
        cmocka_unit_test(a_file_truncated_within_the_weights_is_reported_with_both_sizes),
        cmocka_unit_test(a_file_cut_within_the_metadata_is_truncated),
        cmocka_unit_test(an_unknown_architecture_is_named),
        cmocka_unit_test(a_missing_key_is_reported_with_llama_cpps_reason),
        cmocka_unit_test(a_vocabulary_is_not_a_model_but_opens_without_weights),
        cmocka_unit_test(loading_reports_progress_and_can_be_aborted),
        cmocka_unit_test(an_unknown_split_mode_is_refused),
        cmocka_unit_test(the_demo_model_describes_itself),
        cmocka_unit_test(metadata_alone_gives_the_same_facts),
        cmocka_unit_test(version_and_cpu_features_are_known),
        cmocka_unit_test(text_survives_tokenising_and_detokenising),
        cmocka_unit_test(tokens_are_appended),
        cmocka_unit_test(megabytes_of_text_are_tokenised),
        cmocka_unit_test(special_tokens_are_parsed_only_on_request),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
