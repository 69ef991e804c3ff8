/* Rate limits of API keys: the token buckets under a fake clock, and errors and headers over HTTP. */
#include "unit/serve/harness.h"

#include "fakes/fake_clock.h"
#include "serve/core/errors.h"
#include "serve/core/ratelimit.h"

#include <stdio.h>

#define SECOND 1000000000LL

/* ---- Buckets ---- */

struct rig {
    struct fake_clock clock;
    struct ratelimits *all;
};

static int rig_open(void **state)
{
    struct rig *rig = calloc(1, sizeof *rig);
    fake_clock_init(&rig->clock);
    rig->all = ratelimits_open(&rig->clock.clock);
    *state = rig;
    return 0;
}

static int rig_close(void **state)
{
    struct rig *rig = *state;
    ratelimits_close(rig->all);
    fake_clock_release(&rig->clock);
    free(rig);
    return 0;
}

static struct key key_of(uint8_t id, struct key_limits limits)
{
    return (struct key){.digest = {id}, .grants = KEYS_ALL, .limits = limits};
}

static bool may_ask(struct rig *rig, const struct key *key)
{
    hearth_error error = {0};
    if (ratelimit_check(rig->all, key, false, &error) == HEARTH_OK) return true;
    assert_int_equal(error.code, (hearth_code)ERRORS_RATE_LIMIT);
    return false;
}

static bool ask_once(struct rig *rig, const struct key *key)
{
    if (!may_ask(rig, key)) return false;
    struct ratelimit *limit = ratelimit_ref(rig->all, key);
    ratelimit_count_request(limit);
    ratelimit_unref(limit);
    return true;
}

static int ask_often(struct rig *rig, const struct key *key, int times)
{
    int n = 0;
    while (times-- > 0) n += ask_once(rig, key);
    return n;
}

static void spend(struct rig *rig, const struct key *key, int64_t tokens)
{
    struct ratelimit *limit = ratelimit_ref(rig->all, key);
    ratelimit_count_tokens(limit, tokens);
    ratelimit_unref(limit);
}

static void a_minutes_worth_may_come_at_once_and_flows_back_evenly(void **state)
{
    struct rig *rig = *state;
    struct key key = key_of(1, (struct key_limits){.requests = 6});
    assert_int_equal(ask_often(rig, &key, 100), 6);
    fake_clock_advance(&rig->clock, 10 * SECOND - 1);
    assert_int_equal(ask_often(rig, &key, 100), 0);
    fake_clock_advance(&rig->clock, 1);
    assert_int_equal(ask_often(rig, &key, 100), 1);
    fake_clock_advance(&rig->clock, 25 * SECOND);
    assert_int_equal(ask_often(rig, &key, 100), 2);
    fake_clock_advance(&rig->clock, 3600 * SECOND); /* no more than the bucket holds */
    assert_int_equal(ask_often(rig, &key, 100), 6);
}

static void over_any_hour_the_rate_is_the_limit(void **state)
{
    static const int64_t limits[] = {1, 7, 60, 500};
    struct rig *rig = *state;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct key key = key_of((uint8_t)(10 + i), (struct key_limits){.requests = limits[i]});
        int64_t n = 0;
        for (int s = 0; s < 36000; s++) {
            n += ask_once(rig, &key);
            fake_clock_advance(&rig->clock, SECOND / 10);
        }
        int64_t most = limits[i] * 61; /* the full bucket, and an hour's refill */
        if (n > most || n < most - 2) fail_msg("%d of %d", (int)n, (int)most);
    }
}

static void tokens_may_be_owed_and_are_waited_for(void **state)
{
    struct rig *rig = *state;
    struct key key = key_of(1, (struct key_limits){.tokens = 600});
    assert_true(may_ask(rig, &key));
    spend(rig, &key, 599);
    assert_true(may_ask(rig, &key));
    spend(rig, &key, 601);
    assert_false(may_ask(rig, &key)); /* 600 tokens are owed, and one is needed: 60.1 s */
    fake_clock_advance(&rig->clock, 60 * SECOND);
    assert_false(may_ask(rig, &key));
    fake_clock_advance(&rig->clock, SECOND / 10);
    assert_true(may_ask(rig, &key));
    spend(rig, &key, 1000);
    spend(rig, &key, -1000); /* a correction downwards */
    assert_true(may_ask(rig, &key));
    spend(rig, &key, -100000);
    spend(rig, &key, 600); /* what is returned fills the bucket and no more */
    assert_false(may_ask(rig, &key));
}

static void both_limits_hold(void **state)
{
    struct rig *rig = *state;
    struct key key = key_of(1, (struct key_limits){.requests = 2, .tokens = 600});
    assert_true(ask_once(rig, &key));
    spend(rig, &key, 600);
    assert_false(ask_once(rig, &key));
    fake_clock_advance(&rig->clock, SECOND);
    assert_true(ask_once(rig, &key));
    assert_false(ask_once(rig, &key));
}

static void a_keys_limits_are_its_own(void **state)
{
    struct rig *rig = *state;
    struct key one = key_of(1, (struct key_limits){.requests = 1, .tokens = 1, .slots = 1});
    struct key other = key_of(2, one.limits), none = key_of(3, (struct key_limits){0});
    hearth_error error;
    assert_int_equal(ask_often(rig, &one, 5), 1);
    spend(rig, &one, 1000000);
    struct ratelimit *limit = ratelimit_ref(rig->all, &one);
    assert_int_equal(ratelimit_take_slots(limit, 1, &error), HEARTH_OK);
    assert_int_equal(ask_often(rig, &other, 5), 1);
    assert_int_equal(ask_often(rig, &none, 5), 5);
    assert_true(may_ask(rig, NULL));
    assert_null(ratelimit_ref(rig->all, &none));
    assert_null(ratelimit_ref(rig->all, NULL));
    struct ratelimit *others = ratelimit_ref(rig->all, &other);
    assert_int_equal(ratelimit_take_slots(others, 1, &error), HEARTH_OK);
    ratelimit_return_slots(others, 1);
    ratelimit_return_slots(limit, 1);
    ratelimit_unref(others);
    ratelimit_unref(limit);
}

static void slots_are_taken_all_or_none(void **state)
{
    struct rig *rig = *state;
    struct key key = key_of(1, (struct key_limits){.slots = 3});
    struct ratelimit *limit = ratelimit_ref(rig->all, &key);
    hearth_error error;
    assert_int_equal(ratelimit_take_slots(limit, 2, &error), HEARTH_OK);
    assert_int_equal(ratelimit_take_slots(limit, 2, &error), ERRORS_SLOT_LIMIT);
    assert_string_equal(error.message, "this API key uses 2 of its 3 slots, and the request needs 2: try again when "
                                       "others have ended");
    assert_int_equal(ratelimit_take_slots(limit, 1, &error), HEARTH_OK);
    ratelimit_return_slots(limit, 3);
    assert_int_equal(ratelimit_take_slots(limit, 3, &error), HEARTH_OK);
    assert_int_equal(ratelimit_take_slots(limit, 4, &error), HEARTH_INVALID); /* never possible under this limit */
    assert_int_equal(ratelimit_take_slots(NULL, 1000, &error), HEARTH_OK);
    ratelimit_return_slots(limit, 3);
    ratelimit_unref(limit);
}

static void new_limits_hold_at_once_and_what_was_used_stays(void **state)
{
    struct rig *rig = *state;
    struct key key = key_of(1, (struct key_limits){.requests = 10});
    assert_int_equal(ask_often(rig, &key, 100), 10);
    key.limits.requests = 20;
    assert_int_equal(ask_often(rig, &key, 100), 10);
    key.limits.requests = 5;
    assert_int_equal(ask_often(rig, &key, 100), 0);
    key.limits = (struct key_limits){.slots = 1};
    assert_int_equal(ask_often(rig, &key, 100), 100);
}

/* Of thousands of keys only those whose buckets are not full stay in memory. */
static void full_buckets_are_freed(void **state)
{
    struct rig *rig = *state;
    struct key busy = key_of(1, (struct key_limits){.slots = 1}), owing = key_of(2, (struct key_limits){.tokens = 1});
    hearth_error error;
    struct ratelimit *limit = ratelimit_ref(rig->all, &busy);
    assert_int_equal(ratelimit_take_slots(limit, 1, &error), HEARTH_OK);
    ratelimit_unref(limit);
    spend(rig, &owing, 100000);
    for (int i = 0; i < 10000; i++) {
        struct key key = key_of(3, (struct key_limits){.requests = 60});
        memcpy(key.digest + 1, &i, sizeof i);
        assert_true(ask_once(rig, &key));
        fake_clock_advance(&rig->clock, SECOND);
    }
    assert_true(ratelimits_kept(rig->all) < 100);
    assert_false(may_ask(rig, &owing));
    limit = ratelimit_ref(rig->all, &busy);
    assert_int_equal(ratelimit_take_slots(limit, 1, &error), ERRORS_SLOT_LIMIT);
    ratelimit_return_slots(limit, 1);
    ratelimit_unref(limit);
}

/* ---- Over HTTP ---- */

#define CHAT_ROUTE "/v1/chat/completions"
#define CHAT       "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}"
#define TWO        "{\"n\":2,\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}"
#define ASKS       "X-Api-Key: two-requests-0123456789\r\n"
#define TALKS      "X-Api-Key: some-tokens-0123456789\r\n"
#define SLOTS      "X-Api-Key: two-slots-012345678901\r\n"
#define FREE       "X-Api-Key: no-limits-012345678901\r\n"

static char path[] = "/tmp/test-ratelimit-XXXXXX";
static const hearth_result result = {.cache_n = 50, .prompt_n = 70, .predicted_n = 30};

static int setup(void **state)
{
    static const char lines[] = "two-requests-0123456789 asks * rpm=2\n"
                                "some-tokens-0123456789 talks * tpm=100\n"
                                "two-slots-012345678901 slots * slots=2\n"
                                "no-limits-012345678901 free\n";
    strcpy(path + sizeof path - 7, "XXXXXX");
    int fd = mkstemp(path);
    if (fd < 0 || write(fd, lines, sizeof lines - 1) != sizeof lines - 1) return -1;
    close(fd);
    int rc = harness_setup(state);
    fake_set("server.api_keys_file", path);
    return rc;
}

static int teardown(void **state)
{
    unlink(path);
    return harness_teardown(state);
}

static void play(void)
{
    static const char *const texts[] = {"Hello"};
    static struct fake_script script = {.texts = texts, .n_texts = 1};
    script.result = result;
    fake_play(&script);
}

static struct response post(struct client *client, const char *route, const char *key, const char *body)
{
    client_send(client, "POST", route, key, body);
    return client_read(client, true);
}

static int status_of(struct client *client, const char *route, const char *key, const char *body)
{
    struct response response = post(client, route, key, body);
    int status = response.status;
    response_release(&response);
    return status;
}

static int seconds_of(const struct response *response)
{
    const char *text = response_header(response, "Retry-After");
    assert_non_null(text);
    return (int)strtol(text, NULL, 10);
}

static void requests_above_the_rate_get_retry_after(void **state)
{
    struct client client = harness_start(*state);
    play();
    struct response response = post(&client, CHAT_ROUTE, ASKS, CHAT);
    assert_int_equal(response.status, 200);
    assert_string_equal(response_header(&response, "x-ratelimit-limit-requests"), "2");
    assert_string_equal(response_header(&response, "x-ratelimit-remaining-requests"), "1");
    assert_non_null(strchr(response_header(&response, "x-ratelimit-reset-requests"), 's'));
    assert_null(response_header(&response, "x-ratelimit-limit-tokens"));
    assert_null(response_header(&response, "Retry-After"));
    response_release(&response);
    assert_int_equal(status_of(&client, CHAT_ROUTE, ASKS, CHAT), 200);
    response = post(&client, CHAT_ROUTE, ASKS, CHAT);
    assert_int_equal(response.status, 429);
    assert_in_range(seconds_of(&response), 1, 30);
    assert_string_equal(response_header(&response, "x-ratelimit-remaining-requests"), "0");
    assert_contains(response.body.v, "\"message\":\"this API key has used up its limit of 2 requests a minute: ");
    assert_contains(response.body.v, "\"type\":\"rate_limit_error\",\"code\":\"rate_limit_exceeded\",\"param\":null");
    response_release(&response);
    assert_int_equal(fake_submitted(), 2);
    client_close(&client);
    client = client_open(((struct harness *)*state)->port, 0);
    client_send(&client, "GET", "/metrics", FREE, NULL);
    response = client_read(&client, true);
    assert_contains(response.body.v, "hearth_http_limited_keys 1\n");
    response_release(&response);
    client_close(&client);
}

/* The body is announced and never sent: only a server that does not wait for it can answer. */
static void a_refused_request_is_not_asked_for_its_body(void **state)
{
    struct client client = harness_start(*state);
    play();
    for (int i = 0; i < 2; i++) assert_int_equal(status_of(&client, CHAT_ROUTE, ASKS, CHAT), 200);
    client_send(&client, "POST", CHAT_ROUTE, ASKS "Content-Length: 30000000\r\n", NULL);
    struct response response = client_read(&client, true);
    assert_int_equal(response.status, 429);
    response_release(&response);
    client_close(&client);
}

static void every_api_has_its_own_form_of_rate_limit_errors(void **state)
{
    static const struct {
        const char *route, *body, *expected;
    } rows[] = {
        {"/v1/messages", "{\"max_tokens\":4,\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}",
         "{\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\",\"message\":\"this API key has used up"},
        {"/v1/responses", "{\"input\":\"Hi\"}", "\"code\":\"rate_limit_exceeded\""},
        {"/completion", "{\"prompt\":\"Hi\"}", "{\"error\":{\"message\":\"this API key has used up"},
        {"/v1/embeddings", "{\"input\":\"Hi\"}", "\"code\":\"rate_limit_exceeded\""},
        {"/tokenize", "{\"content\":\"Hi\"}", "\"code\":\"rate_limit_exceeded\""},
    };
    struct harness *h = *state;
    struct client first = harness_start(h);
    play();
    for (int i = 0; i < 2; i++) assert_int_equal(status_of(&first, CHAT_ROUTE, ASKS, CHAT), 200);
    client_close(&first);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct client client = client_open(h->port, 0);
        struct response response = post(&client, rows[i].route, ASKS, rows[i].body);
        assert_int_equal(response.status, 429);
        assert_contains(response.body.v, rows[i].expected);
        seconds_of(&response);
        response_release(&response);
        client_close(&client);
    }
}

static void lists_and_other_keys_are_not_held_up(void **state)
{
    struct harness *h = *state;
    struct client client = harness_start(h);
    play();
    for (int i = 0; i < 2; i++) assert_int_equal(status_of(&client, CHAT_ROUTE, ASKS, CHAT), 200);
    assert_int_equal(status_of(&client, CHAT_ROUTE, ASKS, CHAT), 429);
    client_close(&client);
    client = client_open(h->port, 0);
    for (int i = 0; i < 5; i++) {
        client_send(&client, "GET", "/v1/models", ASKS, NULL);
        struct response response = client_read(&client, true);
        assert_int_equal(response.status, 200);
        assert_null(response_header(&response, "x-ratelimit-limit-requests"));
        response_release(&response);
        assert_int_equal(status_of(&client, CHAT_ROUTE, FREE, CHAT), 200);
    }
    client_close(&client);
}

/* 70 of the prompt were computed, and 30 made: 100 in all, while 50 came from the cache. */
static void tokens_that_were_computed_count_and_cached_ones_do_not(void **state)
{
    struct client client = harness_start(*state);
    play();
    struct response response = post(&client, CHAT_ROUTE, TALKS, CHAT);
    assert_int_equal(response.status, 200);
    assert_string_equal(response_header(&response, "x-ratelimit-limit-tokens"), "100");
    assert_string_equal(response_header(&response, "x-ratelimit-remaining-tokens"), "100");
    response_release(&response);
    response = post(&client, CHAT_ROUTE, TALKS, CHAT);
    assert_int_equal(response.status, 429);
    assert_in_range(seconds_of(&response), 1, 1); /* one token is refilled in 0.6 s */
    assert_contains(response.body.v, "its limit of 100 tokens a minute");
    response_release(&response);
    client_close(&client);
}

/* A prompt of 70 tokens is started, and its client disconnects: 30 of 100 remain for the next request. */
static void who_leaves_early_has_used_its_prompt(void **state)
{
    struct harness *h = *state;
    struct client leaver = harness_start(h), client = client_open(h->port, 0);
    client_send(&leaver, "POST", CHAT_ROUTE, TALKS,
                "{\"stream\":true,"
                "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}");
    fake_wait(0);
    fake_started_with(0, &(hearth_result){.cache_n = 50, .prompt_n = 70});
    client_await(&leaver, "\"role\"");
    client_close(&leaver);
    fake_wait_cancelled(0);
    fake_wait_ended(0);
    client_send(&client, "POST", CHAT_ROUTE, TALKS, CHAT);
    fake_wait(1);
    fake_started(1);
    fake_done(1, &(hearth_result){0});
    struct response response = client_read(&client, true);
    assert_int_equal(response.status, 200);
    long left = strtol(response_header(&response, "x-ratelimit-remaining-tokens"), NULL, 10);
    assert_in_range(left, 30, 99);
    response_release(&response);
    client_close(&client);
}

static void vectors_count_their_tokens(void **state)
{
    struct client client = harness_start(*state);
    struct buf body = {0};
    buf_puts(&body, "{\"input\":[\"a\"");
    for (int i = 0; i < 40; i++) buf_puts(&body, ",\"a\""); /* 41 inputs of 3 tokens each */
    buf_puts(&body, "]}");
    assert_int_equal(status_of(&client, "/v1/embeddings", TALKS, body.v), 200);
    assert_int_equal(status_of(&client, "/v1/embeddings", TALKS, body.v), 429);
    buf_release(&body);
    client_close(&client);
}

static void who_leaves_before_the_vectors_come_has_used_their_tokens(void **state)
{
    struct harness *h = *state;
    struct client leaver = harness_start(h), client = client_open(h->port, 0);
    fake_hold_embeddings(true);
    client_send(&leaver, "POST", "/v1/embeddings", TALKS, "{\"input\":[\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\"]}");
    fake_wait_embedding(0);
    client_close(&leaver);
    fake_wait_embedding_cancelled(0);
    long left = 100;
    for (int i = 0; left == 100 && i < 2000; i++) { /* until its end has come to the server's thread */
        struct response response = post(&client, "/v1/embeddings", TALKS, "{}");
        left = strtol(response_header(&response, "x-ratelimit-remaining-tokens"), NULL, 10);
        response_release(&response);
    }
    assert_in_range(left, 79, 85);
    client_close(&client);
}

static void slots_are_given_back_when_the_work_has_ended(void **state)
{
    struct harness *h = *state;
    struct client first = harness_start(h), second = client_open(h->port, 0), third = client_open(h->port, 0);
    client_send(&first, "POST", CHAT_ROUTE, SLOTS, CHAT);
    fake_wait(0);
    client_send(&second, "POST", CHAT_ROUTE, SLOTS, CHAT);
    fake_wait(1);
    struct response response = post(&third, CHAT_ROUTE, SLOTS, CHAT);
    assert_int_equal(response.status, 429);
    assert_int_equal(seconds_of(&response), 1);
    assert_contains(response.body.v, "\"code\":\"slot_limit_exceeded\"");
    response_release(&response);
    client_send(&third, "POST", CHAT_ROUTE, FREE, CHAT); /* another key's slots are free */
    fake_wait(2);
    fake_started(2);
    fake_done(2, &result);
    response = client_read(&third, true);
    assert_int_equal(response.status, 200);
    response_release(&response);
    fake_failed(0, HEARTH_IO, "broken");
    response = client_read(&first, true);
    assert_int_equal(response.status, 500);
    response_release(&response);
    client_send(&first, "POST", CHAT_ROUTE, SLOTS, CHAT);
    fake_wait(3);
    client_close(&second); /* cancelled: its slot is free once that has ended */
    fake_wait_ended(1);
    play();
    while (status_of(&third, CHAT_ROUTE, SLOTS, CHAT) == 429) continue;
    client_close(&first);
    client_close(&third);
}

static void every_choice_takes_a_slot(void **state)
{
    struct client client = harness_start(*state);
    play();
    assert_int_equal(status_of(&client, CHAT_ROUTE, SLOTS, TWO), 200);
    struct response response =
        post(&client, CHAT_ROUTE, SLOTS, "{\"n\":3,\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}");
    assert_int_equal(response.status, 400);
    assert_contains(response.body.v, "the request needs 3 slots, and this API key may use 2 at once");
    response_release(&response);
    assert_int_equal(status_of(&client, "/v1/completions", SLOTS, "{\"prompt\":[\"a\",\"b\",\"c\"]}"), 400);
    assert_int_equal(fake_submitted(), 2);
    client_close(&client);
}

/* The second of two choices cannot be submitted: both slots are free again. */
static void what_was_not_submitted_holds_no_slot(void **state)
{
    struct client client = harness_start(*state);
    play();
    fake_fail_submit(1, HEARTH_INVALID, "x", "no");
    assert_int_equal(status_of(&client, CHAT_ROUTE, SLOTS, TWO), 400);
    fake_wait_ended(0);
    fake_fail_submit(1000, HEARTH_INVALID, "x", "no");
    int status = 429;
    while (status == 429) status = status_of(&client, CHAT_ROUTE, SLOTS, TWO);
    assert_int_equal(status, 200);
    client_close(&client);
}

static void vectors_take_a_slot_too(void **state)
{
    struct harness *h = *state;
    struct client clients[3] = {harness_start(h), client_open(h->port, 0), client_open(h->port, 0)};
    fake_hold_embeddings(true);
    for (int i = 0; i < 2; i++) {
        client_send(&clients[i], "POST", "/v1/embeddings", SLOTS, "{\"input\":\"a\"}");
        fake_wait_embedding((size_t)i);
    }
    assert_int_equal(status_of(&clients[2], "/v1/embeddings", SLOTS, "{\"input\":\"a\"}"), 429);
    fake_hold_embeddings(false);
    for (int i = 0; i < 2; i++) {
        struct response response = client_read(&clients[i], true);
        assert_int_equal(response.status, 200);
        response_release(&response);
    }
    assert_int_equal(status_of(&clients[2], "/v1/embeddings", SLOTS, "{\"input\":\"a\"}"), 200);
    for (int i = 0; i < 3; i++) client_close(&clients[i]);
}

#define BUCKET(test) cmocka_unit_test_setup_teardown(test, rig_open, rig_close)
#define HTTP(test)   cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BUCKET(a_minutes_worth_may_come_at_once_and_flows_back_evenly),
        BUCKET(over_any_hour_the_rate_is_the_limit),
        BUCKET(tokens_may_be_owed_and_are_waited_for),
        BUCKET(both_limits_hold),
        BUCKET(a_keys_limits_are_its_own),
        BUCKET(slots_are_taken_all_or_none),
        BUCKET(new_limits_hold_at_once_and_what_was_used_stays),
        BUCKET(full_buckets_are_freed),
        HTTP(requests_above_the_rate_get_retry_after),
        HTTP(a_refused_request_is_not_asked_for_its_body),
        HTTP(every_api_has_its_own_form_of_rate_limit_errors),
        HTTP(lists_and_other_keys_are_not_held_up),
        HTTP(tokens_that_were_computed_count_and_cached_ones_do_not),
        HTTP(who_leaves_early_has_used_its_prompt),
        HTTP(vectors_count_their_tokens),
        HTTP(who_leaves_before_the_vectors_come_has_used_their_tokens),
        HTTP(slots_are_given_back_when_the_work_has_ended),
        HTTP(every_choice_takes_a_slot),
        HTTP(what_was_not_submitted_holds_no_slot),
        HTTP(vectors_take_a_slot_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
