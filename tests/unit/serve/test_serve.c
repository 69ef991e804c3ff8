/* A server from start to end: loading, signals, drains, failures. */
#include "unit/serve/harness.h"

#include <sys/wait.h>

#define CHAT_ROUTE  "/v1/chat/completions"
#define CHAT_STREAM "{\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}"
#define CHAT_WHOLE  "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}"

static const hearth_result result = {.cache_n = 8, .prompt_n = 2, .predicted_n = 2};

static void until_the_models_are_loaded_health_has_the_progress(void **state)
{
    struct harness *h = *state;
    fake_hold_load(true);
    harness_listen(h);
    fake_load_progress(0.42F);
    struct client client = client_open(h->port, 0);
    static const char *const health[] = {"/health", "/v1/readiness"};
    for (int i = 0; i < 2; i++) {
        struct response response = ask(&client, "GET", health[i], NULL);
        assert_int_equal(response.status, 503);
        assert_string_equal(response.body.v, "{\"status\":\"loading model\",\"progress\":0.42,\"model\":\"demo\"}");
        response_release(&response);
    }
    struct response response = ask(&client, "GET", "/v1/liveness", NULL);
    assert_int_equal(response.status, 200);
    response_release(&response);
    response = ask(&client, "POST", CHAT_ROUTE, CHAT_WHOLE);
    assert_int_equal(response.status, 503);
    assert_string_equal(response_header(&response, "Retry-After"), "1");
    assert_contains(response.body.v, "\"type\":\"unavailable_error\"");
    response_release(&response);
    assert_int_equal(fake_submitted(), 0);

    fake_hold_load(false);
    harness_await_ready(h);
    for (int i = 0; i < 2; i++) {
        response = ask(&client, "GET", health[i], NULL);
        assert_int_equal(response.status, 200);
        assert_string_equal(response.body.v, "{\"status\":\"ok\"}");
        response_release(&response);
    }
    client_close(&client);
}

static void a_signal_lets_running_requests_finish(void **state)
{
    struct harness *h = *state;
    struct client idle = harness_start(h), client = client_open(h->port, 0);
    client_send(&client, "POST", CHAT_ROUTE, "", CHAT_STREAM);
    fake_wait(0);
    fake_started(0);
    client_await(&client, "\"role\"");
    kill(getpid(), SIGTERM);
    fake_wait_drained();
    struct response response = ask(&idle, "POST", CHAT_ROUTE, CHAT_WHOLE);
    assert_int_equal(response.status, 503);
    response_release(&response);
    response = ask(&idle, "GET", "/health", NULL);
    assert_string_equal(response.body.v, "{\"status\":\"stopping\"}");
    response_release(&response);

    fake_text(0, "last words");
    fake_done(0, &result);
    harness_join(h);
    assert_int_equal(h->rc, HEARTH_OK);
    response = client_read(&client, true);
    assert_contains(response.body.v, "last words");
    assert_contains(response.body.v, "data: [DONE]\n\n");
    response_release(&response);
    assert_int_equal(fake_submitted(), 1);
    client_close(&client);
    client_close(&idle);
}

static void a_drain_that_takes_too_long_sends_errors_to_the_clients(void **state)
{
    struct harness *h = *state;
    fake_set("server.drain_timeout", "0");
    struct client client = harness_start(h), whole = client_open(h->port, 0);
    client_send(&client, "POST", CHAT_ROUTE, "", CHAT_STREAM);
    fake_wait(0);
    client_send(&whole, "POST", CHAT_ROUTE, "", CHAT_WHOLE);
    fake_wait(1);
    fake_started(0);
    client_await(&client, "\"role\"");
    kill(getpid(), SIGINT);
    harness_join(h);
    assert_int_equal(h->rc, HEARTH_OK);
    struct response response = client_read(&client, true);
    assert_contains(response.body.v, "data: {\"error\":");
    response_release(&response);
    response = client_read(&whole, true);
    assert_int_equal(response.status, 503);
    response_release(&response);
    client_close(&client);
    client_close(&whole);
}

static void a_signal_breaks_off_loading(void **state)
{
    struct harness *h = *state;
    fake_hold_load(true);
    harness_listen(h);
    fake_load_progress(0.1F);
    kill(getpid(), SIGTERM);
    harness_join(h);
    assert_int_equal(h->rc, HEARTH_OK);
    assert_false(h->ready);
}

static void stop_at_once(void *ud, const char *address)
{
    (void)ud, (void)address;
    kill(getpid(), SIGTERM);
}

/* As soon as its address is known. */
static void a_server_that_has_just_begun_to_listen_ends_in_good_order(void **state)
{
    (void)state;
    hearth_error error;
    struct serve_options options = {.on_listening = stop_at_once};
    fake_set("server.listen", "127.0.0.1:0");
    assert_int_equal(serve_run(NULL, &options, &error), HEARTH_OK);
}

static void a_model_that_cannot_be_loaded_ends_the_server(void **state)
{
    struct harness *h = *state;
    fake_fail_load(HEARTH_NO_MEMORY, "not enough memory for demo");
    harness_listen(h);
    harness_join(h);
    assert_int_equal(h->rc, HEARTH_NO_MEMORY);
    assert_string_equal(h->error.message, "not enough memory for demo");
}

static void an_address_that_cannot_be_had_is_an_error(void **state)
{
    (void)state;
    hearth_error error;
    fake_set("server.listen", "256.0.0.1:1");
    assert_true(serve_run(NULL, NULL, &error) < 0);
    assert_true(error.message[0] != '\0');
    fake_set("server.listen", "");
    assert_int_equal(serve_run(NULL, NULL, &error), HEARTH_INVALID);
    assert_string_equal(error.param, "server.listen");
}

static void every_address_of_the_list_is_listened_on(void **state)
{
    struct harness *h = *state;
    h->listen = "127.0.0.1:0, 127.0.0.1:0,127.0.0.1:0";
    harness_listen(h);
    harness_await_ready(h); /* loading begins when all are listened on */
    assert_int_equal(h->n_listening, 3);
}

static void a_hangup_reopens_the_log(void **state)
{
    struct client client = harness_start(*state);
    kill(getpid(), SIGHUP);
    fake_wait_log_reopened();
    struct response response = ask(&client, "GET", "/health", NULL);
    assert_int_equal(response.status, 200);
    response_release(&response);
    client_close(&client);
}

/* In a process of its own, since it calls _exit(). */
static void a_second_signal_ends_at_once(void **state)
{
    struct harness *h = *state;
    pid_t child = fork();
    if (child == 0) {
        struct client client = harness_start(h);
        client_send(&client, "POST", CHAT_ROUTE, "", CHAT_WHOLE);
        fake_wait(0);
        kill(getpid(), SIGINT);
        fake_wait_drained();
        kill(getpid(), SIGINT);
        harness_join(h);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 128 + SIGINT);
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, harness_setup, harness_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(a_second_signal_ends_at_once), /* first: forks, before there are threads */
        ROW(until_the_models_are_loaded_health_has_the_progress),
        ROW(a_signal_lets_running_requests_finish),
        ROW(a_drain_that_takes_too_long_sends_errors_to_the_clients),
        ROW(a_signal_breaks_off_loading),
        ROW(a_server_that_has_just_begun_to_listen_ends_in_good_order),
        ROW(a_model_that_cannot_be_loaded_ends_the_server),
        ROW(an_address_that_cannot_be_had_is_an_error),
        ROW(every_address_of_the_list_is_listened_on),
        ROW(a_hangup_reopens_the_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
