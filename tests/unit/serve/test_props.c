/* GET /props: its exact bytes, and that it contains no paths. */
#include "unit/serve/harness.h"

static void props_has_the_properties_of_a_model(void **state)
{
    struct client client = harness_start(*state);
    static const char *const paths[] = {"/props", "/props?model=demo"};
    for (size_t i = 0; i < 2; i++) {
        struct response response = ask(&client, "GET", paths[i], NULL);
        assert_int_equal(response.status, 200);
        assert_string_equal(
            response.body.v,
            "{\"default_generation_settings\":{\"params\":{\"seed\":4294967295,\"temperature\":0.5,\"top_k\":40,"
            "\"ignore_eos\":false,\"logit_bias\":[],\"max_tokens\":-1,\"n_predict\":-1,\"n_keep\":0,\"n_discard\":0,"
            "\"n_probs\":0,\"stop\":[],\"stream\":false,\"timings_per_token\":false,\"post_sampling_probs\":false,"
            "\"backend_sampling\":false,\"grammar\":\"\",\"grammar_lazy\":false,\"grammar_triggers\":[],"
            "\"preserved_tokens\":[],\"chat_format\":\"Content-only\",\"reasoning_format\":\"none\","
            "\"reasoning_in_content\":false,\"generation_prompt\":\"\",\"speculative.types\":\"none\",\"lora\":[]},"
            "\"n_ctx\":8192},\"total_slots\":4,\"model_alias\":\"demo\",\"model_ftype\":\"Q4_K - "
            "Medium\",\"model_path\":\"demo."
            "gguf\","
            "\"modalities\":{\"vision\":false,\"video\":false,\"audio\":false},\"endpoint_slots\":true,"
            "\"endpoint_props\":false,\"endpoint_metrics\":true,\"chat_template\":\"{{ \\\"x\\\" "
            "}}\",\"chat_template_caps\":{\"supports_tools\":false},"
            "\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"build_info\":\"hearth-0.1.0\",\"is_sleeping\":false}");
        response_release(&response);
    }
    client_close(&client);
}

static void a_model_that_is_not_in_memory_sleeps(void **state)
{
    struct client client = harness_start(*state);
    struct response response = ask(&client, "POST", "/models/unload", "{\"model\":\"demo\"}");
    assert_int_equal(response.status, 200);
    response_release(&response);
    response = ask(&client, "GET", "/props", NULL);
    assert_int_equal(response.status, 200);
    assert_contains(response.body.v, "\"is_sleeping\":true}");
    response_release(&response);
    client_close(&client);
}

static void an_unknown_model_has_none(void **state)
{
    struct client client = harness_start(*state);
    struct response response = ask(&client, "GET", "/props?model=other", NULL);
    assert_int_equal(response.status, 404);
    assert_contains(response.body.v, "\"param\":\"model\"");
    response_release(&response);
    client_close(&client);
}

static void properties_are_not_changed_by_requests(void **state)
{
    struct client client = harness_start(*state);
    struct response response = ask(&client, "POST", "/props", "{\"temperature\":1}");
    assert_int_equal(response.status, 400);
    assert_contains(response.body.v, "\"code\":\"not_supported\"");
    assert_contains(response.body.v, "configuration");
    response_release(&response);
    client_close(&client);
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, harness_setup, harness_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(props_has_the_properties_of_a_model),
        ROW(a_model_that_is_not_in_memory_sleeps),
        ROW(an_unknown_model_has_none),
        ROW(properties_are_not_changed_by_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
