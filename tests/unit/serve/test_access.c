/* API keys at the routes: grants, errors for missing and insufficient keys, and isolation of the owners' cached
 * prefixes. */
#include "unit/serve/harness.h"

#include "serve/core/errors.h"

#include <stdio.h>

#define CHAT_ROUTE "/v1/chat/completions"
#define CHAT       "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}"
#define ALL        "all-keys-0123456789abcdef"
#define CHATTER    "chatter-0123456789abcdef"
#define TWIN       "twin-of-all-0123456789ab"
#define NAMELESS   "nameless-0123456789abcdef"

#define RESULT                                                                                                         \
    {                                                                                                                  \
        .cache_n = 8, .prompt_n = 2, .predicted_n = 2                                                                  \
    }

static const hearth_result result = RESULT;
static const char *const texts[] = {"Hello"};
static const struct fake_script script = {.texts = texts, .n_texts = 1, .result = RESULT};

static char path[] = "/tmp/test-access-XXXXXX";

static void write_keys(const char *text)
{
    FILE *file = fopen(path, "we");
    fputs(text, file);
    fclose(file);
}

static int setup(void **state)
{
    strcpy(path + sizeof path - 7, "XXXXXX");
    int fd = mkstemp(path);
    if (fd < 0) return -1;
    close(fd);
    write_keys(ALL " all\n" CHATTER " chatter chat\n" TWIN " all\n" NAMELESS "\n");
    int rc = harness_setup(state);
    fake_set("server.api_keys_file", path);
    fake_play(&script);
    return rc;
}

static int teardown(void **state)
{
    unlink(path);
    return harness_teardown(state);
}

static struct response ask_with(struct client *client, const char *method, const char *route, const char *headers,
                                const char *body)
{
    client_send(client, method, route, headers, body);
    return client_read(client, strcmp(method, "HEAD") != 0);
}

static int status_of(struct client *client, const char *method, const char *route, const char *headers,
                     const char *body)
{
    struct response response = ask_with(client, method, route, headers, body);
    int status = response.status;
    response_release(&response);
    return status;
}

static void health_needs_no_key_and_all_else_does(void **state)
{
    static const struct {
        const char *method, *path;
        int status;
    } rows[] = {
        {"GET", "/health", 200},      {"HEAD", "/health", 200},        {"GET", "/v1/health", 200},
        {"GET", "/v1/liveness", 200}, {"GET", "/v1/readiness", 200},   {"OPTIONS", CHAT_ROUTE, 204},
        {"GET", "/metrics", 401},     {"GET", "/slots", 401},          {"GET", "/cache", 401},
        {"GET", "/v1/models", 401},   {"GET", "/v1/models/demo", 401}, {"GET", "/nothing", 401},
        {"DELETE", "/health", 401},   {"GET", CHAT_ROUTE, 401},        {"POST", CHAT_ROUTE, 401},
        {"GET", "/api/version", 200}, {"GET", "/api/tags", 401},       {"POST", "/api/chat", 401},
    };
    struct client client = harness_start(*state);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct response response = ask(&client, rows[i].method, rows[i].path, NULL);
        if (response.status != rows[i].status) fail_msg("%d for %s", response.status, rows[i].path);
        if (response.status == 401) assert_string_equal(response_header(&response, "WWW-Authenticate"), "Bearer");
        response_release(&response);
    }
    assert_int_equal(fake_submitted(), 0);
    client_close(&client);
}

static void a_key_comes_in_any_of_three_headers(void **state)
{
    static const struct {
        const char *headers;
        int status;
    } rows[] = {
        {"Authorization: Bearer " ALL "\r\n", 200},
        {"authorization: bearer   " ALL "\r\n", 200},
        {"X-Api-Key: " ALL "\r\n", 200},
        {"api-key: " ALL "\r\n", 200},
        {"Authorization: Bearer no-key\r\nX-Api-Key: " ALL "\r\n", 200},
        {"Authorization: Basic " ALL "\r\n", 401},
        {"Authorization: " ALL "\r\n", 401},
        {"Authorization: Bearer\r\n", 401},
        {"Authorization: Bearer " ALL "x\r\n", 401},
        {"Authorization: Bearer ALL\r\n", 401},
        {"X-Api-Key: \r\n", 401},
        {"X-Api-Key: Bearer " ALL "\r\n", 401},
        {"Cookie: key=" ALL "\r\n", 401},
    };
    struct client client = harness_start(*state);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int status = status_of(&client, "GET", "/v1/models", rows[i].headers, NULL);
        if (status != rows[i].status) fail_msg("%d for %s", status, rows[i].headers);
    }
    assert_int_equal(status_of(&client, "GET", "/v1/models?key=" ALL, "", NULL), 401);
    client_close(&client);
}

static void a_key_opens_the_routes_of_its_grants_only(void **state)
{
    static const struct {
        const char *method, *path, *body;
        int status;
        const char *grant;
    } rows[] = {
        {"POST", CHAT_ROUTE, CHAT, 200, NULL},
        {"POST", "/v1/completions", "{\"prompt\":\"a\"}", 403, "'completions'"},
        {"GET", "/v1/models", NULL, 403, "'models'"},
        {"GET", "/slots", NULL, 403, "'status'"},
        {"GET", "/metrics", NULL, 403, "'status'"},
        {"POST", "/cache/lookup", CHAT, 403, "'cache'"},
        {"GET", "/nothing", NULL, 404, NULL},
        {"GET", "/v1/completions", NULL, 405, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct client client = i == 0 ? harness_start(*state) : client_open(((struct harness *)*state)->port, 0);
        const char *key = "Authorization: Bearer " CHATTER "\r\n";
        struct response response = ask_with(&client, rows[i].method, rows[i].path, key, rows[i].body);
        if (response.status != rows[i].status) fail_msg("%d for %s", response.status, rows[i].path);
        if (rows[i].grant != NULL) assert_contains(response.body.v, rows[i].grant);
        if (rows[i].grant != NULL) assert_contains(response.body.v, "\"type\":\"permission_error\"");
        response_release(&response);
        client_close(&client);
    }
    assert_int_equal(fake_submitted(), 1);
}

static void the_errors_have_the_form_of_the_api(void **state)
{
    struct client client = harness_start(*state);
    struct response response = ask(&client, "GET", "/v1/models", NULL);
    assert_string_equal(
        response.body.v,
        "{\"error\":{\"message\":\"an API key is missing: send the header 'Authorization: Bearer KEY'\","
        "\"type\":\"authentication_error\",\"code\":\"invalid_api_key\",\"param\":null}}");
    response_release(&response);
    response = ask_with(&client, "GET", "/v1/models", "X-Api-Key: no\r\n", NULL);
    assert_string_equal(response.body.v, "{\"error\":{\"message\":\"the API key is not known here\",\"type\":"
                                         "\"authentication_error\",\"code\":\"invalid_api_key\",\"param\":null}}");
    response_release(&response);
    client_close(&client);
}

/* The body is announced and never sent: only a server that does not wait for it can answer. */
static void a_wrong_key_is_refused_before_the_body_is_sent(void **state)
{
    static const struct {
        const char *key, *expect;
        int status;
    } rows[] = {{"no", "", 401}, {CHATTER, "", 403}, {"no", "Expect: 100-continue\r\n", 401}};
    struct harness *h = *state;
    struct client first = harness_start(h);
    client_close(&first);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct client client = client_open(h->port, 0);
        char headers[256];
        snprintf(headers, sizeof headers, "X-Api-Key: %s\r\n%sContent-Length: 30000000\r\n", rows[i].key,
                 rows[i].expect);
        client_send(&client, "POST", "/v1/completions", headers, NULL);
        struct response response = client_read(&client, true);
        assert_int_equal(response.status, rows[i].status);
        assert_string_equal(response_header(&response, "Connection"), "close");
        assert_false(client_receive(&client));
        response_release(&response);
        client_close(&client);
    }
}

/* Who has no key fills no memory with bodies, and holds no connection for as long as one may take. */
static void what_needs_no_key_is_answered_before_its_body_is_sent(void **state)
{
    static const struct {
        const char *method, *route, *headers;
        int status;
    } rows[] = {{"GET", "/health", "", 200},
                {"GET", "/api/version", "Expect: 100-continue\r\n", 200},
                {"OPTIONS", CHAT_ROUTE, "", 204}};
    struct harness *h = *state;
    struct client first = harness_start(h);
    client_close(&first);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct client client = client_open(h->port, 0);
        char headers[256];
        snprintf(headers, sizeof headers, "%sContent-Length: 30000000\r\n", rows[i].headers);
        client_send(&client, rows[i].method, rows[i].route, headers, NULL);
        struct response response = client_read(&client, true);
        assert_int_equal(response.status, rows[i].status);
        assert_string_equal(response_header(&response, "Connection"), "close");
        assert_false(client_receive(&client));
        response_release(&response);
        client_close(&client);
    }
}

static void a_right_key_with_a_body_keeps_the_connection(void **state)
{
    struct client client = harness_start(*state);
    for (int i = 0; i < 3; i++) {
        struct response response = ask_with(&client, "POST", CHAT_ROUTE, "X-Api-Key: " ALL "\r\n", CHAT);
        assert_int_equal(response.status, 200);
        assert_string_equal(response_header(&response, "Connection"), "keep-alive");
        response_release(&response);
    }
    client_close(&client);
}

/* Ollama's clients unload a model with a chat without messages. */
static void only_who_may_unload_models_does(void **state)
{
    static const char unload[] = "{\"model\":\"demo\",\"messages\":[],\"keep_alive\":0}";
    struct client client = harness_start(*state);
    assert_int_equal(status_of(&client, "POST", "/api/chat", "X-Api-Key: " CHATTER "\r\n", unload), 200);
    assert_int_equal(fake_unloads(), 0);
    assert_int_equal(status_of(&client, "POST", "/api/chat", "X-Api-Key: " ALL "\r\n", unload), 200);
    assert_int_equal(fake_unloads(), 1);
    client_close(&client);
}

static void without_a_file_of_keys_no_key_is_needed(void **state)
{
    fake_set("server.api_keys_file", "null");
    struct client client = harness_start(*state);
    assert_int_equal(status_of(&client, "GET", "/v1/models", "", NULL), 200);
    assert_int_equal(status_of(&client, "GET", "/v1/models", "Authorization: Bearer whatever\r\n", NULL), 200);
    client_close(&client);
}

/* ---- Reloading ---- */

static void await_status(struct client *client, const char *headers, int status)
{
    while (status_of(client, "GET", "/v1/models", headers, NULL) != status) continue;
}

static void a_hangup_reads_the_keys_again_and_running_requests_go_on(void **state)
{
    fake_play(NULL);
    struct harness *h = *state;
    struct client running = harness_start(h), client = client_open(h->port, 0);
    client_send(&running, "POST", CHAT_ROUTE, "X-Api-Key: " ALL "\r\n", CHAT);
    fake_wait(0);
    write_keys("another-0123456789abcdef new\n");
    assert_int_equal(status_of(&client, "GET", "/v1/models", "X-Api-Key: " ALL "\r\n", NULL), 200);
    kill(getpid(), SIGHUP);
    await_status(&client, "X-Api-Key: another-0123456789abcdef\r\n", 200);
    assert_int_equal(status_of(&client, "GET", "/v1/models", "X-Api-Key: " ALL "\r\n", NULL), 401);
    fake_started(0);
    fake_text(0, "still here");
    fake_done(0, &result);
    struct response response = client_read(&running, true);
    assert_contains(response.body.v, "still here");
    response_release(&response);
    client_close(&running);
    client_close(&client);
}

static void a_faulty_file_keeps_the_old_keys(void **state)
{
    struct client client = harness_start(*state), live = client_open(((struct harness *)*state)->port, 0);
    client_send(&live, "GET", "/live", "X-Api-Key: " ALL "\r\n", NULL);
    client_await(&live, "data: {\"slots\":");
    write_keys("another-0123456789abcdef new chta\n");
    kill(getpid(), SIGHUP);
    client_await(&live, "\r\n0\r\n\r\n"); /* that stream ends once the keys were read */
    client_close(&live);
    assert_int_equal(status_of(&client, "GET", "/v1/models", "X-Api-Key: " ALL "\r\n", NULL), 200);
    assert_int_equal(status_of(&client, "GET", "/v1/models", "", NULL), 401);
    client_close(&client);
}

static void a_faulty_file_is_refused_at_the_start(void **state)
{
    (void)state;
    hearth_error error;
    write_keys(ALL " all chta\n");
    assert_int_equal(serve_run(NULL, NULL, &error), HEARTH_INVALID);
    assert_contains(error.message, "server.api_keys_file: ");
    assert_contains(error.message, ":1: the grants");
    assert_int_equal(serve_check(NULL, &error), HEARTH_INVALID);
    write_keys(ALL " all chat\n");
    assert_int_equal(serve_check(NULL, &error), HEARTH_OK);
}

/* ---- Isolation ---- */

/* The salt of request `i`, with which the key asked and a salt of its own or NULL. */
static const char *salt_of(struct client *client, size_t i, const char *key, const char *route, const char *own)
{
    char headers[128], body[256], salt[64] = "";
    snprintf(headers, sizeof headers, "X-Api-Key: %s\r\n", key);
    if (own != NULL) snprintf(salt, sizeof salt, "\"cache_salt\":\"%s\",", own);
    snprintf(body, sizeof body, "{%s\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}", salt);
    assert_int_equal(status_of(client, "POST", route, headers, body), 200);
    const char *got = fake_wait(i)->cache_salt;
    return got == NULL ? "" : got;
}

static void owners_of_keys_are_isolated_where_configured(void **state)
{
    fake_set("server.isolate_keys", "true");
    struct client client = harness_start(*state);
    assert_string_equal(salt_of(&client, 0, ALL, CHAT_ROUTE, NULL), "name all\n");
    assert_string_equal(salt_of(&client, 1, TWIN, CHAT_ROUTE, NULL), "name all\n"); /* the same owner's */
    assert_string_equal(salt_of(&client, 2, ALL, CHAT_ROUTE, "s"), "name all\ns");
    assert_string_equal(salt_of(&client, 3, CHATTER, CHAT_ROUTE, "s"), "name chatter\ns");
    assert_string_equal(salt_of(&client, 4, CHATTER, CHAT_ROUTE, "name all\\n"), "name chatter\nname all\n");
    assert_string_equal(salt_of(&client, 5, ALL, "/cache/lookup", NULL), "name all\n");
    const char *nameless = salt_of(&client, 6, NAMELESS, CHAT_ROUTE, "x");
    assert_memory_equal(nameless, "key ", 4);
    assert_int_equal(strlen(nameless), 4 + 64 + 2);
    client_close(&client);
}

static void owners_are_isolated_on_every_route_that_computes_or_looks_up(void **state)
{
    static const struct {
        const char *route, *body;
    } rows[] = {{"/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}"},
                {"/v1/responses", "{\"input\":\"Hi\"}"},
                {"/v1/messages", "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}"},
                {"/v1/completions", "{\"prompt\":\"Hi\"}"},
                {"/completion", "{\"prompt\":\"Hi\"}"},
                {"/infill", "{\"input_prefix\":\"Hi\",\"input_suffix\":\"\"}"},
                {"/cache/lookup", "{\"prompt\":\"Hi\"}"}};
    fake_set("server.isolate_keys", "true");
    struct client client = harness_start(*state);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(status_of(&client, "POST", rows[i].route, "X-Api-Key: " ALL "\r\n", rows[i].body), 200);
        assert_string_equal(fake_wait(i)->cache_salt, "name all\n");
    }
    client_close(&client);
}

static void two_owners_are_isolated_by_default(void **state)
{
    struct client client = harness_start(*state);
    assert_string_equal(salt_of(&client, 0, ALL, CHAT_ROUTE, NULL), "name all\n");
    assert_string_equal(salt_of(&client, 1, CHATTER, CHAT_ROUTE, "s"), "name chatter\ns");
    client_close(&client);
}

static void one_owner_has_all_there_is_until_another_comes(void **state)
{
    write_keys(ALL " all\n" TWIN " all\n");
    struct client client = harness_start(*state);
    assert_string_equal(salt_of(&client, 0, ALL, CHAT_ROUTE, NULL), "");
    assert_string_equal(salt_of(&client, 1, TWIN, CHAT_ROUTE, "s"), "s");
    write_keys(ALL " all\n" CHATTER " chatter\n");
    kill(getpid(), SIGHUP);
    await_status(&client, "X-Api-Key: " CHATTER "\r\n", 200);
    assert_string_equal(salt_of(&client, 2, ALL, CHAT_ROUTE, NULL), "name all\n");
    client_close(&client);
}

static void without_isolation_salts_are_the_clients_own(void **state)
{
    fake_set("server.isolate_keys", "false");
    struct client client = harness_start(*state);
    assert_string_equal(salt_of(&client, 0, ALL, CHAT_ROUTE, NULL), "");
    assert_string_equal(salt_of(&client, 1, CHATTER, CHAT_ROUTE, "s"), "s");
    client_close(&client);
}

/* ---- What errors must not reveal ---- */

static void no_answer_holds_a_path_of_this_machine(void **state)
{
    static const struct {
        const char *message, *expected;
    } rows[] = {
        {"cannot read /home/u/model.gguf: no such file", "cannot read [path]: no such file"},
        {"/srv/kv/ab.rows is damaged", "[path] is damaged"},
        {"http://a.b/c and https://a.b:1/c, not file:///d", "http://a.b/c and https://a.b:1/c, not file:[path]"},
        {"tried '/a/b' and (~/c) and x=/d/e, in vain", "tried '[path]' and ([path]) and x=[path], in vain"},
        {"there is no model: GET /v1/models lists them", "there is no model: GET /v1/models lists them"},
        {"1/2 and and/or and a / b", "1/2 and and/or and a / b"},
    };
    fake_play(NULL);
    struct client client = harness_start(*state);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        client_send(&client, "POST", CHAT_ROUTE, "X-Api-Key: " ALL "\r\n", CHAT);
        fake_wait(i);
        fake_failed(i, HEARTH_IO, rows[i].message);
        struct response response = client_read(&client, true);
        assert_int_equal(response.status, 500);
        assert_contains(response.body.v, rows[i].expected);
        response_release(&response);
    }
    client_close(&client);
}

/* Sends a head as it is, and reads the answer that ends the connection. */
static struct response send_head(struct harness *h, const char *head)
{
    struct client client = client_open(h->port, 0);
    client_say(&client, head);
    struct response response = client_read(&client, true);
    client_close(&client);
    return response;
}

static void what_http_refuses_by_itself_has_the_form_of_the_route(void **state)
{
    static const struct {
        const char *head;
        int status;
        const char *expected;
    } rows[] = {
        {"POST " CHAT_ROUTE " HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n", 413,
         "\"type\":\"invalid_request_error\",\"code\":\"content_too_large\",\"param\":null}}"},
        {"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n", 413, "\"request_too_large\""},
        {"GET /no HTTP/1.1\r\nHost: x\r\nExpect: more\r\n\r\n", 417, "expectation_failed"},
        {"GET /no HTTP/1.1\r\nHost x\r\n\r\n", 400, "bad_request"},
        {"GET /no HTTP/3.0\r\n", 505, "\"type\":\"invalid_request_error\""},
    };
    struct client client = harness_start(*state);
    client_close(&client);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct response response = send_head(*state, rows[i].head);
        assert_int_equal(response.status, rows[i].status);
        assert_contains(response.body.v, rows[i].expected);
        assert_memory_equal(response_header(&response, "X-Request-Id"), "req-", 4);
        assert_string_equal(response_header(&response, "Vary"), "Origin");
        response_release(&response);
    }
}

static void what_http_refuses_later_has_a_form_too(void **state)
{
    (void)state;
    assert_string_equal(errors_kind(errors_code_of_status(408))->name, "request_timeout");
    assert_string_equal(errors_kind(errors_code_of_status(431))->name, "request_header_fields_too_large");
    assert_string_equal(errors_kind(errors_code_of_status(503))->type, "server_error");
}

static void every_error_of_messages_has_the_id_in_its_body_and_in_a_header_of_that_api(void **state)
{
    static const char own[] = "X-Request-Id: mine-1\r\nConnection: close\r\n";
    static const struct {
        const char *method, *headers;
        int status;
    } rows[] = {
        {"POST", "", 401},
        {"GET", "Authorization: Bearer " ALL "\r\n", 405},
        {"POST", "Authorization: Bearer " ALL "\r\nContent-Length: 99999999999\r\n", 413},
    };
    struct client first = harness_start(*state);
    client_close(&first);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf head = {0};
        buf_printf(&head, "%s /v1/messages HTTP/1.1\r\nHost: x\r\n%s%s\r\n", rows[i].method, own, rows[i].headers);
        struct response response = send_head(*state, head.v);
        assert_int_equal(response.status, rows[i].status);
        assert_string_equal(response_header(&response, "request-id"), "mine-1");
        assert_contains(response.body.v, "\"request_id\":\"mine-1\"");
        response_release(&response);
        buf_release(&head);
    }
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(health_needs_no_key_and_all_else_does),
        ROW(a_key_comes_in_any_of_three_headers),
        ROW(a_key_opens_the_routes_of_its_grants_only),
        ROW(the_errors_have_the_form_of_the_api),
        ROW(a_wrong_key_is_refused_before_the_body_is_sent),
        ROW(what_needs_no_key_is_answered_before_its_body_is_sent),
        ROW(a_right_key_with_a_body_keeps_the_connection),
        ROW(only_who_may_unload_models_does),
        ROW(without_a_file_of_keys_no_key_is_needed),
        ROW(a_hangup_reads_the_keys_again_and_running_requests_go_on),
        ROW(a_faulty_file_keeps_the_old_keys),
        ROW(a_faulty_file_is_refused_at_the_start),
        ROW(owners_of_keys_are_isolated_where_configured),
        ROW(owners_are_isolated_on_every_route_that_computes_or_looks_up),
        ROW(two_owners_are_isolated_by_default),
        ROW(one_owner_has_all_there_is_until_another_comes),
        ROW(without_isolation_salts_are_the_clients_own),
        ROW(no_answer_holds_a_path_of_this_machine),
        ROW(what_http_refuses_by_itself_has_the_form_of_the_route),
        ROW(what_http_refuses_later_has_a_form_too),
        ROW(every_error_of_messages_has_the_id_in_its_body_and_in_a_header_of_that_api),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
