/* GET /live: how often reports come, who may see them, and that none are made for nobody. */
#include "unit/serve/harness.h"

#include "base/clock.h"

#include <stdio.h>

#define WATCHER "watcher-0123456789abcdef"
#define SLOTS   "slots-only-0123456789abcd"
#define CACHE   "cache-only-0123456789abcd"

enum { PERIOD_MS = 250, HEARTBEAT_MS = 3000, MOST_WATCHERS = 64 };

static double ms_since(int64_t start)
{
    return clock_to_ms(clock_now(clock_monotonic()) - start);
}

/* Begins to watch: what follows in the connection are chunks. */
static void watch(struct client *client)
{
    struct response response = {0};
    client_send(client, "GET", "/live", "", NULL);
    client_await(client, "\r\n\r\n");
    move(client, (size_t)(strstr(client->in.v, "\r\n\r\n") - client->in.v) + 4, &response.head);
    assert_memory_equal(response.head.v, "HTTP/1.1 200", 12);
    assert_string_equal(response_header(&response, "Content-Type"), "text/event-stream");
    response_release(&response);
}

/* The next event, which is a chunk of its own. Empty: the stream has ended. */
static struct buf next_report(struct client *client)
{
    struct buf report = {0};
    client_await(client, "\r\n");
    size_t size = strtoul(client->in.v, NULL, 16);
    move(client, (size_t)(strstr(client->in.v, "\r\n") - client->in.v) + 2, NULL);
    move(client, size, &report);
    move(client, 2, NULL);
    return report;
}

static void skip_reports(struct client *client, int n)
{
    for (int i = 0; i < n; i++) {
        struct buf report = next_report(client);
        assert_true(report.len > 0);
        buf_release(&report);
    }
}

/* Waits until the metrics have the line. */
static void await_metric(struct client *client, const char *line)
{
    for (bool found = false; !found;) {
        struct response response = ask(client, "GET", "/metrics", NULL);
        found = strstr(response.body.v, line) != NULL;
        response_release(&response);
    }
}

static const char models[] = "[{\"model\":\"demo\",\"waiting\":2,\"prompt_tokens\":100,\"cached_tokens\":900,"
                             "\"generated_tokens\":70}]";

static void a_report_is_what_slots_and_cache_say_and_what_models_have_done(void **state)
{
    struct client client = harness_start(*state), watcher = client_open(((struct harness *)*state)->port, 0);
    struct response slots = ask(&client, "GET", "/slots", NULL), cache = ask(&client, "GET", "/cache", NULL);
    struct buf expected = {0};
    buf_printf(&expected, "data: {\"slots\":%s,\"cache\":%s,\"models\":%s}\n\n", slots.body.v, cache.body.v, models);
    watch(&watcher);
    struct buf report = next_report(&watcher);
    assert_int_equal(report.len, expected.len);
    assert_memory_equal(report.v, expected.v, expected.len);
    buf_release(&report);
    buf_release(&expected);
    response_release(&slots);
    response_release(&cache);
    client_close(&client);
    client_close(&watcher);
}

static void what_changes_all_the_time_is_reported_four_times_a_second_at_most(void **state)
{
    struct client client = harness_start(*state);
    int64_t start = clock_now(clock_monotonic());
    fake_set_restless(true);
    watch(&client);
    skip_reports(&client, 9);
    assert_true(ms_since(start) >= 8 * PERIOD_MS);
    client_close(&client);
}

static void what_does_not_change_is_repeated_every_few_seconds(void **state)
{
    struct client client = harness_start(*state);
    int64_t start = clock_now(clock_monotonic());
    watch(&client);
    struct buf first = next_report(&client), second = next_report(&client);
    double took = ms_since(start);
    assert_true(took >= HEARTBEAT_MS);
    assert_int_equal(first.len, second.len);
    assert_memory_equal(first.v, second.v, first.len);
    buf_release(&first);
    buf_release(&second);
    client_close(&client);
}

static void one_report_is_made_for_all_who_watch(void **state)
{
    struct client clients[3] = {harness_start(*state)};
    int port = ((struct harness *)*state)->port;
    int64_t start = clock_now(clock_monotonic());
    fake_set_restless(true);
    for (int i = 1; i < 3; i++) clients[i] = client_open(port, 0);
    for (int i = 0; i < 3; i++) watch(&clients[i]);
    for (int i = 0; i < 3; i++) skip_reports(&clients[i], 4);
    size_t n = fake_reports();
    assert_true((double)n <= ms_since(start) / PERIOD_MS + 1);
    for (int i = 0; i < 3; i++) client_close(&clients[i]);
}

/* Nothing tells that nothing happens: for as long as three reports would have taken, none is made. */
static void no_report_is_made_for_nobody(void **state)
{
    struct client client = harness_start(*state), watcher = client_open(((struct harness *)*state)->port, 0);
    assert_int_equal(fake_reports(), 0);
    watch(&watcher);
    skip_reports(&watcher, 1);
    fake_wait_reports(3);
    client_close(&watcher);
    await_metric(&client, "hearth_http_requests_total{route=\"/live\",status=\"499\"} 1");
    size_t n = fake_reports();
    int64_t start = clock_now(clock_monotonic());
    while (ms_since(start) < 3 * PERIOD_MS) {
        struct response response = ask(&client, "GET", "/health", NULL);
        response_release(&response);
    }
    assert_int_equal(fake_reports(), n);
    client_close(&client);
}

/* The reports are larger than what the kernel takes, so that the first one is on its way until it is read. */
static void a_slow_reader_misses_reports_and_gets_the_newest(void **state)
{
    enum { MANY = 40000 };
    struct client client = harness_start(*state);
    fake_set_residents(MANY, 1);
    const size_t before = fake_reports();
    watch(&client);
    fake_wait_reports(before + 2); /* the first is made */
    for (int32_t tokens = 2; tokens <= 4; tokens++) {
        fake_set_residents(MANY, tokens);
        fake_wait_reports(fake_reports() + 2);
    }
    struct buf first = next_report(&client), second = next_report(&client);
    assert_contains(first.v, "\"tokens\":1,");
    assert_contains(second.v, "\"tokens\":4,");
    buf_release(&first);
    buf_release(&second);
    client_close(&client);
}

static void there_is_a_limit_of_watchers(void **state)
{
    struct client clients[MOST_WATCHERS] = {harness_start(*state)};
    int port = ((struct harness *)*state)->port;
    for (int i = 1; i < MOST_WATCHERS; i++) clients[i] = client_open(port, 0);
    for (int i = 0; i < MOST_WATCHERS; i++) watch(&clients[i]);
    struct client late = client_open(port, 0);
    struct response response = ask(&late, "GET", "/live", NULL);
    assert_int_equal(response.status, 503);
    assert_contains(response.body.v, "64 clients watch already");
    assert_non_null(response_header(&response, "Retry-After"));
    response_release(&response);
    client_close(&clients[0]);
    await_metric(&late, "hearth_http_requests_total{route=\"/live\",status=\"499\"} 1");
    watch(&late);
    skip_reports(&late, 1);
    client_close(&late);
    for (int i = 1; i < MOST_WATCHERS; i++) client_close(&clients[i]);
}

static void head_has_no_body_and_ends(void **state)
{
    struct client client = harness_start(*state);
    struct response response = ask(&client, "HEAD", "/live", NULL);
    assert_int_equal(response.status, 200);
    response_release(&response);
    response = ask(&client, "GET", "/health", NULL);
    assert_int_equal(response.status, 200);
    response_release(&response);
    client_close(&client);
}

static void a_shutdown_ends_the_streams_and_is_not_held_up(void **state)
{
    struct harness *h = *state;
    struct client client = harness_start(h);
    watch(&client);
    skip_reports(&client, 1);
    int64_t start = clock_now(clock_monotonic());
    kill(getpid(), SIGTERM);
    for (size_t len = 1; len > 0;) {
        struct buf report = next_report(&client);
        len = report.len;
        buf_release(&report);
    }
    harness_join(h);
    assert_int_equal(h->rc, HEARTH_OK);
    assert_true(ms_since(start) < 1500); /* what clients get to receive the rest of their answers is 2000 */
    client_close(&client);
}

/* Where another process may take over, open connections get one more answer: a stream would be none that ends. */
static void whoever_watches_does_not_hold_up_a_rolling_restart(void **state)
{
    struct harness *h = *state;
    char folder[] = "/tmp/hearth-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/handover", folder);
    fake_set("server.handover", path);
    struct client client = harness_start(h);
    watch(&client);
    skip_reports(&client, 1);
    kill(getpid(), SIGTERM);
    for (size_t len = 1; len > 0;) {
        struct buf report = next_report(&client);
        len = report.len;
        buf_release(&report);
    }
    struct response response = ask(&client, "GET", "/live", NULL);
    assert_int_equal(response.status, 503);
    assert_contains(response.body.v, "the server is stopping");
    response_release(&response);
    harness_join(h);
    assert_int_equal(h->rc, HEARTH_OK);
    client_close(&client);
    assert_int_equal(rmdir(folder), 0);
}

/* ---- Keys ---- */

static char path[] = "/tmp/test-live-XXXXXX";

static void write_keys(const char *text)
{
    FILE *file = fopen(path, "we");
    fputs(text, file);
    fclose(file);
}

static int setup_keys(void **state)
{
    strcpy(path + sizeof path - 7, "XXXXXX");
    int fd = mkstemp(path);
    if (fd < 0) return -1;
    close(fd);
    write_keys(WATCHER " watcher status,cache\n" SLOTS " slots status\n" CACHE " cache cache\n");
    int rc = harness_setup(state);
    fake_set("server.api_keys_file", path);
    return rc;
}

static int teardown_keys(void **state)
{
    unlink(path);
    return harness_teardown(state);
}

static void it_needs_the_grants_of_both_routes(void **state)
{
    static const struct {
        const char *headers;
        int status;
        const char *says;
    } rows[] = {{"", 401, "API key"},
                {"X-Api-Key: " SLOTS "\r\n", 403, "'cache'"},
                {"X-Api-Key: " CACHE "\r\n", 403, "'status'"}};
    struct client client = harness_start(*state);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        client_send(&client, "GET", "/live", rows[i].headers, NULL);
        struct response response = client_read(&client, true);
        assert_int_equal(response.status, rows[i].status);
        assert_contains(response.body.v, rows[i].says);
        response_release(&response);
    }
    client_send(&client, "GET", "/live", "X-Api-Key: " WATCHER "\r\n", NULL);
    client_await(&client, "data: {\"slots\":");
    assert_memory_equal(client.in.v, "HTTP/1.1 200", 12);
    client_close(&client);
}

static void a_key_that_is_taken_back_sees_no_more(void **state)
{
    struct client client = harness_start(*state);
    client_send(&client, "GET", "/live", "X-Api-Key: " WATCHER "\r\n", NULL);
    client_await(&client, "data: {\"slots\":");
    write_keys(SLOTS " slots status\n");
    kill(getpid(), SIGHUP);
    client_await(&client, "\r\n0\r\n\r\n");
    struct client again = client_open(((struct harness *)*state)->port, 0);
    client_send(&again, "GET", "/live", "X-Api-Key: " WATCHER "\r\n", NULL);
    struct response response = client_read(&again, true);
    assert_int_equal(response.status, 401);
    response_release(&response);
    client_close(&again);
    client_close(&client);
}

#define ROW(test)      cmocka_unit_test_setup_teardown(test, harness_setup, harness_teardown)
#define KEYS_ROW(test) cmocka_unit_test_setup_teardown(test, setup_keys, teardown_keys)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(a_report_is_what_slots_and_cache_say_and_what_models_have_done),
        ROW(what_changes_all_the_time_is_reported_four_times_a_second_at_most),
        ROW(what_does_not_change_is_repeated_every_few_seconds),
        ROW(one_report_is_made_for_all_who_watch),
        ROW(no_report_is_made_for_nobody),
        ROW(a_slow_reader_misses_reports_and_gets_the_newest),
        ROW(there_is_a_limit_of_watchers),
        ROW(head_has_no_body_and_ends),
        ROW(a_shutdown_ends_the_streams_and_is_not_held_up),
        ROW(whoever_watches_does_not_hold_up_a_rolling_restart),
        KEYS_ROW(it_needs_the_grants_of_both_routes),
        KEYS_ROW(a_key_that_is_taken_back_sees_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
