/* The routes of the KV cache: their calls of the library, and their answers. */
#include "json_trees.h"
#include "unit/serve/harness.h"

#include <jansson.h>

#define KEY "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void the_cache_route_has_tiers_residents_and_counters(void **state)
{
    struct client client = harness_start(*state);
    struct response response = ask(&client, "GET", "/cache", NULL);
    assert_int_equal(response.status, 200);
    assert_string_equal(
        response.body.v,
        "{\"tiers\":{"
        "\"ram\":{\"on\":true,\"entries\":1,\"bytes\":2,\"quota_bytes\":3,\"evictions\":4},"
        "\"ram_file\":{\"on\":false,\"entries\":0,\"bytes\":0,\"quota_bytes\":0,\"evictions\":0,"
        "\"trouble\":\"no \\\"folder\\\"\"},"
        "\"disk\":{\"on\":true,\"entries\":5,\"bytes\":1234567890123,\"quota_bytes\":1073741824,\"evictions\":0},"
        "\"remote\":{\"on\":true,\"entries\":6,\"bytes\":7,\"quota_bytes\":8,\"evictions\":0}},"
        "\"not_stored\":[{\"model\":\"demo \\\"2\\\"\",\"reason\":\"[path] was \\\"changed\\\"\"}],"
        "\"resident\":[{\"model\":\"demo\",\"seq_id\":3,\"slot_id\":-1,\"state\":\"idle\",\"tokens\":40,"
        "\"own_tokens\":30,\"shared_tokens\":10,\"branch_of\":1,\"branch_at\":10,\"messages\":2,\"kept\":false,"
        "\"media\":0,\"media_tokens\":0,\"cost_"
        "ms\":1.500,"
        "\"return_ms\":20.000,"
        "\"hash\":\"0123456789abcdef\","
        "\"last_used\":1700000000000}],"
        "\"hits_exact\":1,\"hits_resume\":2,\"hits_longest_prefix\":3,\"misses\":4,\"saves_cold\":5,"
        "\"saves_continued\":6,\"saves_finish\":7,\"saves_evict\":8,\"saves_shutdown\":9,\"saves_dropped\":10,"
        "\"duplicate_dropped\":11,\"corrupt_files\":12,\"longest_prefix_probes\":13,\"pack_ns\":14,"
        "\"load_ns\":9876543210123,\"written_bytes\":15,\"read_bytes\":16,\"probes\":17,\"probes_failed\":18,"
        "\"uploaded_bytes\":19,\"uploads_dropped\":20}");
    response_release(&response);
    client_close(&client);
}

/* Sends a request and plays it, the only one, in the fake library. */
static struct response look_up(struct client *client, const char *body, const hearth_cache_lookup *lookup)
{
    struct hearth_result result = {.lookup = *lookup};
    client_send(client, "POST", "/cache/lookup", "", body);
    assert_true(fake_wait(0)->only_lookup);
    assert_true(fake_done(0, &result));
    return client_read(client, true);
}

static void a_lookup_has_the_cached_tokens_of_each_tier(void **state)
{
    static const hearth_cache_lookup lookup = {
        .prompt = 3000, .resident = 100, .tiers = {200, 0, 2560, 70}, .reusable = 2560, .key = KEY};
    struct client client = harness_start(*state);
    struct response response =
        look_up(&client, "{\"prompt\":\"Once\",\"cache_salt\":\"s\",\"stream\":true,\"n\":3}", &lookup);
    assert_int_equal(response.status, 200);
    assert_string_equal(response_header(&response, "Content-Type"), "application/json");
    assert_string_equal(response.body.v,
                        "{\"model\":\"demo\",\"prompt_tokens\":3000,\"tokens\":2560,\"resident\":100,\"ram\":200,"
                        "\"ram_file\":0,\"disk\":2560,\"remote\":70,\"computed\":440,\"key\":\"" KEY
                        "\",\"divergence\":null}");
    assert_int_equal(fake_submitted(), 1);
    assert_string_equal(fake_wait(0)->text, "Once");
    assert_string_equal(fake_wait(0)->cache_salt, "s");
    response_release(&response);
    client_close(&client);
}

static void a_lookup_may_be_of_messages_and_find_nothing(void **state)
{
    static const hearth_cache_lookup lookup = {.prompt = 12};
    struct client client = harness_start(*state);
    struct response response =
        look_up(&client, "{\"model\":\"demo\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}", &lookup);
    assert_string_equal(response.body.v,
                        "{\"model\":\"demo\",\"prompt_tokens\":12,\"tokens\":0,\"resident\":0,\"ram\":0,"
                        "\"ram_file\":0,\"disk\":0,\"remote\":0,\"computed\":12,\"key\":null,\"divergence\":null}");
    assert_string_equal(text_of_json(fake_wait(0)->messages), "[{\"role\":\"user\",\"content\":\"Hi\"}]");
    response_release(&response);
    client_close(&client);
}

static void a_lookup_has_the_divergence_and_the_words_there(void **state)
{
    static const hearth_cache_lookup lookup = {.prompt = 9};
    struct client client = harness_start(*state);
    struct response response = look_up(&client, "{\"prompt\":\"diverges\"}", &lookup);
    assert_contains(response.body.v, ",\"divergence\":{\"position\":7,\"where\":\"disk\",\"limit\":\"checkpoints\","
                                     "\"common\":\"It is\",\"prompt\":\" \\\"Monday\\\"\",\"nearest\":\"\","
                                     "\"message\":2,\"role\":\"user\"}}");
    response_release(&response);
    client_close(&client);
}

/* A body in each API's form, and the parameters that must reach the library. */
static void a_lookup_takes_the_body_of_any_api(void **state)
{
    static const char said[] = "[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"Hi\"}]";
    static const char user[] = "[{\"role\":\"user\",\"content\":\"Hi\"}]";
    static const char blocks[] = "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"t\",";
    static const struct {
        const char *target, *body, *messages, *text;
    } rows[] = {
        {"", "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"system\":\"S\"}", said, NULL},
        {"", "{\"input\":\"Hi\",\"instructions\":\"S\"}", said, NULL},
        {"", "{\"prompt\":\"Hi\",\"system\":\"S\"}", NULL, "Hi"},
        {"?as=chat", "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"system\":\"S\"}", user, NULL},
        {"?as=messages", "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}", user, NULL},
        {"?as=ollama", "{\"model\":\"demo\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}", user, NULL},
        {"?as=ollama", "{\"model\":\"demo\",\"prompt\":\"Hi\"}", user, NULL},
        {"?as=responses", "{\"input\":\"Hi\"}", user, NULL},
        {"?as=completion", "{\"prompt\":\"Hi\"}", NULL, "Hi"},
        {"",
         "{\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"f\","
         "\"input\":{}}]}]}",
         blocks, NULL},
    };
    struct client client = harness_start(*state);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct hearth_result result = {.lookup = {.prompt = 9}};
        char target[64];
        snprintf(target, sizeof target, "/cache/lookup%s", rows[i].target);
        client_send(&client, "POST", target, "", rows[i].body);
        const hearth_params *params = fake_wait(i);
        assert_true(params->only_lookup);
        if (rows[i].messages != NULL)
            assert_memory_equal(text_of_json(params->messages), rows[i].messages, strlen(rows[i].messages));
        else
            assert_string_equal(params->text, rows[i].text);
        assert_true(fake_done(i, &result));
        struct response response = client_read(&client, true);
        assert_int_equal(response.status, 200);
        response_release(&response);
    }
    struct response response = ask(&client, "POST", "/cache/lookup?as=cohere", "{\"prompt\":\"Hi\"}");
    assert_int_equal(response.status, 400);
    assert_contains(response.body.v, "\"param\":\"as\"");
    response_release(&response);
    client_close(&client);
}

static void the_most_may_lie_anywhere(void **state)
{
    static const hearth_cache_lookup rows[] = {
        {.prompt = 9, .resident = 8, .tiers = {7, 0, 6}},
        {.prompt = 9, .tiers = {8, 7, 0}},
        {.prompt = 9, .tiers = {0, 8, 0}, .resident = 7},
        {.prompt = 9, .tiers = {0, 0, 8}},
    };
    struct client client = harness_start(*state);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct hearth_result result = {.lookup = rows[i]};
        client_send(&client, "POST", "/cache/lookup", "", "{\"prompt\":[1,2]}");
        assert_int_equal(fake_wait(i)->n_tokens, 2);
        assert_true(fake_done(i, &result));
        struct response response = client_read(&client, true);
        assert_contains(response.body.v, "\"tokens\":8,");
        response_release(&response);
    }
    client_close(&client);
}

static void a_lookup_that_is_none_is_refused_before_it_reaches_the_library(void **state)
{
    static const struct {
        const char *body, *says;
        int status;
    } rows[] = {
        {"not json", "\"param\":null", 400},
        {"{}", "\"param\":\"prompt\"", 400},
        {"{\"prompt\":[\"a\",\"b\"]}", "\"param\":\"prompt\"", 400},
        {"{\"prompt\":\"a\",\"messages\":[{}]}", "\"param\":\"prompt\"", 400},
        {"{\"prompt\":\"a\",\"cache_salt\":1}", "\"param\":\"cache_salt\"", 400},
        {"{\"messages\":[{}],\"functions\":[{}]}", "\"param\":\"functions[0].name\"", 400},
        {"{\"input\":\"a\",\"previous_response_id\":\"resp_1\"}", "\"param\":\"previous_response_id\"", 400},
        {"{\"input\":\"a\",\"conversation\":\"conv_1\"}", "\"param\":\"conversation\"", 400},
        {"{\"prompt\":\"a\",\"model\":\"other\"}", "\"code\":\"model_not_found\"", 404},
    };
    struct client client = harness_start(*state);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct response response = ask(&client, "POST", "/cache/lookup", rows[i].body);
        assert_int_equal(response.status, rows[i].status);
        assert_contains(response.body.v, rows[i].says);
        response_release(&response);
    }
    assert_int_equal(fake_submitted(), 0);
    client_close(&client);
}

static void a_lookup_that_fails_has_its_status(void **state)
{
    static const struct fake_script script = {
        .fail = HEARTH_TOO_LONG, .fail_before_started = true, .message = "too long"};
    struct client client = harness_start(*state);
    fake_play(&script);
    struct response response = ask(&client, "POST", "/cache/lookup", "{\"prompt\":\"a\"}");
    assert_int_equal(response.status, 400);
    assert_contains(response.body.v, "\"code\":\"context_length_exceeded\"");
    response_release(&response);
    client_close(&client);
}

static void a_lookup_waits_for_the_models(void **state)
{
    struct harness *h = *state;
    fake_hold_load(true);
    harness_listen(h);
    struct client client = client_open(h->port, 0);
    struct response response = ask(&client, "POST", "/cache/lookup", "{\"prompt\":\"a\"}");
    assert_int_equal(response.status, 503);
    response_release(&response);
    response = ask(&client, "GET", "/cache", NULL);
    assert_int_equal(response.status, 200);
    response_release(&response);
    client_close(&client);
    fake_hold_load(false);
    harness_await_ready(h);
}

static void the_id_of_a_session_in_a_header_changes_nothing(void **state)
{
    static const char *const texts[] = {"ok"};
    static const struct fake_script script = {.texts = texts, .n_texts = 1};
    struct client client = harness_start(*state);
    fake_play(&script);
    client_send(&client, "POST", "/v1/completions", "X-Session-Id: a b\r\nKRONK_IMC_ID: user-1\r\n",
                "{\"prompt\":\"a\",\"session_id\":\"b\",\"imc_id\":\"c\"}");
    struct response response = client_read(&client, true);
    assert_int_equal(response.status, 200);
    assert_contains(response.body.v, "\"text\":\"ok\"");
    response_release(&response);
    client_close(&client);
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, harness_setup, harness_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(the_cache_route_has_tiers_residents_and_counters),
        ROW(a_lookup_has_the_cached_tokens_of_each_tier),
        ROW(a_lookup_may_be_of_messages_and_find_nothing),
        ROW(a_lookup_has_the_divergence_and_the_words_there),
        ROW(a_lookup_takes_the_body_of_any_api),
        ROW(the_most_may_lie_anywhere),
        ROW(a_lookup_that_is_none_is_refused_before_it_reaches_the_library),
        ROW(a_lookup_that_fails_has_its_status),
        ROW(a_lookup_waits_for_the_models),
        ROW(the_id_of_a_session_in_a_header_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
