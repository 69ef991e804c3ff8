/* Fill-in-the-middle prompts, token for token: the order is llama-server's, the tokens are those of real vocabularies.
 */
#include "support.h"

#include "instance/requests/prepare.h"

#include <gguf.h>
#include <unistd.h>

/* Room for all there is. */
#define WIDE(handle)                                                                                                   \
    {                                                                                                                  \
        .weights = (handle), .name = "coder", .window = 4096, .n_batch = 512                                           \
    }
#define NARROW(handle)                                                                                                 \
    {                                                                                                                  \
        .weights = (handle), .name = "coder", .window = 1000, .n_batch = 64                                            \
    }

/* ---- Vocabularies ---- */

static char *vocabulary(const char *name)
{
    return mem_format("%s/source/models/ggml-vocab-%s.gguf", getenv("HEARTH_LLAMA"), name);
}

/* Takes ownership of the path. */
static struct llm_model *opened(char *path)
{
    hearth_error error;
    struct llm_model_params params = {.path = path, .split_mode = "layer"};
    llm_init();
    struct llm_model *weights = llm_model_open(&params, &error);
    if (weights == NULL) fail_msg("%s", error.message);
    free(path);
    return weights;
}

static int32_t token(const struct llm_model *weights, const char *text)
{
    struct tokens tokens = {0};
    llm_tokenize(weights, text, strlen(text), false, true, &tokens);
    if (tokens.len != 1) fail_msg("'%s' is %zu tokens", text, tokens.len);
    int32_t found = tokens.v[0];
    tokens_release(&tokens);
    return found;
}

/* refact's tokens; the key for its file token is the one that Qwen's models use. */
static struct llm_model *with_files(void)
{
    char *path = vocabulary("refact"), *made = mem_format("%s/refact-files-%d.gguf", getenv("HEARTH_BUILD"), getpid());
    struct llm_model *plain = opened(mem_strdup(path));
    struct gguf_context *file = gguf_init_from_file(path, (struct gguf_init_params){.no_alloc = true});
    assert_non_null(file);
    gguf_set_val_u32(file, "tokenizer.ggml.fim_sep_token_id", (uint32_t)token(plain, "<filename>"));
    assert_true(gguf_write_to_file(file, made, true));
    gguf_free(file);
    llm_model_close(plain);
    free(path);
    struct llm_model *weights = opened(mem_strdup(made));
    unlink(made);
    free(made);
    return weights;
}

/* ---- Prompts ---- */

static void add_text(const struct llm_model *weights, const char *text, struct tokens *out)
{
    llm_tokenize(weights, text, strlen(text), false, false, out);
}

/* What is expected: special tokens by name, "=" before a text. */
static struct tokens expected(const struct llm_model *weights, const char *const *pieces)
{
    struct tokens tokens = {0};
    for (; *pieces != NULL; pieces++) {
        if (**pieces == '=')
            add_text(weights, *pieces + 1, &tokens);
        else
            tokens_push(&tokens, token(weights, *pieces));
    }
    return tokens;
}

static hearth_params fim(const char *suffix)
{
    hearth_params params = hearth_params_default();
    params.suffix = suffix;
    params.suffix_len = strlen(suffix);
    return params;
}

static struct tokens made(const struct infill_model *model, const char *prefix, const hearth_params *params)
{
    hearth_error error;
    struct tokens prompt = {0};
    add_text(model->weights, prefix, &prompt);
    if (infill_prompt(model, params, &prompt, &error) != HEARTH_OK) fail_msg("%s", error.message);
    return prompt;
}

static void assert_same(struct tokens *got, struct tokens *wanted)
{
    size_t common = tokens_common_prefix(got, wanted);
    if (got->len != wanted->len || common != got->len)
        fail_msg("%zu tokens, %zu expected; they differ from token %zu on", got->len, wanted->len, common);
    tokens_release(got);
    tokens_release(wanted);
}

#define EXPECT(weights, ...) expected(weights, (const char *const[]){__VA_ARGS__, NULL})

/* ---- Tests ---- */

static void the_middle_follows_prefix_and_suffix(void **state)
{
    (void)state;
    struct llm_model *weights = opened(vocabulary("refact"));
    const struct infill_model model = WIDE(weights);
    hearth_params params = fim("}\n");
    params.typed = "  return ";
    params.typed_len = strlen(params.typed);
    struct tokens got = made(&model, "int f()\n{\n", &params);
    struct tokens wanted = EXPECT(weights, "<reponame>", "=myproject\n", "<fim_prefix>", "=int f()\n{\n", "=  return ",
                                  "<fim_suffix>", "=}\n", "<fim_middle>");
    assert_same(&got, &wanted);
    llm_model_close(weights);
}

static void bos_precedes_the_prefix(void **state)
{
    (void)state;
    struct llm_model *weights = opened(vocabulary("deepseek-coder"));
    const struct infill_model model = WIDE(weights);
    hearth_params params = fim("}");
    struct tokens got = made(&model, "{", &params);
    struct tokens wanted =
        EXPECT(weights, "<｜begin▁of▁sentence｜>", "<｜fim▁begin｜>", "={", "<｜fim▁hole｜>", "=}", "<｜fim▁end｜>");
    assert_true(llm_model_info(weights)->adds_bos);
    assert_same(&got, &wanted);
    llm_model_close(weights);
}

static void snippets_come_first_each_with_its_file(void **state)
{
    (void)state;
    static const hearth_snippet snippets[] = {{"a.h", "int a;\n"}, {"b.h", "int b;\n"}};
    struct llm_model *weights = with_files();
    const struct infill_model model = WIDE(weights);
    hearth_params params = fim("}");
    params.snippets = snippets;
    params.n_snippets = 2;
    struct tokens got = made(&model, "{", &params);
    struct tokens wanted =
        EXPECT(weights, "<reponame>", "=myproject\n", "<filename>", "=a.h\n", "=int a;\n", "<filename>", "=b.h\n",
               "=int b;\n", "<filename>", "=filename\n", "<fim_prefix>", "={", "<fim_suffix>", "=}", "<fim_middle>");
    assert_same(&got, &wanted);
    llm_model_close(weights);
}

static void snippets_are_set_apart_where_there_is_no_token_for_files(void **state)
{
    (void)state;
    static const hearth_snippet snippets[] = {{"a.h", "int a;\n"}};
    struct llm_model *weights = opened(vocabulary("starcoder"));
    const struct infill_model model = WIDE(weights);
    hearth_params params = fim("}");
    params.snippets = snippets;
    params.n_snippets = 1;
    struct tokens got = made(&model, "{", &params);
    struct tokens wanted = {0};
    struct llm_fim_tokens tokens = llm_fim_tokens(weights);
    if (tokens.repository >= 0) {
        tokens_push(&wanted, tokens.repository);
        add_text(weights, "myproject\n", &wanted);
    }
    assert_int_equal(tokens.file, -1);
    struct tokens rest = EXPECT(weights, "=\n\n--- snippet ---\n\n", "=int a;\n", "<fim_prefix>", "={", "<fim_suffix>",
                                "=}", "<fim_middle>");
    tokens_append(&wanted, rest.v, rest.len);
    tokens_release(&rest);
    assert_same(&got, &wanted);
    llm_model_close(weights);
}

static void an_editors_text_that_spells_a_token_stays_text(void **state)
{
    (void)state;
    struct llm_model *weights = opened(vocabulary("refact"));
    const struct infill_model model = WIDE(weights);
    hearth_params params = fim("<fim_middle>");
    struct tokens got = made(&model, "<fim_prefix>", &params);
    int32_t prefix = token(weights, "<fim_prefix>"), middle = token(weights, "<fim_middle>");
    int n_prefix = 0, n_middle = 0;
    for (size_t i = 0; i < got.len; i++) {
        n_prefix += got.v[i] == prefix;
        n_middle += got.v[i] == middle;
    }
    assert_int_equal(n_prefix, 1);
    assert_int_equal(n_middle, 1);
    tokens_release(&got);
    llm_model_close(weights);
}

/* Of a text with `n` lines. */
static char *lines(size_t n)
{
    struct buf text = {0};
    for (size_t i = 0; i < n; i++) buf_printf(&text, "line %zu\n", i);
    return buf_take(&text);
}

static void what_is_far_from_the_middle_is_cut(void **state)
{
    (void)state;
    struct llm_model *weights = opened(vocabulary("refact"));
    const struct infill_model model = NARROW(weights);
    char *text = lines(400);
    struct tokens all = {0}, got, wanted = {0};
    hearth_params params = fim(text);
    add_text(weights, text, &all);
    got = made(&model, text, &params);
    tokens_push(&wanted, token(weights, "<reponame>"));
    add_text(weights, "myproject\n", &wanted);
    tokens_push(&wanted, token(weights, "<fim_prefix>"));
    tokens_append(&wanted, all.v + all.len - 48, 48); /* three quarters of 64 */
    tokens_push(&wanted, token(weights, "<fim_suffix>"));
    tokens_append(&wanted, all.v, 14); /* a quarter, but for two */
    tokens_push(&wanted, token(weights, "<fim_middle>"));
    assert_same(&got, &wanted);
    tokens_release(&all);
    free(text);
    llm_model_close(weights);
}

static void snippets_get_what_prompt_and_reply_leave(void **state)
{
    (void)state;
    static const struct {
        int32_t max_tokens;
        size_t beside; /* tokens before the prefix: beside 48 + 14 of text, three of fill-in-the-middle, and one to
                          spare */
    } rows[] = {{HEARTH_UNSET, 934}, {100, 734}, {466, 2}, {467, 0}, {600, 0}};
    struct llm_model *weights = opened(vocabulary("refact"));
    const struct infill_model model = NARROW(weights);
    char *text = lines(2000);
    const hearth_snippet snippet = {"a", text};
    int32_t prefix = token(weights, "<fim_prefix>");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        hearth_params params = fim(text);
        params.snippets = &snippet;
        params.n_snippets = 1;
        params.max_tokens = rows[i].max_tokens;
        struct tokens got = made(&model, text, &params);
        size_t at = 0;
        while (at < got.len && got.v[at] != prefix) at++;
        assert_int_equal(at, rows[i].beside);
        assert_true(got.len < 1000);
        tokens_release(&got);
    }
    free(text);
    llm_model_close(weights);
}

static void a_model_without_such_tokens_says_so(void **state)
{
    (void)state;
    struct llm_model *weights = opened(vocabulary("qwen2"));
    const struct infill_model model = WIDE(weights);
    hearth_params params = fim("}");
    hearth_error error;
    struct tokens prompt = {0};
    assert_int_equal(infill_prompt(&model, &params, &prompt, &error), HEARTH_UNSUPPORTED);
    assert_string_equal(error.param, "suffix");
    assert_non_null(strstr(error.message, "'coder'"));
    assert_non_null(strstr(error.message, "prefix"));
    llm_model_close(weights);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_middle_follows_prefix_and_suffix),
        cmocka_unit_test(bos_precedes_the_prefix),
        cmocka_unit_test(snippets_come_first_each_with_its_file),
        cmocka_unit_test(snippets_are_set_apart_where_there_is_no_token_for_files),
        cmocka_unit_test(an_editors_text_that_spells_a_token_stays_text),
        cmocka_unit_test(what_is_far_from_the_middle_is_cut),
        cmocka_unit_test(snippets_get_what_prompt_and_reply_leave),
        cmocka_unit_test(a_model_without_such_tokens_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
