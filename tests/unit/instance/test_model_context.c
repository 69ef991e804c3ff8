/* What a model's context is opened with: the layout of its cells. */
#include "support.h"

#include "instance/models/model_context.h"

static int decide(const char *architecture, enum config_switch unified, bool deterministic, bool *out,
                  hearth_error *error)
{
    hearth_config *loaded = DEMO("context_window", "256");
    struct config_model config = *config_find_model(loaded, "demo");
    struct llm_model_info info = {.has_decoder = true, .kind = HEARTH_KIND_DENSE, .n_ctx_train = 4096};
    struct llm_context_params params;
    snprintf(info.architecture, sizeof info.architecture, "%s", architecture);
    config.kv_unified = unified;
    config.deterministic = deterministic;
    int rc = model_context_params(&config, &info, &params, error);
    if (rc == HEARTH_OK) *out = params.unified;
    hearth_config_free(loaded);
    return rc;
}

static void one_pool_where_prefixes_are_shared(void **state)
{
    (void)state;
    static const struct {
        const char *architecture;
        enum config_switch asked;
        bool deterministic, unified;
    } rows[] = {{"qwen3", CONFIG_AUTO, false, true},      {"qwen3", CONFIG_AUTO, true, false},
                {"qwen3", CONFIG_FALSE, false, false},    {"qwen3", CONFIG_TRUE, false, true},
                {"deepseek4", CONFIG_AUTO, false, false}, {"deepseek4", CONFIG_FALSE, false, false},
                {"deepseek2", CONFIG_AUTO, false, true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool unified = !rows[i].unified;
        hearth_error error;
        assert_int_equal(decide(rows[i].architecture, rows[i].asked, rows[i].deterministic, &unified, &error),
                         HEARTH_OK);
        assert_int_equal(unified, rows[i].unified);
    }
}

/* llama.cpp takes kv_unified for it, and has a stream for each sequence all the same. */
static void one_pool_is_refused_where_llama_cpp_has_none(void **state)
{
    (void)state;
    bool unified;
    hearth_error error;
    assert_int_equal(decide("deepseek4", CONFIG_TRUE, false, &unified, &error), HEARTH_INVALID);
    assert_string_equal(error.param, "kv_unified");
    assert_non_null(strstr(error.message, "models.demo.kv_unified"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_pool_where_prefixes_are_shared),
        cmocka_unit_test(one_pool_is_refused_where_llama_cpp_has_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
