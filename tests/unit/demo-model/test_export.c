/* What the trainer computes and what llama.cpp computes from the exported file is the same; and so are the texts and
 * tokens of conversations, through libhearth's chat template. */
#include "evaluate/ask.h"

#include "documents.h"
#include "model.h"
#include "support.h"

#include <llama.h>
#include <math.h>

enum { TOKENS = 200 };

/* A piece_fn. */
static void append(void *ud, enum piece piece, const char *text, size_t len)
{
    (void)piece;
    buf_append(ud, text, len);
}

/* ---- Tokens ---- */

static void texts_come_back_from_their_tokens(void **state)
{
    (void)state;
    struct tokenizer tokenizer = open_tokenizer();
    int32_t *tokens = NULL;
    int capacity = 0;
    for (uint64_t i = 0; i < 200; i++) {
        struct conversation conversation = {0};
        struct buf text = {0};
        corpus_make(&conversation, 21, i, 600);
        conversation_pieces(&conversation, conversation.n_messages, append, &text);
        int n = tokenizer_encode(&tokenizer, text.v, text.len, &tokens, &capacity);
        char *back = tokenizer_decode(&tokenizer, tokens, n);
        assert_string_equal(back, text.v);
        free(back);
        buf_release(&text);
        conversation_release(&conversation);
    }
    free(tokens);
    tokenizer_close(&tokenizer);
}

/* A document is tokenised piece by piece, a prompt as a whole. */
static void a_document_has_the_tokens_of_its_whole_text(void **state)
{
    (void)state;
    struct tokenizer tokenizer = open_tokenizer();
    int32_t *tokens = NULL;
    int capacity = 0;
    for (uint64_t i = 0; i < 300; i++) {
        struct conversation conversation = {0};
        struct buf text = {0};
        struct batch batch = {0};
        corpus_make(&conversation, 22, i, i % 10 == 0 ? 4000 : 500);
        conversation_pieces(&conversation, conversation.n_messages, append, &text);
        int n = tokenizer_encode(&tokenizer, text.v, text.len, &tokens, &capacity);
        documents_add(&tokenizer, &conversation, &batch);
        assert_int_equal(batch.n_tokens, n);
        assert_memory_equal(batch.tokens, tokens, (size_t)n * sizeof *tokens);
        batch_release(&batch);
        buf_release(&text);
        conversation_release(&conversation);
    }
    free(tokens);
    tokenizer_close(&tokenizer);
}

static void names_are_cut_the_same_behind_a_space_and_a_quotation_mark(void **state)
{
    (void)state;
    struct tokenizer tokenizer = open_tokenizer();
    static const char *const texts[] = {"Ottilie", " Ottilie", "\"Ottilie", "QX7B2", " QX7B2", "\"QX7B2"};
    int32_t *own = NULL, *other = NULL;
    int capacity = 0, other_capacity = 0;
    for (int i = 0; i < 6; i += 3) {
        int n = tokenizer_encode(&tokenizer, texts[i], strlen(texts[i]), &own, &capacity);
        for (int k = 1; k < 3; k++) {
            assert_int_equal(tokenizer_encode(&tokenizer, texts[i + k], strlen(texts[i + k]), &other, &other_capacity),
                             n + 1);
            assert_memory_equal(own, other + 1, (size_t)n * sizeof *own);
        }
    }
    free(own);
    free(other);
    tokenizer_close(&tokenizer);
}

static bool has_token(const struct vocabulary *vocabulary, const char *part, bool whole)
{
    for (int i = 256; i < vocabulary->n_tokens; i++) {
        const char *token = vocabulary->tokens[i];
        if (whole ? strcmp(token, part) == 0 : strstr(token, part) != NULL) return true;
    }
    return false;
}

/* However frequent it would be. Bytes are spelled with letters: a space is \u0120, the first byte of \u00eb \u00c3. */
static void no_merge_begins_a_name_or_breaks_a_character(void **state)
{
    (void)state;
    static const char text[] = "Say Anna, \"Anna\" or Anna. Say Zoë, \"Zoë\" or Zoë.";
    struct sample *sample = sample_open();
    struct vocabulary vocabulary;
    for (int i = 0; i < 100; i++) sample_add(sample, text, strlen(text));
    vocabulary_make(&vocabulary, sample, 300, 50);
    assert_true(has_token(&vocabulary, "Anna", true));
    assert_true(has_token(&vocabulary, "\xc4\xa0or", true));
    assert_false(has_token(&vocabulary,
                           "\xc4\xa0"
                           "A",
                           false));
    assert_false(has_token(&vocabulary, "\"A", false));
    assert_false(has_token(&vocabulary, "\xc3\x83", false));
    vocabulary_release(&vocabulary);
    sample_close(sample);
}

/* ---- Logits ---- */

static void random_batch(struct batch *batch, int n)
{
    struct random random = random_of(2, 3);
    for (int i = 0; i < n; i++) {
        int32_t token = random_below(&random, tiny.vocabulary);
        batch_add(batch, &token, 1, 1.0f);
    }
    batch_end_document(batch);
}

/* What llama.cpp computes for every token. */
static void compute(const char *path, struct batch *batch, float *logits)
{
    struct llama_model_params params = llama_model_default_params();
    params.n_gpu_layers = 0;
    struct llama_model *model = llama_model_load_from_file(path, params);
    assert_non_null(model);
    struct llama_context_params settings = llama_context_default_params();
    settings.n_ctx = TOKENS;
    settings.n_batch = TOKENS;
    settings.n_ubatch = TOKENS;
    settings.type_k = GGML_TYPE_F32;
    settings.type_v = GGML_TYPE_F32;
    settings.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    struct llama_context *context = llama_init_from_model(model, settings);
    assert_non_null(context);
    struct llama_batch tokens = llama_batch_init(batch->n_tokens, 0, 1);
    for (int i = 0; i < batch->n_tokens; i++) {
        tokens.token[i] = batch->tokens[i];
        tokens.pos[i] = i;
        tokens.n_seq_id[i] = 1;
        tokens.seq_id[i][0] = 0;
        tokens.logits[i] = 1;
    }
    tokens.n_tokens = batch->n_tokens;
    assert_int_equal(llama_decode(context, tokens), 0);
    size_t bytes = (size_t)tiny.vocabulary * sizeof *logits;
    for (int i = 0; i < batch->n_tokens; i++)
        memcpy(logits + (size_t)i * (size_t)tiny.vocabulary, llama_get_logits_ith(context, i), bytes);
    llama_batch_free(tokens);
    llama_free(context);
    llama_model_free(model);
}

static char *write_model(const struct layout *layout, const float *weights, bool full)
{
    char *path = in_folder(full ? "full.gguf" : "q8_0.gguf");
    hearth_error error = {0};
    const struct export export = {vocabulary_path, path, layout, weights, full};
    if (export_model(&export, &error) != 0) fail_msg("%s", error.message);
    return path;
}

/* The largest difference, as a part of the largest logit. */
static double difference(const float *a, const float *b, size_t n)
{
    double most = 0, largest = 0;
    for (size_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
        largest = fmax(largest, fabs((double)a[i]));
    }
    return most / largest;
}

static void llama_cpp_computes_the_trainers_logits(void **state)
{
    (void)state;
    struct layout layout;
    struct batch batch = {0};
    layout_make(&layout, &tiny);
    float *weights = mem_alloc(layout.size * sizeof *weights);
    layout_fill(&layout, weights, 12);
    random_batch(&batch, TOKENS);
    struct workspace *workspace = workspace_open(&layout, TOKENS);
    model_forward(workspace, weights, &batch);
    size_t n = (size_t)TOKENS * (size_t)tiny.vocabulary;
    float *logits = mem_alloc(n * sizeof *logits);
    for (int full = 0; full < 2; full++) {
        char *path = write_model(&layout, weights, full == 1);
        compute(path, &batch, logits);
        double found = difference(model_logits(workspace), logits, n);
        if (found > (full == 1 ? 1e-4 : 0.1)) fail_msg("%s: logits differ by %g", path, found);
        free(path);
    }
    free(logits);
    free(weights);
    batch_release(&batch);
    workspace_close(workspace);
}

/* ---- Through libhearth ---- */

static void hearths_chat_template_writes_what_the_corpus_does(void **state)
{
    (void)state;
    struct layout layout;
    hearth_error error = {0};
    layout_make(&layout, &tiny);
    float *weights = mem_alloc(layout.size * sizeof *weights);
    layout_fill(&layout, weights, 12);
    char *path = write_model(&layout, weights, false);
    hearth *instance = ask_open(path, &error);
    if (instance == NULL) fail_msg("%s", error.message);
    struct tokenizer tokenizer = open_tokenizer();
    int with_tools = 0, capacity = 0;
    int32_t *expected = NULL;
    for (uint64_t i = 0; i < 120; i++) {
        struct conversation conversation = {0};
        struct buf text = {0};
        corpus_make(&conversation, 23, i, 700);
        with_tools += conversation.n_tools > 0;
        size_t asked = conversation.n_messages - 1;
        conversation_pieces(&conversation, asked, append, &text);
        buf_puts(&text, "<|im_start|>assistant\n");
        int32_t *tokens = NULL;
        size_t n_tokens = 0;
        char *prompt = ask_prompt(instance, &conversation, asked, &tokens, &n_tokens, &error);
        if (prompt == NULL) fail_msg("%s", error.message);
        assert_string_equal(prompt, buf_text(&text));
        int n = tokenizer_encode(&tokenizer, text.v, text.len, &expected, &capacity);
        assert_int_equal(n_tokens, n);
        assert_memory_equal(tokens, expected, (size_t)n * sizeof *tokens);
        free(prompt);
        free(tokens);
        buf_release(&text);
        conversation_release(&conversation);
    }
    assert_in_range(with_tools, 5, 120);
    free(expected);
    tokenizer_close(&tokenizer);
    hearth_close(instance);
    free(weights);
    free(path);
}

static int open_all(void **state)
{
    hearth_log_open(NULL, "error", "text", NULL);
    if (open_folder(state) != 0) return -1;
    write_vocabulary(&tiny);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_come_back_from_their_tokens),
        cmocka_unit_test(a_document_has_the_tokens_of_its_whole_text),
        cmocka_unit_test(names_are_cut_the_same_behind_a_space_and_a_quotation_mark),
        cmocka_unit_test(no_merge_begins_a_name_or_breaks_a_character),
        cmocka_unit_test(llama_cpp_computes_the_trainers_logits),
        cmocka_unit_test(hearths_chat_template_writes_what_the_corpus_does),
    };
    return cmocka_run_group_tests(tests, open_all, remove_folder);
}
