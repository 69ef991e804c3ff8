/* The sender of traces and collectors that do not take them: nothing waits, what is lost is counted, and closing ends
 * in time. tests/e2e/tracing.test.js has one that takes them. */
#include "base/clock.h"
#include "fakes/cmocka_all.h"
#include "serve/tracing/tracer.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PARENT(flags) "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-" flags

/* Takes connections and never reads or answers: nobody accepts them. */
struct silent {
    int fd;
    char endpoint[64];
};

static struct silent silent_open(void)
{
    struct silent silent = {.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    assert_int_equal(bind(silent.fd, (struct sockaddr *)&address, len), 0);
    assert_int_equal(listen(silent.fd, 64), 0);
    assert_int_equal(getsockname(silent.fd, (struct sockaddr *)&address, &len), 0);
    snprintf(silent.endpoint, sizeof silent.endpoint, "http://127.0.0.1:%d/", ntohs(address.sin_port));
    return silent;
}

static struct tracer *open_tracer(const char *endpoint, struct tracer_pace pace)
{
    hearth_error error;
    struct tracer_params params = {.endpoint = endpoint, .resource = {"1", "box", "127.0.0.1:8080"}, .pace = pace};
    struct tracer *tracer = tracer_open(&params, &error);
    assert_non_null(tracer);
    return tracer;
}

static void send_traces(struct tracer *tracer, int n)
{
    for (int i = 0; i < n; i++) {
        struct trace *trace = tracer_begin(tracer, NULL);
        trace->method = "POST";
        trace->route = "/x";
        tracer_end(tracer, trace);
    }
}

static void await_dropped(const struct tracer *tracer, int64_t n)
{
    int64_t deadline = clock_now(clock_monotonic()) + clock_from_ms(60000);
    while (tracer_dropped(tracer) < n && clock_now(clock_monotonic()) < deadline)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_int_equal(tracer_dropped(tracer), n);
    assert_int_equal(tracer_sent(tracer), 0);
}

static void without_a_tracer_there_are_no_traces(void **state)
{
    (void)state;
    assert_null(tracer_begin(NULL, PARENT("01")));
    tracer_end(NULL, NULL);
    assert_int_equal(tracer_sent(NULL), 0);
    assert_int_equal(tracer_dropped(NULL), 0);
    tracer_close(NULL);
}

static void a_trace_goes_on_where_the_client_says_so(void **state)
{
    (void)state;
    static const uint8_t none[TRACE_ID_BYTES];
    struct tracer *tracer = open_tracer("http://127.0.0.1:1", (struct tracer_pace){.gather_ms = 60000, .flush_ms = 1});
    struct trace *own = tracer_begin(tracer, "no traceparent"), *other = tracer_begin(tracer, NULL);
    assert_false(own->has_parent);
    assert_true(own->self.sampled);
    assert_memory_not_equal(own->self.trace, none, TRACE_ID_BYTES);
    assert_memory_not_equal(own->self.span, none, SPAN_ID_BYTES);
    assert_memory_not_equal(own->self.trace, other->self.trace, TRACE_ID_BYTES);
    struct trace *follows = tracer_begin(tracer, PARENT("01"));
    assert_true(follows->has_parent);
    assert_true(follows->self.sampled);
    assert_int_equal(follows->self.trace[0], 0x4b);
    assert_int_equal(follows->parent[7], 0xb7);
    assert_memory_not_equal(follows->self.span, follows->parent, SPAN_ID_BYTES);
    struct trace *unwanted = tracer_begin(tracer, PARENT("00"));
    assert_false(unwanted->self.sampled);
    struct trace *all[] = {own, other, follows, unwanted};
    for (size_t i = 0; i < 4; i++) {
        all[i]->method = "POST";
        all[i]->route = "/x";
        tracer_end(tracer, all[i]);
    }
    tracer_close(tracer);
}

static void a_full_queue_drops_what_comes_and_counts_it(void **state)
{
    (void)state;
    struct silent silent = silent_open();
    struct tracer *tracer =
        open_tracer(silent.endpoint, (struct tracer_pace){.gather_ms = 600000, .most_queued = 4, .flush_ms = 1});
    send_traces(tracer, 4);
    assert_int_equal(tracer_dropped(tracer), 0);
    send_traces(tracer, 6);
    assert_int_equal(tracer_dropped(tracer), 6);
    struct trace *unwanted = tracer_begin(tracer, PARENT("00"));
    tracer_end(tracer, unwanted); /* it would not have been sent */
    assert_int_equal(tracer_dropped(tracer), 6);
    tracer_close(tracer);
    close(silent.fd);
}

static void a_collector_that_never_answers_has_a_deadline(void **state)
{
    (void)state;
    struct silent silent = silent_open();
    struct tracer *tracer =
        open_tracer(silent.endpoint, (struct tracer_pace){.gather_ms = 1, .send_ms = 20, .pause_ms = 1});
    send_traces(tracer, 1);
    await_dropped(tracer, 1);
    send_traces(tracer, 2);
    await_dropped(tracer, 3);
    tracer_close(tracer);
    close(silent.fd);
}

static void a_collector_that_is_away_is_tried_again_and_given_up(void **state)
{
    (void)state;
    struct silent silent = silent_open();
    close(silent.fd); /* nobody listens there now */
    struct tracer *tracer = open_tracer(silent.endpoint, (struct tracer_pace){.gather_ms = 1, .pause_ms = 1});
    send_traces(tracer, 1);
    await_dropped(tracer, 1);
    tracer_close(tracer);
}

/* The end comes while a batch is being sent, whose own deadline is far, and more waits. */
static void closing_ends_in_time(void **state)
{
    (void)state;
    struct silent silent = silent_open();
    struct tracer *tracer =
        open_tracer(silent.endpoint, (struct tracer_pace){.gather_ms = 1, .send_ms = 600000, .flush_ms = 50});
    send_traces(tracer, 1);
    struct sockaddr_in from;
    socklen_t len = sizeof from;
    int connection = accept(silent.fd, (struct sockaddr *)&from, &len); /* it is being sent */
    send_traces(tracer, 600);
    int64_t begun_at = clock_now(clock_monotonic());
    tracer_close(tracer);
    assert_true(clock_to_ms(clock_now(clock_monotonic()) - begun_at) < 30000);
    close(connection);
    close(silent.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_tracer_there_are_no_traces),
        cmocka_unit_test(a_trace_goes_on_where_the_client_says_so),
        cmocka_unit_test(a_full_queue_drops_what_comes_and_counts_it),
        cmocka_unit_test(a_collector_that_never_answers_has_a_deadline),
        cmocka_unit_test(a_collector_that_is_away_is_tried_again_and_given_up),
        cmocka_unit_test(closing_ends_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
