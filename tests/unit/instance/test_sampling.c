/* Where sampling parameters come from: the request, the configuration, the model's file, the defaults. */
#include "support.h"

#include "base/log.h"
#include "config/config.h"
#include "instance/parameters/parameters.h"

#include <gguf.h>
#include <math.h>
#include <unistd.h>

/* ---- A model whose file advises ---- */

static char *advising_path;
static struct llm_model *plain, *advising;

static void write_advising_model(const char *from)
{
    struct ggml_context *tensors = NULL;
    struct gguf_context *file = gguf_init_from_file(from, (struct gguf_init_params){.ctx = &tensors});
    struct gguf_context *out = gguf_init_empty();
    gguf_set_kv(out, file);
    gguf_set_val_f32(out, "general.sampling.temp", 0.25F);
    gguf_set_val_f32(out, "general.sampling.top_p", 0.5F);
    gguf_set_val_i32(out, "general.sampling.top_k", 7);
    gguf_set_val_i32(out, "general.sampling.penalty_last_n", -1);
    gguf_set_val_str(out, "general.sampling.sequence", "top_k;no-such;temp");
    for (int64_t i = 0; i < gguf_get_n_tensors(file); i++)
        gguf_add_tensor(out, ggml_get_tensor(tensors, gguf_get_tensor_name(file, i)));
    assert_true(gguf_write_to_file(out, advising_path, false));
    gguf_free(out);
    gguf_free(file);
    ggml_free(tensors);
}

static struct llm_model *open_model(const char *path)
{
    hearth_error error = {0};
    struct llm_model_params params = {.path = path, .split_mode = "layer", .weights = false};
    struct llm_model *model = llm_model_open(&params, &error);
    if (model == NULL) fail_msg("%s", error.message);
    return model;
}

/* ---- Tests ---- */

static hearth_sampling complete(const hearth_sampling *given, hearth_config *config, const struct llm_model *model)
{
    return sampling_complete(given, config_find_model(config, "demo"), model);
}

static void the_request_comes_first_then_what_was_configured_then_the_file_then_the_defaults(void **state)
{
    (void)state;
    hearth_sampling given = hearth_params_default().sampling;
    hearth_config *unset = DEMO(NULL), *set = DEMO("sampling.temperature", "0.6", "sampling.top_k", "11");
    assert_true(complete(&given, unset, plain).temperature == 0.8);
    assert_int_equal(complete(&given, unset, plain).top_k, 40);
    assert_true(complete(&given, unset, advising).temperature == 0.25);
    assert_int_equal(complete(&given, unset, advising).top_k, 7);
    assert_int_equal(complete(&given, unset, advising).repeat_last_n, -1);
    assert_true(complete(&given, set, advising).temperature == 0.6);
    assert_int_equal(complete(&given, set, advising).top_k, 11);
    assert_true(complete(&given, set, advising).top_p == 0.5); /* of which nothing was configured */
    given.temperature = -1;                                    /* as likely as 0: nothing is drawn */
    assert_true(complete(&given, set, advising).temperature == 0);
    given.temperature = 0;
    given.top_k = 0;
    assert_true(complete(&given, set, advising).temperature == 0);
    assert_int_equal(complete(&given, set, advising).top_k, 0);
    hearth_config_free(unset);
    hearth_config_free(set);
}

static void lists_are_completed_too(void **state)
{
    (void)state;
    static const char *const own[] = {"xtc"};
    hearth_sampling given = hearth_params_default().sampling;
    hearth_config *unset = DEMO(NULL),
                  *set = DEMO("sampling.samplers", "[min_p]", "sampling.dry_sequence_breakers", "[a, b]");
    assert_int_equal(complete(&given, unset, plain).n_samplers, 9);
    assert_string_equal(complete(&given, unset, plain).samplers[0], "penalties");
    assert_int_equal(complete(&given, unset, plain).n_dry_breakers, 4);
    assert_string_equal(complete(&given, unset, plain).dry_breakers[0], "\n");
    assert_string_equal(complete(&given, unset, plain).dry_breakers[2], "\"");
    hearth_sampling advised = complete(&given, unset, advising);
    assert_int_equal(advised.n_samplers, 2); /* the unknown name is left out */
    assert_string_equal(advised.samplers[1], "temperature");
    assert_string_equal(complete(&given, set, advising).samplers[0], "min_p");
    assert_int_equal(complete(&given, set, plain).n_dry_breakers, 2);
    given.samplers = own;
    given.n_samplers = 1;
    assert_string_equal(complete(&given, set, advising).samplers[0], "xtc");
    hearth_config_free(unset);
    hearth_config_free(set);
}

static void a_seed_is_random_unless_it_is_given(void **state)
{
    (void)state;
    hearth_sampling given = hearth_params_default().sampling;
    hearth_config *unset = DEMO(NULL), *set = DEMO("sampling.seed", "5");
    assert_int_not_equal(complete(&given, unset, plain).seed, complete(&given, unset, plain).seed);
    assert_true(complete(&given, unset, plain).seed >= 0);
    assert_int_equal(complete(&given, set, plain).seed, 5);
    given.seed = 0;
    assert_int_equal(complete(&given, set, plain).seed, 0);
    hearth_config_free(unset);
    hearth_config_free(set);
}

static void what_cannot_be_meant_is_refused_by_its_name(void **state)
{
    (void)state;
    static const char *const unknown[] = {"top_k", "topp", "bottom_k"}, *const twice[] = {"typ_p", "top_k", "y"};
    const hearth_bias bias = {.token = 1 << 30};
    hearth_error error;
    hearth_sampling s = hearth_params_default().sampling, bad = s;
    const struct llm_model_info *info = llm_model_info(plain);
    assert_int_equal(sampling_check(&s, info->n_vocab, &error), HEARTH_OK);
#define REFUSED(name, ...)                                                                                             \
    bad = s;                                                                                                           \
    __VA_ARGS__;                                                                                                       \
    assert_int_equal(sampling_check(&bad, info->n_vocab, &error), HEARTH_INVALID);                                     \
    assert_string_equal(error.param, name)
#define AGREED(...)                                                                                                    \
    bad = s;                                                                                                           \
    __VA_ARGS__;                                                                                                       \
    assert_int_equal(sampling_check(&bad, info->n_vocab, &error), HEARTH_OK);
#define RANGE(name, low, top)                                                                                          \
    AGREED(bad.name = (low));                                                                                          \
    AGREED(bad.name = (top));                                                                                          \
    REFUSED(#name, bad.name = (low)-1);
#define INTEGER(name, default_, low, top, ...) RANGE(name, low, top)
#define NUMBER(name, default_, low, top, ...)                                                                          \
    RANGE(name, low, top)                                                                                              \
    REFUSED(#name, bad.name = (top) + 0.001);                                                                          \
    REFUSED(#name, bad.name = INFINITY);
    HEARTH_SAMPLING_TABLE(NUMBER, INTEGER)
#undef NUMBER
#undef INTEGER
#undef RANGE
#undef AGREED
    REFUSED("mirostat", bad.mirostat = 3);
    REFUSED("logit_bias", (bad.logit_bias = &bias, bad.n_logit_bias = 1));
    REFUSED("samplers", (bad.samplers = unknown, bad.n_samplers = 3));
    assert_non_null(strstr(error.message, "bottom_k"));
    REFUSED("samplers", (bad.samplers = twice, bad.n_samplers = 3));
    assert_non_null(strstr(error.message, "'typ_p' is named twice"));
#undef REFUSED
    hearth_config *config = DEMO("sampling.samplers", "[top_k, nonsense]");
    assert_int_equal(sampling_check_config(config_find_model(config, "demo"), &error), HEARTH_INVALID);
    assert_string_equal(error.param, "models.demo.sampling.samplers");
    hearth_config_free(config);
}

static void a_copy_shares_nothing(void **state)
{
    (void)state;
    char name[] = "top_k", breaker[] = "x", word[] = "word";
    const char *names[] = {name}, *breakers[] = {breaker};
    hearth_bias bias = {.token = 3, .bias = 1, .text = word};
    hearth_params params = hearth_params_default();
    hearth_sampling given = params.sampling;
    given.samplers = names;
    given.dry_breakers = breakers;
    given.logit_bias = &bias;
    given.n_samplers = given.n_dry_breakers = given.n_logit_bias = 1;
    params.sampling = given;
    hearth_params *copied = params_copy(&params);
    const hearth_sampling *copy = &copied->sampling;
    name[0] = breaker[0] = word[0] = '?';
    bias.token = 4;
    assert_string_equal(copy->samplers[0], "top_k");
    assert_string_equal(copy->dry_breakers[0], "x");
    assert_int_equal(copy->logit_bias[0].token, 3);
    assert_string_equal(copy->logit_bias[0].text, "word");
    params_free(copied);
}

/* ---- Biases ---- */

static void a_bias_of_a_text_is_one_of_each_of_its_tokens(void **state)
{
    (void)state;
    static const char text[] = "Hello, world";
    const hearth_bias given[] = {
        {.token = 3, .bias = 1}, {.text = text, .bias = -2}, {.text = ""}, {.token = 4, .bias = 5}};
    hearth_sampling sampling = {.logit_bias = given, .n_logit_bias = 4};
    struct tokens tokens = {0};
    llm_tokenize(plain, text, strlen(text), false, false, &tokens);
    assert_true(tokens.len > 1);
    hearth_bias *all = sampling_spell_biases(&sampling, plain);
    assert_ptr_equal(sampling.logit_bias, all);
    assert_int_equal(sampling.n_logit_bias, tokens.len + 2);
    assert_true(all[0].token == 3 && all[0].bias == 1);
    for (size_t i = 0; i < tokens.len; i++) {
        assert_true(all[1 + i].token == tokens.v[i] && all[1 + i].bias == -2);
        assert_null(all[1 + i].text);
    }
    assert_true(all[tokens.len + 1].token == 4 && all[tokens.len + 1].bias == 5);
    free(all);
    tokens_release(&tokens);
    sampling = (hearth_sampling){.logit_bias = given, .n_logit_bias = 1};
    assert_null(sampling_spell_biases(&sampling, plain));
    assert_ptr_equal(sampling.logit_bias, given);
}

static void texts_of_biases_are_bounded(void **state)
{
    (void)state;
    char *text = mem_alloc(HEARTH_BIAS_BYTES + 1);
    memset(text, 'a', HEARTH_BIAS_BYTES);
    const hearth_bias biases[] = {{.text = text}, {.text = "b"}};
    hearth_sampling sampling = hearth_params_default().sampling;
    hearth_error error;
    sampling.logit_bias = biases;
    sampling.n_logit_bias = 1;
    assert_int_equal(sampling_check(&sampling, 10, &error), HEARTH_OK);
    sampling.n_logit_bias = 2;
    assert_int_equal(sampling_check(&sampling, 10, &error), HEARTH_INVALID);
    assert_string_equal(error.param, "logit_bias");
    free(text);
}

/* ---- */

static int set_up(void **state)
{
    (void)state;
    hearth_error error;
    llm_init();
    log_open(NULL, "error", "text", &error);
    char *path = source_path("models/demo.gguf");
    advising_path = mem_format("%s/unit-lib-sampling-%d.gguf", getenv("HEARTH_BUILD"), (int)getpid());
    write_advising_model(path);
    plain = open_model(path);
    advising = open_model(advising_path);
    free(path);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    llm_model_close(plain);
    llm_model_close(advising);
    unlink(advising_path);
    free(advising_path);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_request_comes_first_then_what_was_configured_then_the_file_then_the_defaults),
        cmocka_unit_test(lists_are_completed_too),
        cmocka_unit_test(a_seed_is_random_unless_it_is_given),
        cmocka_unit_test(what_cannot_be_meant_is_refused_by_its_name),
        cmocka_unit_test(a_copy_shares_nothing),
        cmocka_unit_test(a_bias_of_a_text_is_one_of_each_of_its_tokens),
        cmocka_unit_test(texts_of_biases_are_bounded),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
