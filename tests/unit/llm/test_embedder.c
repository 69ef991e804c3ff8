/* Embedders: inputs batched in one call get the embeddings that llama.cpp gives for each alone, and nothing that would
 * end the process reaches it. The oracle is written here against llama.h: the same inputs in one call. */
#include "support.h"

#include "llm/embedder.h"

#include <llama.h>

enum { WINDOW = 128, INPUTS = 9 };

static char *folder;

static int make_folder(void **state)
{
    (void)state;
    folder = folder_open();
    llm_init();
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    folder_remove(folder);
    return 0;
}

/* ---- Models ---- */

/* Encoders have a tokenizer of encoders, others that of the demo model. */
static char *make_file(const char *arch, const char *options)
{
    bool encodes = !strcmp(arch, "bert") || !strcmp(arch, "reranker");
    char *path = mem_format("%s/%s-%d.gguf", folder, arch, rand());
    char *demo = demo_path();
    char *command = mem_format("'%s/bin/hearth-mkmodel' --arch %s --vocab '%s' %s -o '%s' >/dev/null",
                               env("HEARTH_BUILD"), arch, encodes ? "bert-bge" : demo, options, path);
    run(command);
    free(command);
    free(demo);
    return path;
}

static struct llm_embedder *open_embedder(struct llm_model *model, hearth_pooling pooling)
{
    hearth_error error = {0};
    struct llm_context_params params = context_params(WINDOW, 64);
    params.n_batch = 1024;
    struct llm_embedder *embedder = llm_embedder_open(model, &params, pooling, &error);
    if (embedder == NULL) fail_msg("%s", error.message);
    return embedder;
}

/* Texts of different lengths, tokenised as the model wants them. */
static void fill_inputs(const struct llm_model *model, struct tokens *texts, struct llm_input *inputs, int n)
{
    for (int i = 0; i < n; i++) {
        char text[512];
        snprintf(text, sizeof text, "%d ", i);
        for (int word = 0; word <= i * 3; word++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "word %d of %d ", word * 37 % 101, i);
        llm_tokenize(model, text, strlen(text), true, false, &texts[i]);
        tokens_truncate(&texts[i], texts[i].len < WINDOW ? texts[i].len : WINDOW);
        inputs[i] = (struct llm_input){texts[i].v, (int32_t)texts[i].len};
    }
}

/* ---- The oracle ---- */

/* llama.cpp's own batch of the inputs, a sequence each. */
static struct llama_batch batch_of(const struct llm_input *inputs, int n)
{
    struct llama_batch batch = llama_batch_init(1024, 0, 1);
    for (int i = 0; i < n; i++) {
        for (int32_t at = 0; at < inputs[i].n; at++) {
            int32_t row = batch.n_tokens++;
            batch.token[row] = inputs[i].tokens[at];
            batch.pos[row] = at;
            batch.n_seq_id[row] = 1;
            batch.seq_id[row][0] = i;
            batch.logits[row] = 1;
        }
    }
    return batch;
}

/* The embeddings of inputs computed by llama.cpp alone, in a context of its own: of each token without pooling, else of
 * each input. */
static float *oracle(const char *path, hearth_pooling pooling, const struct llm_input *inputs, int n, int32_t width)
{
    struct llama_model *model = llama_model_load_from_file(path, llama_model_default_params());
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = params.n_batch = params.n_ubatch = 1024;
    params.n_seq_max = 64;
    params.kv_unified = true;
    params.n_threads = params.n_threads_batch = 1;
    params.embeddings = true;
    params.pooling_type = (enum llama_pooling_type)pooling;
    struct llama_context *context = llama_init_from_model(model, params);
    struct llama_batch batch = batch_of(inputs, n);
    assert_int_equal(llama_decode(context, batch), 0);
    int32_t n_vectors = pooling == HEARTH_POOLING_NONE ? batch.n_tokens : n;
    float *out = mem_alloc((size_t)n_vectors * (size_t)width * sizeof *out);
    for (int32_t i = 0; i < n_vectors; i++)
        memcpy(out + i * width,
               pooling == HEARTH_POOLING_NONE ? llama_get_embeddings_ith(context, i)
                                              : llama_get_embeddings_seq(context, i),
               (size_t)width * sizeof *out);
    llama_batch_free(batch);
    llama_free(context);
    llama_model_free(model);
    return out;
}

/* ---- Comparing ---- */

static double length(const float *v, int32_t n)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += (double)v[i] * (double)v[i];
    return sqrt(sum);
}

/* The largest difference of two embeddings, normalised as callers get them; scores as they are. */
static double distance(const float *a, const float *b, int32_t width)
{
    double la = width > 1 ? length(a, width) : 1, lb = width > 1 ? length(b, width) : 1, most = 0;
    assert_true(la > 0 && lb > 0);
    for (int32_t i = 0; i < width; i++) most = fmax(most, fabs((double)a[i] / la - (double)b[i] / lb));
    return most;
}

static void assert_same(const float *a, const float *b, int32_t width)
{
    double difference = distance(a, b, width);
    if (!(difference <= 1e-5)) fail_msg("vectors differ by %g", difference);
}

/* A call with these inputs gives what llama.cpp gives for the same batch. Copies the first embedding of each to `kept`.
 */
static void check_call(struct llm_embedder *embedder, const char *path, hearth_pooling pooling,
                       const struct llm_input *inputs, int n, float *kept)
{
    int32_t width = llm_embedder_width(embedder), row = 0;
    assert_int_equal(llm_embed(embedder, inputs, n), LLM_DECODED);
    float *expected = oracle(path, pooling, inputs, n, width);
    for (int i = 0; i < n; i++) {
        memcpy(kept + i * width, llm_embedding(embedder, i, 0), (size_t)width * sizeof *kept);
        int32_t n_vectors = pooling == HEARTH_POOLING_NONE ? inputs[i].n : 1;
        for (int32_t at = 0; at < n_vectors; at++, row++)
            assert_same(llm_embedding(embedder, i, at), expected + row * width, width);
    }
    free(expected);
}

/* Rounding depends on what else is in a call, in llama.cpp as here; it must be small beside the difference between
 * inputs. */
static void check_apart(const float *packed, const float *alone, int n, int32_t width)
{
    for (int i = 0; i < n; i++)
        for (int other = 0; other < n; other++)
            if (other != i)
                assert_true(20 * distance(packed + i * width, alone + i * width, width) <
                            distance(packed + i * width, alone + other * width, width));
}

static void check(const char *arch, const char *options, hearth_pooling pooling)
{
    char *path = make_file(arch, options);
    struct llm_model *model = open_model(path);
    struct llm_embedder *embedder = open_embedder(model, pooling);
    struct tokens texts[INPUTS] = {0};
    struct llm_input inputs[INPUTS];
    fill_inputs(model, texts, inputs, INPUTS);
    int32_t width = llm_embedder_width(embedder);
    size_t size = INPUTS * (size_t)width * sizeof(float);
    float *packed = mem_alloc(size), *alone = mem_alloc(size);
    int n = INPUTS < llm_embedder_max_inputs(embedder) ? INPUTS : llm_embedder_max_inputs(embedder);
    check_call(embedder, path, pooling, inputs, n, packed);
    for (int i = 0; i < n; i++) check_call(embedder, path, pooling, &inputs[i], 1, alone + i * width);
    check_apart(packed, alone, n, width);
    for (int i = 0; i < INPUTS; i++) tokens_release(&texts[i]);
    free(packed);
    free(alone);
    llm_embedder_close(embedder);
    llm_model_close(model);
    free(path);
}

/* ---- Tests ---- */

static void inputs_of_an_encoder_get_llama_cpps_vectors_packed_or_not(void **state)
{
    (void)state;
    check("bert", "", HEARTH_POOLING_MEAN);
    check("bert", "--pooling cls", HEARTH_POOLING_CLS);
    check("bert", "", HEARTH_POOLING_NONE);
}

static void inputs_of_a_decoder_get_llama_cpps_vectors_packed_or_not(void **state)
{
    (void)state;
    check("qwen3", "--pooling last", HEARTH_POOLING_LAST);
    check("qwen3", "", HEARTH_POOLING_MEAN);
    check("qwen3", "", HEARTH_POOLING_CLS);
    check("qwen3", "", HEARTH_POOLING_NONE);
}

static void windows_and_recurrent_states_do_not_mix_inputs(void **state)
{
    (void)state;
    check("gemma3", "", HEARTH_POOLING_LAST);
    check("gemma3", "", HEARTH_POOLING_MEAN);
    check("mamba2", "", HEARTH_POOLING_LAST);
}

static void pairs_get_llama_cpps_scores_packed_or_not(void **state)
{
    (void)state;
    check("reranker", "", HEARTH_POOLING_RANK);
}

static void an_input_over_several_micro_batches_keeps_its_last_embedding(void **state)
{
    (void)state;
    hearth_error error = {0};
    char *path = make_file("qwen3", "--pooling last");
    struct llm_model *model = open_model(path);
    struct llm_context_params params = context_params(WINDOW, 4);
    params.n_ubatch = 16;
    struct llm_embedder *embedder = llm_embedder_open(model, &params, HEARTH_POOLING_LAST, &error);
    assert_non_null(embedder);
    struct tokens long_one = prompt_of(model, 100), other = prompt_of(model, 25);
    struct llm_input inputs[] = {{long_one.v, 100}, {other.v, 25}};
    assert_int_equal(llm_embed(embedder, inputs, 2), LLM_DECODED);
    int32_t width = llm_embedder_width(embedder);
    float *expected = oracle(path, HEARTH_POOLING_LAST, inputs, 2, width);
    for (int i = 0; i < 2; i++)
        assert_true(distance(llm_embedding(embedder, i, 0), expected + i * width, width) < 1e-3);
    assert_true(distance(expected, expected + width, width) > 1e-2);
    free(expected);
    tokens_release(&long_one);
    tokens_release(&other);
    llm_embedder_close(embedder);
    llm_model_close(model);
    free(path);
}

static void what_would_end_the_process_is_refused(void **state)
{
    (void)state;
    char *path = make_file("bert", "");
    struct llm_model *model = open_model(path);
    struct llm_embedder *embedder = open_embedder(model, HEARTH_POOLING_MEAN);
    struct tokens full = prompt_of(model, WINDOW + 1);
    int32_t wrong[] = {5, -1}, beyond[] = {llm_model_info(model)->n_vocab};
    struct llm_input empty = {full.v, 0}, too_long = {full.v, WINDOW + 1}, negative = {wrong, 2}, unknown = {beyond, 1};
    assert_int_equal(llm_embed(embedder, &empty, 0), LLM_REFUSED);
    assert_int_equal(llm_embed(embedder, &empty, 1), LLM_REFUSED);
    assert_int_equal(llm_embed(embedder, &too_long, 1), LLM_REFUSED);
    assert_int_equal(llm_embed(embedder, &negative, 1), LLM_REFUSED);
    assert_int_equal(llm_embed(embedder, &unknown, 1), LLM_REFUSED);
    struct llm_input many[65];
    for (int i = 0; i < 65; i++) many[i] = (struct llm_input){full.v, i < 9 ? WINDOW : 1};
    assert_int_equal(llm_embed(embedder, many, 9), LLM_REFUSED); /* 1152 rows of 1024 */
    assert_int_equal(llm_embed(embedder, many + 9, 56), LLM_DECODED);
    assert_int_equal(llm_embed(embedder, many, 65), LLM_REFUSED);
    assert_int_equal(llm_embed(embedder, many, 8), LLM_DECODED);
    tokens_release(&full);
    llm_embedder_close(embedder);
    llm_model_close(model);
    free(path);
}

static void a_model_without_a_head_ranks_nothing(void **state)
{
    (void)state;
    hearth_error error = {0};
    char *path = make_file("bert", "");
    struct llm_model *model = open_model(path);
    struct llm_context_params params = context_params(WINDOW, 4);
    assert_null(llm_embedder_open(model, &params, HEARTH_POOLING_RANK, &error));
    assert_int_equal(error.code, HEARTH_UNSUPPORTED);
    params.window = llm_model_info(model)->n_ctx_train + 1;
    assert_null(llm_embedder_open(model, &params, HEARTH_POOLING_MEAN, &error));
    assert_int_equal(error.code, HEARTH_INVALID);
    assert_string_equal(error.param, "context_window");
    llm_model_close(model);
    free(path);
}

/* Resident bytes for each byte that is used: ThreadSanitizer keeps two beside it. */
#ifdef __SANITIZE_THREAD__
#define SHADOWED 3
#else
#define SHADOWED 1
#endif

static size_t resident_bytes(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_int_equal(fscanf(file, "%*d %ld", &pages), 1);
    fclose(file);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* Each has computed once, so that all it needs is there. */
static void further_contexts_take_no_further_weights(void **state)
{
    (void)state;
    enum { N = 4 };
    char *path = make_file("bert", "--embd 512 --heads 8 --layers 4");
    struct llm_model *model = open_model(path);
    struct llm_embedder *embedders[N];
    struct tokens text = prompt_of(model, 8);
    struct llm_input input = {text.v, 8};
    struct llm_context_params params = context_params(16, 1);
    params.n_batch = 16;
    size_t first = 0;
    for (int i = 0; i < N; i++) {
        hearth_error error;
        embedders[i] = llm_embedder_open(model, &params, HEARTH_POOLING_MEAN, &error);
        assert_non_null(embedders[i]);
        assert_int_equal(llm_embed(embedders[i], &input, 1), LLM_DECODED);
        if (i == 0) first = resident_bytes();
    }
    size_t now = resident_bytes(), weights = llm_model_info(model)->size_bytes;
    size_t more = now > first ? (now - first) / SHADOWED : 0; /* the machine may have taken pages back */
    assert_true(weights > 64 << 20);
    if (more > weights / 4) fail_msg("%d further contexts took %zu bytes, the weights are %zu", N - 1, more, weights);
    for (int i = 0; i < N; i++) llm_embedder_close(embedders[i]);
    tokens_release(&text);
    llm_model_close(model);
    free(path);
}

static void what_a_model_is_for_is_known_from_its_file(void **state)
{
    (void)state;
    static const struct {
        const char *arch, *options;
        bool embeds;
        hearth_pooling pooling;
        int32_t n_scores;
    } rows[] = {
        {"bert", "", true, HEARTH_POOLING_MEAN, 0},     {"bert", "--pooling cls", true, HEARTH_POOLING_CLS, 0},
        {"reranker", "", true, HEARTH_POOLING_RANK, 1}, {"qwen3", "--pooling last", true, HEARTH_POOLING_LAST, 0},
        {"qwen3", "", false, HEARTH_POOLING_LAST, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *path = make_file(rows[i].arch, rows[i].options);
        struct llm_model *model = open_model(path);
        assert_int_equal(llm_is_embedder(model), rows[i].embeds);
        assert_int_equal(llm_default_pooling(model), rows[i].pooling);
        assert_int_equal(llm_model_info(model)->n_scores, rows[i].n_scores);
        llm_model_close(model);
        free(path);
    }
}

/* ---- Inputs ---- */

static void a_truncated_input_keeps_its_bos_and_eos(void **state)
{
    (void)state;
    char *path = make_file("bert", "");
    struct llm_model *model = open_model(path);
    struct tokens whole = {0}, text = {0};
    const char *words = "one two three four five six seven eight";
    llm_tokenize(model, words, strlen(words), false, false, &text);
    llm_tokenize(model, words, strlen(words), true, false, &whole);
    assert_int_equal(whole.len, text.len + 2); /* [CLS] and [SEP] */
    int32_t cls = whole.v[0], sep = whole.v[whole.len - 1];
    llm_truncate_input(model, &whole, 5, false);
    assert_int_equal(whole.len, 5);
    assert_memory_equal(whole.v, ((int32_t[]){cls, text.v[0], text.v[1], text.v[2], sep}), 5 * sizeof(int32_t));
    tokens_truncate(&whole, 0);
    llm_tokenize(model, words, strlen(words), true, false, &whole);
    llm_truncate_input(model, &whole, 4, true);
    assert_memory_equal(whole.v, ((int32_t[]){cls, text.v[text.len - 2], text.v[text.len - 1], sep}),
                        4 * sizeof(int32_t));
    llm_truncate_input(model, &whole, 1, true);
    assert_int_equal(whole.len, 1);
    tokens_release(&whole);
    tokens_release(&text);
    llm_model_close(model);
    free(path);
}

static void a_document_is_truncated_before_it_is_joined_with_its_query(void **state)
{
    (void)state;
    char *path = make_file("reranker", "");
    struct llm_model *model = open_model(path);
    struct llm_pair pair = {
        .query = "what is it", .document = "one two three four five", .query_len = 10, .document_len = 23};
    struct tokens whole = {0}, document = {0}, cut = {0};
    llm_tokenize(model, pair.document, pair.document_len, false, false, &document);
    assert_true(llm_join_pair(model, &pair, SIZE_MAX, &whole));
    pair.max_document = document.len - 3;
    assert_true(llm_join_pair(model, &pair, SIZE_MAX, &cut));
    assert_int_equal(cut.len, whole.len - 3);
    assert_memory_equal(cut.v, whole.v, cut.len * sizeof(int32_t)); /* nothing comes after the document */
    tokens_truncate(&cut, 0);
    pair.max_document = document.len;
    assert_true(llm_join_pair(model, &pair, SIZE_MAX, &cut));
    assert_int_equal(cut.len, whole.len);
    tokens_release(&whole);
    tokens_release(&document);
    tokens_release(&cut);
    llm_model_close(model);
    free(path);
}

static void a_pair_that_is_too_long_loses_the_end_of_its_document(void **state)
{
    (void)state;
    char *path = make_file("reranker", "");
    struct llm_model *model = open_model(path);
    struct llm_pair pair = {
        .query = "what is it", .document = "one two three four five", .query_len = 10, .document_len = 23};
    struct tokens whole = {0}, cut = {0};
    assert_true(llm_join_pair(model, &pair, SIZE_MAX, &whole));
    assert_true(llm_join_pair(model, &pair, whole.len - 2, &cut));
    assert_int_equal(cut.len, whole.len - 2);
    assert_memory_equal(cut.v, whole.v, 4 * sizeof(int32_t)); /* [CLS] and the query */
    assert_false(llm_join_pair(model, &pair, 4, &cut));
    assert_int_equal(cut.len, whole.len - 2);
    tokens_release(&whole);
    tokens_release(&cut);
    llm_model_close(model);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inputs_of_an_encoder_get_llama_cpps_vectors_packed_or_not),
        cmocka_unit_test(inputs_of_a_decoder_get_llama_cpps_vectors_packed_or_not),
        cmocka_unit_test(windows_and_recurrent_states_do_not_mix_inputs),
        cmocka_unit_test(pairs_get_llama_cpps_scores_packed_or_not),
        cmocka_unit_test(an_input_over_several_micro_batches_keeps_its_last_embedding),
        cmocka_unit_test(what_would_end_the_process_is_refused),
        cmocka_unit_test(a_model_without_a_head_ranks_nothing),
        cmocka_unit_test(further_contexts_take_no_further_weights),
        cmocka_unit_test(what_a_model_is_for_is_known_from_its_file),
        cmocka_unit_test(a_truncated_input_keeps_its_bos_and_eos),
        cmocka_unit_test(a_document_is_truncated_before_it_is_joined_with_its_query),
        cmocka_unit_test(a_pair_that_is_too_long_loses_the_end_of_its_document),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
