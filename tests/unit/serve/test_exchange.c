/* Replies over real sockets: streamed and whole, several choices, clients that disconnect or do not read
 * (backpressure), failures. */
#include "base/memory.h"
#include "unit/serve/harness.h"

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define CHAT        "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]"
#define CHAT_WHOLE  "{" CHAT "}"
#define CHAT_STREAM "{\"stream\":true," CHAT "}"
#define CHAT_ROUTE  "/v1/chat/completions"

static const hearth_result result = {.cache_n = 8, .prompt_n = 2, .predicted_n = 2, .prompt_ms = 1, .predicted_ms = 1};

static void a_reply_is_one_json_object(void **state)
{
    static const char *const texts[] = {"Hel", "lo \xe2\x9c\x93 ", "\xf0\x9f\x94\xa5"};
    static const struct fake_script script = {.texts = texts, .n_texts = 3, .result = {.cache_n = 8, .prompt_n = 2}};
    struct client client = harness_start(*state);
    fake_play(&script);
    struct response response = ask(&client, "POST", CHAT_ROUTE, CHAT_WHOLE);
    assert_int_equal(response.status, 200);
    assert_string_equal(response_header(&response, "Content-Type"), "application/json");
    json_t *json = json_loads(response.body.v, 0, NULL);
    assert_non_null(json);
    json_t *choice = json_array_get(json_object_get(json, "choices"), 0);
    assert_string_equal(json_string_value(json_object_get(json_object_get(choice, "message"), "content")),
                        "Hello \xe2\x9c\x93 \xf0\x9f\x94\xa5");
    assert_string_equal(json_string_value(json_object_get(json, "model")), "demo");
    assert_memory_equal(json_string_value(json_object_get(json, "id")), "chatcmpl-", 9);
    json_decref(json);
    response_release(&response);
    client_close(&client);
}

static void a_stream_sends_nothing_until_it_started_and_then_all_in_order(void **state)
{
    struct client client = harness_start(*state);
    char byte;
    client_send(&client, "POST", CHAT_ROUTE, "X-Request-Id: mine-1\r\n", CHAT_STREAM);
    const hearth_params *params = fake_wait(0);
    assert_string_equal(params->request_id, "mine-1");
    /* The stream must be silent: a second request's answer proves that the server had the time to send something. */
    struct client other = client_open(((struct harness *)*state)->port, 0);
    struct response health = ask(&other, "GET", "/health", NULL);
    response_release(&health);
    assert_int_equal(recv(client.fd, &byte, 1, MSG_DONTWAIT), -1);

    fake_started(0);
    client_await(&client, "\"role\":\"assistant\"");
    fake_text(0, "one");
    client_await(&client, "{\"content\":\"one\"}");
    fake_text(0, "two");
    fake_done(0, &result);
    struct response response = client_read(&client, true);
    assert_int_equal(response.status, 200);
    assert_string_equal(response_header(&response, "Content-Type"), "text/event-stream");
    assert_string_equal(response_header(&response, "X-Request-Id"), "mine-1");
    const char *role = strstr(response.body.v, "\"role\""), *one = strstr(response.body.v, "\"one\""),
               *two = strstr(response.body.v, "\"two\""),
               *finish = strstr(response.body.v, "\"finish_reason\":\"stop\""),
               *done = strstr(response.body.v, "data: [DONE]\n\n");
    assert_true(role != NULL && role < one && one < two && two < finish && finish < done);
    assert_string_equal(done, "data: [DONE]\n\n");
    response_release(&response);
    client_close(&client);
    client_close(&other);
}

/* Who has the whole answer may have the model unloaded. */
static void an_answered_request_has_let_go_of_its_model(void **state)
{
    static const char *const texts[] = {"Hello"}, *const bodies[] = {CHAT_WHOLE, CHAT_STREAM};
    static const struct fake_script script = {.texts = texts, .n_texts = 1, .result = {.prompt_n = 2}};
    struct client client = harness_start(*state);
    for (int i = 0; i < 50; i++) {
        fake_play(&script);
        struct response response = ask(&client, "POST", CHAT_ROUTE, bodies[i % 2]);
        assert_int_equal(fake_unreleased(), 0);
        assert_int_equal(response.status, 200);
        response_release(&response);
    }
    client_close(&client);
}

static void a_chats_reply_is_parsed_whole_and_streamed(void **state)
{
    static const char *const texts[] = {"~rHm", "~r.", "Let me ", "see", "~clook", "~a{\"at\":", "~a1}", "~cwait"};
    static const struct fake_script script = {.texts = texts, .n_texts = 8, .result = {.cache_n = 8, .prompt_n = 2}};
    struct client client = harness_start(*state);
    fake_play(&script);
    struct response response = ask(&client, "POST", CHAT_ROUTE, CHAT_WHOLE);
    assert_non_null(strstr(
        response.body.v, "\"message\":{\"role\":\"assistant\",\"content\":\"Let me see\",\"reasoning_content\":\"Hm.\","
                         "\"tool_calls\":[{\"id\":\"call_0\",\"type\":\"function\",\"function\":{\"name\":\"look\","
                         "\"arguments\":\"{\\\"at\\\":1}\"}},{\"id\":\"call_1\",\"type\":\"function\",\"function\":{"
                         "\"name\":\"wait\",\"arguments\":\"\"}}],\"refusal\":null},\"logprobs\":null,"
                         "\"finish_reason\":\"tool_calls\"}"));
    response_release(&response);
    response = ask(&client, "POST", CHAT_ROUTE, CHAT_STREAM);
    static const char *const deltas[] = {
        "\"delta\":{\"reasoning_content\":\"Hm\"},",
        "\"delta\":{\"content\":\"Let me \"},",
        "\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"call_0\",\"type\":\"function\",\"function\":{\"name\":"
        "\"look\","
        "\"arguments\":\"\"}}]},",
        "\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\\\"at\\\":\"}}]},",
        "\"delta\":{\"tool_calls\":[{\"index\":1,\"id\":\"call_1\",",
        "\"delta\":{},\"logprobs\":null,\"finish_reason\":\"tool_calls\""};
    const char *at = response.body.v;
    for (size_t i = 0; i < sizeof deltas / sizeof *deltas; i++) {
        at = strstr(at, deltas[i]);
        if (at == NULL) fail_msg("%s is missing, or out of order, in %s", deltas[i], response.body.v);
    }
    response_release(&response);
    client_close(&client);
}

/* Whatever ended it: there is no call to make. */
static void half_a_call_is_a_reply_that_was_cut_off_with_each_api(void **state)
{
    static const char *const texts[] = {"~cget", "~a{\"a\":fal~"};
    static const struct fake_script script = {.texts = texts, .n_texts = 2, .result = {.cache_n = 8, .prompt_n = 2}};
    static const char *const rows[][3] = {
        {CHAT_ROUTE, "{%s" CHAT "}", "\"finish_reason\":\"length\""},
        {"/v1/messages", "{%s\"model\":\"demo\",\"max_tokens\":9," CHAT "}", "\"stop_reason\":\"max_tokens\""},
        {"/v1/responses", "{%s\"model\":\"demo\",\"input\":\"Hi\"}", "\"status\":\"incomplete\""},
        {"/api/chat", "{%s\"model\":\"demo\"," CHAT "}", "\"done_reason\":\"length\""},
    };
    struct client client = harness_start(*state);
    fake_play(&script);
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        const char *const *row = rows[i / 2];
        char *body = mem_format(row[1], i % 2 == 0 ? "\"stream\":true," : "\"stream\":false,");
        struct response response = ask(&client, "POST", row[0], body);
        assert_int_equal(response.status, 200);
        if (strstr(response.body.v, row[2]) == NULL) fail_msg("%s: %s", row[0], response.body.v);
        response_release(&response);
        free(body);
    }
    client_close(&client);
}

static void logprobs_come_with_their_tokens_and_not_at_the_end(void **state)
{
    static const char *const texts[] = {"a", "b\xc3\xa9"};
    static const struct fake_script script = {.texts = texts, .n_texts = 2, .result = {.cache_n = 8, .prompt_n = 2}};
    struct client client = harness_start(*state);
    fake_play(&script);
    struct response response = ask(&client, "POST", CHAT_ROUTE, "{\"logprobs\":true,\"top_logprobs\":1," CHAT "}");
    assert_non_null(
        strstr(response.body.v,
               "\"logprobs\":{\"content\":[{\"token\":\"a\",\"logprob\":-0.5,\"bytes\":[97],\"top_logprobs\":[{"
               "\"token\":\"a\",\"logprob\":-0.5,\"bytes\":[97]}]},{\"token\":\"b\xc3\xa9\",\"logprob\":-0.5,"
               "\"bytes\":[98,195,169],"));
    response_release(&response);
    response = ask(&client, "POST", CHAT_ROUTE, "{\"stream\":true,\"logprobs\":true," CHAT "}");
    assert_non_null(strstr(response.body.v, "\"delta\":{\"content\":\"a\"},\"logprobs\":{\"content\":[{\"token\":\"a\","
                                            "\"logprob\":-0.5,\"bytes\":[97],\"top_logprobs\":[]}],\"refusal\":null}"));
    assert_non_null(strstr(response.body.v, "\"delta\":{},\"logprobs\":null,\"finish_reason\":\"stop\""));
    response_release(&response);
    response = ask(&client, "POST", "/v1/completions", "{\"prompt\":\"x\",\"logprobs\":1}");
    assert_non_null(strstr(response.body.v,
                           "\"logprobs\":{\"tokens\":[\"a\",\"b\xc3\xa9\"],\"token_logprobs\":[-0.5,-0.5],"
                           "\"top_logprobs\":[{\"a\":-0.5},{\"b\xc3\xa9\":-0.5}],"
                           "\"text_offset\":[0,1]}"));
    response_release(&response);
    response = ask(&client, "POST", "/v1/completions", "{\"prompt\":\"x\",\"logprobs\":3}");
    assert_non_null(strstr(response.body.v, /* what reads alike is there once, with the likeliest */
                           "\"top_logprobs\":[{\"a\":-0.5,\"\xef\xbf\xbd\":-1.5},"
                           "{\"b\xc3\xa9\":-0.5,\"\xef\xbf\xbd\":-1.5}],"));
    response_release(&response);
    client_close(&client);
}

static void choices_of_several_prompts_come_prompt_by_prompt(void **state)
{
    struct client client = harness_start(*state);
    client_send(&client, "POST", "/v1/completions", "", "{\"prompt\":[\"a\",[7,8]],\"n\":2}");
    fake_wait(3);
    assert_string_equal(fake_wait(1)->text, "a");
    assert_int_equal(fake_wait(2)->n_tokens, 2);
    assert_int_equal(fake_wait(3)->tokens[0], 7);
    for (size_t i = 4; i-- > 0;) {
        char text[] = {(char)('0' + i), '\0'};
        fake_started(i);
        fake_text(i, text);
        fake_done(i, &result);
    }
    struct response response = client_read(&client, true);
    const char *at = response.body.v;
    for (int i = 0; i < 4; i++) {
        char part[64];
        snprintf(part, sizeof part, "{\"index\":%d,\"text\":\"%d\"", i, i);
        at = strstr(at, part);
        assert_non_null(at);
    }
    assert_contains(response.body.v, "\"prompt_tokens\":20,\"completion_tokens\":8,");
    response_release(&response);
    client_close(&client);
}

static void streams_of_several_choices_interleave_by_index(void **state)
{
    struct client client = harness_start(*state);
    client_send(&client, "POST", CHAT_ROUTE, "", "{\"stream\":true,\"n\":2," CHAT "}");
    fake_wait(1);
    fake_started(0);
    fake_text(0, "a0");
    fake_started(1);
    fake_text(1, "b1");
    fake_text(0, "c0");
    fake_done(1, &result);
    client_await(&client, "{\"index\":1,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"stop\"}");
    assert_null(strstr(client.in.v, "[DONE]"));
    fake_done(0, &result);
    struct response response = client_read(&client, true);
    assert_contains(response.body.v, "{\"index\":1,\"delta\":{\"role\"");
    const char *a = strstr(response.body.v, "{\"index\":0,\"delta\":{\"content\":\"a0\"}"),
               *b = strstr(response.body.v, "{\"index\":1,\"delta\":{\"content\":\"b1\"}"),
               *c = strstr(response.body.v, "{\"index\":0,\"delta\":{\"content\":\"c0\"}");
    assert_true(a != NULL && a < b && b < c);
    response_release(&response);
    client_close(&client);
}

static void a_client_that_leaves_cancels_all_its_requests(void **state)
{
    static const char *const bodies[] = {"{\"stream\":true,\"n\":2," CHAT "}", "{\"n\":2," CHAT "}"};
    struct harness *h = *state;
    struct client other = harness_start(h);
    for (size_t i = 0; i < 4; i++) {
        bool started = i % 2 == 0;
        struct client client = client_open(h->port, 0);
        client_send(&client, "POST", CHAT_ROUTE, "", bodies[i / 2]);
        fake_wait(2 * i + 1);
        if (started) {
            fake_started(2 * i);
            fake_text(2 * i, "x");
            if (i == 0) client_await(&client, "\"x\"");
        }
        client_close(&client);
        fake_wait_ended(2 * i);
        fake_wait_ended(2 * i + 1);
        assert_true(fake_cancelled(2 * i) && fake_cancelled(2 * i + 1));
    }
    struct response response = ask(&other, "GET", "/metrics", NULL);
    assert_contains(response.body.v, "hearth_http_requests_total{route=\"/v1/chat/completions\",status=\"499\"} 4\n");
    assert_contains(response.body.v, "hearth_http_active_requests 1\n");
    response_release(&response);
    client_close(&other);
}

static void events_after_the_client_left_are_harmless(void **state)
{
    struct harness *h = *state;
    struct client other = harness_start(h);
    struct client client = client_open(h->port, 0);
    client_send(&client, "POST", CHAT_ROUTE, "", CHAT_STREAM);
    fake_wait(0);
    fake_started(0);
    client_close(&client);
    while (fake_text(0, "more")) continue;
    fake_wait_ended(0);
    struct response response = ask(&other, "GET", "/health", NULL);
    assert_int_equal(response.status, 200);
    response_release(&response);
    client_close(&other);
}

/* The kernel buffers a few megabytes; what the server holds beyond that is within its limits. Answers of other
 * requests prove that it had the time to process each piece. */
static void a_client_that_does_not_read_is_cut_off(void **state)
{
    struct harness *h = *state;
    h->limits.outbox_bytes = 64 << 10;
    h->limits.backlog_bytes = 16 << 10;
    struct client other = harness_start(h);
    struct client client = client_open(h->port, 4096);
    static char text[16384];
    memset(text, 'x', sizeof text - 1);
    client_send(&client, "POST", CHAT_ROUTE, "", CHAT_STREAM);
    fake_wait(0);
    fake_started(0);
    for (size_t sent = 0; fake_text(0, text); sent += sizeof text) {
        struct response response = ask(&other, "GET", "/health", NULL);
        assert_int_equal(response.status, 200);
        response_release(&response);
        if (sent > (size_t)32 << 20) fail_msg("%zu bytes were taken for a client that does not read", sent);
    }
    fake_wait_ended(0);
    assert_true(fake_cancelled(0));
    client_await(&client, "\"code\":\"cancelled\"");
    client_close(&client);
    client_close(&other);
}

static void a_slow_client_that_reads_on_gets_everything(void **state)
{
    struct harness *h = *state;
    h->limits.backlog_bytes = 4 << 10;
    struct client unused = harness_start(h);
    struct client client = client_open(h->port, 4096);
    client_send(&client, "POST", CHAT_ROUTE, "", CHAT_STREAM);
    fake_wait(0);
    fake_started(0);
    for (int i = 0; i < 4000; i++) {
        char text[32];
        snprintf(text, sizeof text, "<%d>", i);
        assert_true(fake_text(0, text));
    }
    fake_done(0, &result);
    struct response response = client_read(&client, true);
    const char *at = response.body.v;
    for (int i = 0; i < 4000; i++) {
        char part[32];
        snprintf(part, sizeof part, "\"<%d>\"", i);
        at = strstr(at, part);
        if (at == NULL) fail_msg("piece %d is missing", i);
    }
    assert_contains(at, "data: [DONE]\n\n");
    assert_false(fake_cancelled(0));
    response_release(&response);
    client_close(&client);
    client_close(&unused);
}

static void a_quiet_stream_is_kept_alive_with_comments(void **state)
{
    struct harness *h = *state;
    h->limits.ping_ms = 20;
    struct client client = harness_start(h);
    client_send(&client, "POST", CHAT_ROUTE, "", CHAT_STREAM);
    fake_wait(0);
    fake_started(0);
    client_await(&client, "3\r\n:\n\n\r\n3\r\n:\n\n\r\n");
    fake_done(0, &result);
    struct response response = client_read(&client, true);
    assert_contains(response.body.v, "data: [DONE]\n\n");
    response_release(&response);
    client_close(&client);
}

struct thinker {
    pthread_t thread;
    atomic_bool enough;
};

static void *think(void *ud)
{
    struct thinker *thinker = ud;
    while (!atomic_load(&thinker->enough)) {
        fake_text(0, "~rHm");
        usleep(2000);
    }
    return NULL;
}

/* What the model writes and nobody is sent keeps no connection alive. */
static void a_stream_of_hidden_reasoning_is_kept_alive_too(void **state)
{
    struct harness *h = *state;
    struct thinker thinker = {.enough = false};
    h->limits.ping_ms = 20;
    struct client client = harness_start(h);
    client_send(&client, "POST", CHAT_ROUTE, "", "{\"stream\":true,\"reasoning\":{\"exclude\":true}," CHAT "}");
    fake_wait(0);
    fake_started(0);
    assert_int_equal(pthread_create(&thinker.thread, NULL, think, &thinker), 0);
    client_await(&client, "3\r\n:\n\n\r\n3\r\n:\n\n\r\n");
    atomic_store(&thinker.enough, true);
    pthread_join(thinker.thread, NULL);
    fake_done(0, &result);
    struct response response = client_read(&client, true);
    assert_contains(response.body.v, "data: [DONE]\n\n");
    response_release(&response);
    client_close(&client);
}

static void a_failure_before_the_start_is_an_http_error(void **state)
{
    static const struct {
        hearth_code code;
        int status;
        const char *name, *retry_after;
    } rows[] = {{HEARTH_BUSY, 429, "\"server_busy\"", "1"},
                {HEARTH_TOO_LONG, 400, "\"context_length_exceeded\"", NULL},
                {HEARTH_UNAVAILABLE, 503, "\"unavailable\"", "1"},
                {HEARTH_UNSUPPORTED, 400, "\"not_supported\"", NULL},
                {HEARTH_INTERNAL, 500, "\"internal_error\"", NULL}};
    struct client client = harness_start(*state);
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        client_send(&client, "POST", CHAT_ROUTE, "", i % 2 ? CHAT_WHOLE : CHAT_STREAM);
        fake_wait(i);
        fake_failed(i, rows[i / 2].code, "it went wrong");
        struct response response = client_read(&client, true);
        assert_int_equal(response.status, rows[i / 2].status);
        assert_contains(response.body.v, rows[i / 2].name);
        assert_contains(response.body.v, "it went wrong");
        const char *retry_after = response_header(&response, "Retry-After");
        if (rows[i / 2].retry_after == NULL)
            assert_null(retry_after);
        else
            assert_string_equal(retry_after, rows[i / 2].retry_after);
        response_release(&response);
    }
    client_close(&client);
}

static void a_failure_after_the_start_ends_the_stream_with_an_error(void **state)
{
    struct client client = harness_start(*state);
    client_send(&client, "POST", CHAT_ROUTE, "", CHAT_STREAM);
    fake_wait(0);
    fake_started(0);
    fake_text(0, "begun");
    fake_failed(0, HEARTH_INTERNAL, "decode failed");
    struct response response = client_read(&client, true);
    assert_int_equal(response.status, 200);
    assert_contains(response.body.v, "\"begun\"");
    const char *finish = strstr(response.body.v, "\"finish_reason\":\"error\"");
    const char *error = strstr(response.body.v, "data: {\"error\":{\"message\":\"decode failed\"");
    assert_true(finish != NULL && error != NULL && finish < error);
    assert_null(strstr(error, "[DONE]"));
    response_release(&response);
    client_close(&client);
}

static void one_failing_choice_fails_all(void **state)
{
    struct client client = harness_start(*state);
    client_send(&client, "POST", CHAT_ROUTE, "", "{\"n\":3," CHAT "}");
    fake_wait(2);
    fake_started(0);
    fake_failed(1, HEARTH_BUSY, "server busy");
    struct response response = client_read(&client, true);
    assert_int_equal(response.status, 429);
    fake_wait_ended(0);
    fake_wait_ended(2);
    assert_true(fake_cancelled(0) && fake_cancelled(2));
    response_release(&response);
    client_close(&client);
}

static void a_choice_that_cannot_be_submitted_takes_the_others_back(void **state)
{
    struct client client = harness_start(*state);
    fake_fail_submit(1, HEARTH_INVALID, "max_tokens", "no");
    struct response response = ask(&client, "POST", CHAT_ROUTE, "{\"n\":3," CHAT "}");
    assert_int_equal(response.status, 400);
    assert_contains(response.body.v, "\"param\":\"max_tokens\"");
    fake_wait_ended(0);
    assert_true(fake_cancelled(0));
    assert_int_equal(fake_submitted(), 1);
    response_release(&response);
    client_close(&client);
}

static void many_clients_get_their_own_streams(void **state)
{
    enum { CLIENTS = 16, PIECES = 50 };
    struct harness *h = *state;
    struct client unused = harness_start(h), clients[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        char body[64];
        clients[i] = client_open(h->port, 0);
        snprintf(body, sizeof body, "{\"stream\":true,\"prompt\":\"%d\"}", i);
        client_send(&clients[i], "POST", "/v1/completions", "", body);
        fake_wait((size_t)i);
        fake_started((size_t)i);
    }
    for (int piece = 0; piece < PIECES; piece++)
        for (int i = 0; i < CLIENTS; i++) {
            char text[32];
            snprintf(text, sizeof text, "<%s>", fake_wait((size_t)i)->text);
            fake_text((size_t)i, text);
        }
    for (int i = 0; i < CLIENTS; i++) {
        char text[32];
        int n = 0;
        snprintf(text, sizeof text, "\"text\":\"<%d>\"", i);
        fake_done((size_t)i, &result);
        struct response response = client_read(&clients[i], true);
        for (const char *at = response.body.v; (at = strstr(at, "\"text\":\"<")) != NULL; at++, n++)
            assert_memory_equal(at, text, strlen(text));
        assert_int_equal(n, PIECES);
        response_release(&response);
        client_close(&clients[i]);
    }
    client_close(&unused);
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, harness_setup, harness_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(a_reply_is_one_json_object),
        ROW(a_stream_sends_nothing_until_it_started_and_then_all_in_order),
        ROW(an_answered_request_has_let_go_of_its_model),
        ROW(a_chats_reply_is_parsed_whole_and_streamed),
        ROW(half_a_call_is_a_reply_that_was_cut_off_with_each_api),
        ROW(logprobs_come_with_their_tokens_and_not_at_the_end),
        ROW(choices_of_several_prompts_come_prompt_by_prompt),
        ROW(streams_of_several_choices_interleave_by_index),
        ROW(a_client_that_leaves_cancels_all_its_requests),
        ROW(events_after_the_client_left_are_harmless),
        ROW(a_client_that_does_not_read_is_cut_off),
        ROW(a_slow_client_that_reads_on_gets_everything),
        ROW(a_quiet_stream_is_kept_alive_with_comments),
        ROW(a_stream_of_hidden_reasoning_is_kept_alive_too),
        ROW(a_failure_before_the_start_is_an_http_error),
        ROW(a_failure_after_the_start_ends_the_stream_with_an_error),
        ROW(one_failing_choice_fails_all),
        ROW(a_choice_that_cannot_be_submitted_takes_the_others_back),
        ROW(many_clients_get_their_own_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
