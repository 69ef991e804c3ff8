/* The models that hearth-mkmodel writes: every architecture loads, is of the right kind, and generates text, embeds or
 * reranks. */
#include "support.h"

static int compare_tokens(const void *a, const void *b)
{
    llama_token x = *(const llama_token *)a, y = *(const llama_token *)b;
    return (x > y) - (x < y);
}

static int count_distinct(const llama_token *tokens, int n)
{
    llama_token *sorted = mem_alloc((size_t)n * sizeof *sorted);
    memcpy(sorted, tokens, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, compare_tokens);
    int distinct = 1;
    for (int i = 1; i < n; i++) distinct += sorted[i] != sorted[i - 1];
    free(sorted);
    return distinct;
}

/* An encoder's embedding of the prompt's first tokens: `n` numbers. */
static void encode(struct llama_model *model, int n_tokens, float *out, int n)
{
    struct llama_context *context = open_context(model, 512, true);
    llama_token prompt[PROMPT];
    fill_prompt(prompt, model);
    struct llama_batch batch = llama_batch_get_one(prompt, n_tokens);
    assert_int_equal(llama_encode(context, batch), 0);
    const float *numbers = llama_get_embeddings_seq(context, 0);
    assert_non_null(numbers);
    memcpy(out, numbers, (size_t)n * sizeof *out);
    assert_finite(out, n, "embedding");
    llama_free(context);
}

/* ---- Architectures ---- */

static void every_architecture_is_what_its_name_says(void **state)
{
    (void)state;
    for (int i = 0; i < ARCHS; i++) {
        const struct expected *expected = &expectations[i];
        char *path = write_arch(expected->arch);
        struct llama_model *model = load(path);
        print_message("  %s\n", expected->arch);
        assert_int_equal(llama_model_is_hybrid(model), expected->hybrid);
        assert_int_equal(llama_model_is_recurrent(model), expected->recurrent);
        assert_int_equal(llama_model_n_swa(model), expected->n_swa);
        assert_int_equal(llama_model_rope_type(model), expected->rope);
        llama_model_free(model);
        free(path);
    }
}

static void every_decoder_generates_the_same_varied_text_however_its_prompt_is_batched(void **state)
{
    (void)state;
    for (int i = 0; i < ARCHS; i++) {
        if (!generates(&expectations[i])) continue;
        char *path = write_arch(expectations[i].arch);
        struct llama_model *model = load(path);
        const struct llama_vocab *vocab = llama_model_get_vocab(model);
        llama_token whole[DECODED], cut[DECODED];
        generate(model, PROMPT, whole, DECODED);
        generate(model, 17, cut, DECODED);
        print_message("  %s: %d distinct of %d\n", expectations[i].arch, count_distinct(whole, DECODED), DECODED);
        assert_memory_equal(whole, cut, sizeof whole);
        assert_true(count_distinct(whole, DECODED) >= DECODED / 4);
        for (int j = 0; j < DECODED; j++) assert_false(llama_vocab_is_control(vocab, whole[j]));
        llama_model_free(model);
        free(path);
    }
}

static void an_encoder_gives_one_embedding_for_a_text(void **state)
{
    (void)state;
    enum { EMBD = 64 };
    char *path = write_arch("bert");
    struct llama_model *model = load(path);
    assert_int_equal(llama_model_n_embd(model), EMBD);
    float shorter[EMBD], longer[EMBD];
    encode(model, 20, shorter, EMBD);
    encode(model, 40, longer, EMBD);
    assert_memory_not_equal(shorter, longer, sizeof shorter);
    llama_model_free(model);
    free(path);
}

static void a_reranker_gives_one_score_for_a_text(void **state)
{
    (void)state;
    char *path = write_arch("reranker");
    struct llama_model *model = load(path);
    assert_int_equal(llama_model_n_cls_out(model), 1);
    float shorter, longer;
    encode(model, 20, &shorter, 1);
    encode(model, 40, &longer, 1);
    assert_true(shorter != longer);
    llama_model_free(model);
    free(path);
}

static void every_file_says_how_it_pools_and_is_small(void **state)
{
    (void)state;
    for (int i = 0; i < ARCHS; i++) {
        char *path = write_arch(expectations[i].arch);
        struct stat info;
        assert_int_equal(stat(path, &info), 0);
        if (info.st_size >= MAX_BYTES) fail_msg("%s: %lld bytes", expectations[i].arch, (long long)info.st_size);
        struct gguf_context *gguf = open_gguf(path);
        char *key = mem_format("%s.pooling_type", text_of(gguf, "general.architecture"));
        assert_int_equal(gguf_find_key(gguf, key) >= 0, !generates(&expectations[i]));
        if (!generates(&expectations[i])) assert_int_equal(u32_of(gguf, key), expectations[i].pooling);
        free(key);
        gguf_free(gguf);
        free(path);
    }
}

static void hybrids_mix_layers_with_and_without_attention(void **state)
{
    (void)state;
    static const struct {
        const char *arch, *recurrent, *attention;
    } rows[] = {
        {"qwen35", "blk.0.ssm_a", "blk.1.attn_q.weight"},
        {"lfm2", "blk.0.shortconv.conv.weight", "blk.1.attn_q.weight"},
        {"falcon-h1", "blk.0.ssm_a", "blk.0.attn_q.weight"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *path = write_arch(rows[i].arch);
        struct gguf_context *gguf = open_gguf(path);
        assert_true(has_tensor(gguf, rows[i].recurrent));
        assert_true(has_tensor(gguf, rows[i].attention));
        gguf_free(gguf);
        free(path);
    }
}

static void optional_tensors_are_there_only_where_the_architecture_has_them(void **state)
{
    (void)state;
    static const struct {
        const char *arch, *tensor;
        bool there;
    } rows[] = {
        {"llama", "blk.0.attn_q.bias", false},        {"llama", "blk.0.attn_q_norm.weight", false},
        {"llama", "rope_freqs.weight", false},        {"llama", "output.weight", true},
        {"qwen3", "blk.0.attn_q_norm.weight", true},  {"qwen3", "cls.output.weight", false},
        {"gemma3", "output.weight", false},           {"gemma3", "blk.0.post_ffw_norm.weight", true},
        {"gpt-oss", "blk.0.attn_sinks.weight", true}, {"gpt-oss", "blk.0.ffn_up_exps.bias", true},
        {"qwen2vl", "blk.0.attn_q.bias", true},       {"qwen2vl", "blk.0.attn_output.bias", false},
        {"bert", "cls.output.weight", false},         {"reranker", "cls.output.weight", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *path = write_arch(rows[i].arch);
        struct gguf_context *gguf = open_gguf(path);
        if (has_tensor(gguf, rows[i].tensor) != rows[i].there) fail_msg("%s: %s", rows[i].arch, rows[i].tensor);
        gguf_free(gguf);
        free(path);
    }
}

/* ---- Types and seeds ---- */

static void matrices_are_stored_in_the_type_asked_for(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum ggml_type type;
        uint32_t ftype;
    } rows[] = {
        {"f32", GGML_TYPE_F32, LLAMA_FTYPE_ALL_F32},
        {"f16", GGML_TYPE_F16, LLAMA_FTYPE_MOSTLY_F16},
        {"q8_0", GGML_TYPE_Q8_0, LLAMA_FTYPE_MOSTLY_Q8_0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (int j = 0; j < ARCHS; j++) {
            if (!generates(&expectations[j])) continue;
            char *path = WRITE("typed.gguf", "--arch", expectations[j].arch, "--type", rows[i].name);
            struct gguf_context *gguf = open_gguf(path);
            assert_int_equal(type_of(gguf, "token_embd.weight"), rows[i].type);
            assert_int_equal(u32_of(gguf, "general.file_type"), rows[i].ftype);
            gguf_free(gguf);
            struct llama_model *model = load(path);
            llama_token out[DECODED];
            generate(model, PROMPT, out, DECODED);
            llama_model_free(model);
            free(path);
        }
    }
}

static void the_same_arguments_give_the_same_bytes_and_another_seed_others(void **state)
{
    (void)state;
    for (int i = 0; i < ARCHS; i++) {
        char *paths[3] = {
            WRITE("first.gguf", "--arch", expectations[i].arch, "--seed", "7"),
            WRITE("again.gguf", "--arch", expectations[i].arch, "--seed", "7"),
            WRITE("other.gguf", "--arch", expectations[i].arch, "--seed", "8"),
        };
        char *bytes[3];
        size_t lengths[3];
        for (int j = 0; j < 3; j++) bytes[j] = read_file(paths[j], &lengths[j]);
        assert_int_equal(lengths[0], lengths[1]);
        assert_int_equal(lengths[0], lengths[2]);
        assert_memory_equal(bytes[0], bytes[1], lengths[0]);
        assert_memory_not_equal(bytes[0], bytes[2], lengths[0]);
        for (int j = 0; j < 3; j++) {
            free(bytes[j]);
            free(paths[j]);
        }
    }
}

/* ---- Main ---- */

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_architecture_is_what_its_name_says),
        cmocka_unit_test(every_decoder_generates_the_same_varied_text_however_its_prompt_is_batched),
        cmocka_unit_test(an_encoder_gives_one_embedding_for_a_text),
        cmocka_unit_test(a_reranker_gives_one_score_for_a_text),
        cmocka_unit_test(every_file_says_how_it_pools_and_is_small),
        cmocka_unit_test(hybrids_mix_layers_with_and_without_attention),
        cmocka_unit_test(optional_tensors_are_there_only_where_the_architecture_has_them),
        cmocka_unit_test(matrices_are_stored_in_the_type_asked_for),
        cmocka_unit_test(the_same_arguments_give_the_same_bytes_and_another_seed_others),
    };
    return cmocka_run_group_tests(tests, open_folder, remove_folder);
}
