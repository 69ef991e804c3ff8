/* Routes that answer at once: status, routing errors, request ids; and errors of bodies as a client sees them. */
#include "unit/serve/harness.h"

#include <jansson.h>

static void unknown_routes_get_404_and_wrong_methods_405(void **state)
{
    static const struct {
        const char *method, *path, *allow;
        int status;
    } rows[] = {
        {"GET", "/v1/nothing", NULL, 404},
        {"POST", "/", "GET, HEAD, OPTIONS", 405},
        {"GET", "/v1/models/", NULL, 404},
        {"POST", "/v1/chat", NULL, 404},
        {"GET", "/v1/chat/completions", "POST, OPTIONS", 405},
        {"GET", "/v1/responses", "POST, OPTIONS", 405},
        {"DELETE", "/v1/completions", "POST, OPTIONS", 405},
        {"POST", "/cache", "GET, HEAD, OPTIONS", 405},
        {"GET", "/cache/lookup", "POST, OPTIONS", 405},
        {"POST", "/health", "GET, HEAD, OPTIONS", 405},
        {"PUT", "/v1/models/demo", "GET, HEAD, OPTIONS", 405},
    };
    struct client client = harness_start(*state);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct response response = ask(&client, rows[i].method, rows[i].path, NULL);
        assert_int_equal(response.status, rows[i].status);
        assert_contains(response.body.v, rows[i].status == 404 ? "\"code\":\"route_not_found\"" : "method_not_allowed");
        if (rows[i].allow != NULL) assert_string_equal(response_header(&response, "Allow"), rows[i].allow);
        response_release(&response);
    }
    client_close(&client);
}

/* A path that no route has, below one of an API's: in the form that its clients read. */
static void unknown_routes_of_an_api_are_refused_in_its_form(void **state)
{
    static const char *const rows[][2] = {
        {"/api/nothing", "{\"error\":\"there is no such route\"}"},
        {"/api/nothing/else", "{\"error\":\"there is no such route\"}"},
        {"/v1/messages/batches", "{\"type\":\"error\",\"error\":{\"type\":\"not_found"},
        {"/v1/api/", "{\"error\":{\"message\":"},
        {"/apis", "{\"error\":{\"message\":"}};
    static const char *const methods[] = {"GET", "POST", "DELETE"};
    struct client client = harness_start(*state);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t k = 0; k < 3; k++) {
            struct response response = ask(&client, methods[k], rows[i][0], k == 1 ? "{}" : NULL);
            assert_int_equal(response.status, 404);
            if (strncmp(response.body.v, rows[i][1], strlen(rows[i][1])) != 0)
                fail_msg("%s: %s", rows[i][0], response.body.v);
            response_release(&response);
        }
    }
    client_close(&client);
}

static void a_head_has_the_headers_of_a_get(void **state)
{
    struct client client = harness_start(*state);
    struct response response = ask(&client, "HEAD", "/health", NULL);
    assert_int_equal(response.status, 200);
    response_release(&response);
    response = ask(&client, "GET", "/health", NULL);
    assert_string_equal(response.body.v, "{\"status\":\"ok\"}");
    response_release(&response);
    client_close(&client);
}

static void a_request_id_is_kept_where_it_is_sane(void **state)
{
    static const char *const odd[] = {"", "a b", "x\"y",
                                      "0123456789012345678901234567890123456789012345678901234567890123"};
    struct client client = harness_start(*state);
    client_send(&client, "GET", "/health", "X-Request-Id: A1-b_c.d:e\r\n", NULL);
    struct response response = client_read(&client, true);
    assert_string_equal(response_header(&response, "X-Request-Id"), "A1-b_c.d:e");
    response_release(&response);
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        char header[128];
        snprintf(header, sizeof header, "X-Request-Id: %s\r\n", odd[i]);
        client_send(&client, "GET", "/health", header, NULL);
        response = client_read(&client, true);
        const char *made = response_header(&response, "X-Request-Id");
        assert_memory_equal(made, "req-", 4);
        assert_int_equal(strlen(made), 28);
        response_release(&response);
    }
    client_close(&client);
}

static void errors_of_the_body_name_the_field(void **state)
{
    struct client client = harness_start(*state);
    struct response response =
        ask(&client, "POST", "/v1/chat/completions", "{\"messages\":[{}],\"temperature\":\"hot\"}");
    assert_int_equal(response.status, 400);
    assert_string_equal(response.body.v,
                        "{\"error\":{\"message\":\"'temperature' must be a number from -100 to 100\",\"type\":"
                        "\"invalid_request_error\",\"code\":\"invalid_value\",\"param\":\"temperature\"}}");
    response_release(&response);
    response = ask(&client, "POST", "/v1/chat/completions", "{\"messages\":[{}],\"grammar_lazy\":true}");
    assert_int_equal(response.status, 400);
    assert_contains(response.body.v, "\"param\":\"grammar_lazy\"");
    response_release(&response);
    response = ask(&client, "POST", "/v1/chat/completions", "{\"messages\":[{}],\"model\":\"other\"}");
    assert_int_equal(response.status, 404);
    assert_contains(response.body.v, "\"code\":\"model_not_found\",\"param\":\"model\"");
    response_release(&response);
    response = ask(&client, "POST", "/v1/chat/completions", "not json");
    assert_int_equal(response.status, 400);
    response_release(&response);
    assert_int_equal(fake_submitted(), 0);
    client_close(&client);
}

static void models_are_listed_and_shown(void **state)
{
#define DEMO                                                                                                           \
    "{\"id\":\"demo\",\"aliases\":[],\"tags\":[],\"object\":\"model\",\"created\":1700000000,\"owned_by\":\"hearth\"," \
    "\"status\":{"                                                                                                     \
    "\"value\":"                                                                                                       \
    "\"loaded\"},\"type\":\"chat\","                                                                                   \
    "\"context_window\":8192,\"modalities\":{\"input\":[\"text\"],\"output\":[\"text\"]},\"meta\":{"                   \
    "\"architecture\":\"qwen3\",\"type\":\"chat\",\"kind\":\"dense\",\"pooling\":\"\",\"ftype\":\"Q4_K - "             \
    "Medium\",\"vocab_"                                                                                                \
    "type\":2,\"n_ctx\":8192,\"n_ctx_train\":"                                                                         \
    "40960,\"n_params\":600000000,"                                                                                    \
    "\"size\":1234567890123,\"n_vocab\":151936,\"n_embd\":1024,\"n_embd_out\":1024,\"n_swa\":0,\"slots\":4}}"
#define BRIEFLY                                                                                                        \
    "{\"name\":\"demo\",\"model\":\"demo\",\"modified_at\":\"\",\"size\":\"\",\"digest\":\"\",\"type\":\"model\","     \
    "\"description\":\"a fake\",\"tags\":[\"\"],\"capabilities\":[\"completion\"],\"parameters\":\"\",\"details\":{"   \
    "\"parent_model\":\"\",\"format\":\"gguf\",\"family\":\"qwen3\",\"families\":[\"qwen3\"],\"parameter_size\":\"\"," \
    "\"quantization_level\":\"\"}}"
    struct client client = harness_start(*state);
    struct response response = ask(&client, "GET", "/v1/models", NULL);
    assert_string_equal(response.body.v, "{\"object\":\"list\",\"data\":[" DEMO "],\"models\":[" BRIEFLY "]}");
    response_release(&response);
    response = ask(&client, "GET", "/models", NULL);
    assert_contains(response.body.v, DEMO);
    response_release(&response);
    response = ask(&client, "GET", "/v1/models/demo", NULL);
    assert_string_equal(response.body.v, DEMO);
    response_release(&response);
    response = ask(&client, "GET", "/v1/models/some/other", NULL);
    assert_int_equal(response.status, 404);
    assert_contains(response.body.v, "'some/other'");
    response_release(&response);
    client_close(&client);
}

static void slots_have_their_cached_tokens(void **state)
{
    struct client client = harness_start(*state);
    struct response response = ask(&client, "GET", "/slots", NULL);
    assert_string_equal(response.body.v,
                        "[{\"id\":0,\"seq_id\":3,\"model\":\"demo\",\"state\":\"generate\",\"request_id\":\"req-1\","
                        "\"cached_messages\":2,\"cached_tokens\":40,\"n_past\":45,\"hash\":\"0011223344556677\","
                        "\"last_used\":1700000000123,\"cost_ms\":0.0,\"return_ms\":0.0,\"n_ctx\":8192,\"speculative\":"
                        "false,\"is_processing\":true,"
                        "\"n_prompt_tokens\":42,\"n_prompt_tokens_cache\":40,\"n_prompt_tokens_processed\":2,"
                        "\"next_token\":[{\"has_next_token\":true,\"n_remain\":13,\"n_decoded\":3}]}]");
    response_release(&response);
    response = ask(&client, "GET", "/slots?model=other", NULL);
    assert_string_equal(response.body.v, "[]");
    response_release(&response);
    response = ask(&client, "GET", "/slots?fail_on_no_slot=1", NULL);
    assert_int_equal(response.status, 503);
    assert_contains(response.body.v, "\"type\":\"unavailable_error\"");
    response_release(&response);
    client_close(&client);
}

static void files_of_slots_are_refused_with_advice(void **state)
{
    struct client client = harness_start(*state);
    struct response response = ask(&client, "POST", "/slots/0?action=save", "{\"filename\":\"x\"}");
    assert_int_equal(response.status, 400);
    assert_contains(response.body.v, "hearth kv");
    response_release(&response);
    client_close(&client);
}

static void metrics_count_by_route_and_status_never_by_path(void **state)
{
    struct client client = harness_start(*state);
    const char *const paths[] = {"/health", "/health", "/v1/models/demo", "/v1/models/x", "/a", "/b"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct response response = ask(&client, "GET", paths[i], NULL);
        response_release(&response);
    }
    struct response response = ask(&client, "GET", "/metrics", NULL);
    assert_string_equal(response_header(&response, "Content-Type"), "text/plain; version=0.0.4");
    assert_contains(response.body.v, "hearth_fake 1\n");
    assert_contains(response.body.v, "hearth_http_requests_total{route=\"/health\",status=\"200\"} 2\n");
    assert_contains(response.body.v, "hearth_http_requests_total{route=\"/v1/models/{id}\",status=\"404\"} 1\n");
    assert_contains(response.body.v, "hearth_http_requests_total{route=\"other\",status=\"404\"} 2\n");
    assert_contains(response.body.v, "hearth_http_connections 1\n");
    assert_contains(response.body.v, "hearth_http_active_requests 1\n");
    response_release(&response);
    client_close(&client);
}

static void one_connection_serves_request_after_request(void **state)
{
    static const char *const texts[] = {"ok"};
    static const struct fake_script script = {.texts = texts, .n_texts = 1};
    struct client client = harness_start(*state);
    fake_play(&script);
    for (int i = 0; i < 20; i++) {
        struct response response = ask(&client, "POST", "/v1/completions",
                                       i % 2 ? "{\"prompt\":\"a\"}" : "{\"prompt\":\"a\",\"stream\":true}");
        assert_int_equal(response.status, 200);
        assert_contains(response.body.v, "\"text\":\"ok\"");
        response_release(&response);
    }
    client_close(&client);
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, harness_setup, harness_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(unknown_routes_get_404_and_wrong_methods_405),
        ROW(unknown_routes_of_an_api_are_refused_in_its_form),
        ROW(a_head_has_the_headers_of_a_get),
        ROW(a_request_id_is_kept_where_it_is_sane),
        ROW(errors_of_the_body_name_the_field),
        ROW(models_are_listed_and_shown),
        ROW(slots_have_their_cached_tokens),
        ROW(files_of_slots_are_refused_with_advice),
        ROW(metrics_count_by_route_and_status_never_by_path),
        ROW(one_connection_serves_request_after_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
