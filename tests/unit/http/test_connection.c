/* The states of a connection: clients that disconnect in each state, that are slow, that do not read, and many at
 * once. */
#include "fixture.h"

/* One of them is short, the others are not reached in a test. */
static struct fixture *open_quick(int read_ms, int idle_ms, int write_ms)
{
    struct http_limits limits = short_limits();
    limits.read_timeout_ms = read_ms;
    limits.first_request_timeout_ms = limits.idle_timeout_ms = idle_ms;
    limits.write_timeout_ms = write_ms;
    return fixture_open(limits);
}

/* ---- Clients that disconnect ---- */

static void reset_on_close(int fd)
{
    struct linger now = {.l_onoff = 1};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

static const char *const unfinished[] = {
    "",
    "\r\n",
    "GET / HT",
    "GET / HTTP/1.1\r\nHost",
    "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc",
    "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", /* lingering close */
    "GARBAGE\x01",
};

static void a_client_that_leaves_before_its_request_is_whole_is_dropped(void **state)
{
    (void)state;
    struct fixture *f = fixture_open(short_limits());
    for (size_t i = 0; i < 2 * (sizeof unfinished / sizeof *unfinished); i++) {
        int fd = dial(f);
        say(fd, unfinished[i / 2]);
        wait_until(f, n.connections == 1);
        if (i % 2 == 1) reset_on_close(fd);
        close(fd);
        wait_until(f, n.connections == 0);
    }
    assert_int_equal(counts_of(f).active, 0);
    fixture_close(f);
}

/* The clients of the next test: what they send after the request that is being answered. */
static void leaves_while_answered(struct fixture *f, const char *path, size_t pipelined, bool reset)
{
    size_t gone = counts_of(f).gone;
    int fd = dial(f);
    struct buf text = {0};
    buf_printf(&text, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", path);
    while (pipelined-- > 0) buf_puts(&text, "GET /next HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_true(say_bytes(fd, text.v, text.len));
    buf_release(&text);
    wait_until(f, n.held == 1 && n.active == 1);
    if (reset) reset_on_close(fd);
    close(fd);
    wait_until(f, n.gone == gone + 1 && n.active == 0 && n.connections == 0);
}

static void a_client_that_leaves_while_it_is_answered_is_noticed(void **state)
{
    (void)state;
    struct fixture *f = fixture_open(short_limits());
    static const size_t pipelined[] = {0, 1, 300, 2000}; /* up to 62 KB: far more than is read ahead */
    for (size_t i = 0; i < 8; i++) {
        leaves_while_answered(f, "/hold", pipelined[i / 2], i % 2 == 1);
        leaves_while_answered(f, "/begin", pipelined[i / 2], i % 2 == 1);
    }
    leaves_while_answered(f, "/hold", 20000, true); /* more than the kernel buffers */
    assert_int_equal(counts_of(f).requests, 17);    /* nothing of what was pipelined */
    fixture_close(f);
}

static void a_client_that_only_stops_sending_counts_as_gone_while_it_waits(void **state)
{
    (void)state;
    struct fixture *f = fixture_open(short_limits());
    int fd = dial(f);
    say(fd, "GET /hold HTTP/1.1\r\nHost: h\r\n\r\n");
    shutdown(fd, SHUT_WR);
    wait_until(f, n.requests == 1 && n.gone == 1 && n.connections == 0);
    close(fd);
    /* An answer that was given at once is sent. */
    fd = dial(f);
    say(fd, "GET /at-once HTTP/1.1\r\nHost: h\r\n\r\n");
    shutdown(fd, SHUT_WR);
    hear_only(fd, 200);
    assert_true(ended(fd));
    close(fd);
    fixture_close(f);
}

static void answer_orphans(struct fixture *f, void *arg)
{
    (void)arg;
    assert_int_equal(http_active(f->server), 2);
    release_held(f, NULL);
    assert_int_equal(http_active(f->server), 0);
}

static void a_request_that_nobody_watches_stays_valid_until_it_is_ended(void **state)
{
    (void)state;
    struct fixture *f = fixture_open(short_limits());
    for (int i = 0; i < 2; i++) {
        int fd = dial(f);
        say(fd, "POST /unwatched HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc");
        wait_until(f, n.held == (size_t)i + 1);
        close(fd);
    }
    wait_until(f, n.connections == 0);
    on_server(f, answer_orphans, NULL);
    fixture_close(f);
}

static void an_aborted_request_gets_no_answer(void **state)
{
    (void)state;
    struct fixture *f = fixture_open(short_limits());
    int fd = dial(f);
    say(fd, "GET /abort HTTP/1.1\r\nHost: h\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n");
    struct answer answer = hear(fd, false);
    assert_int_equal(answer.status, 0);
    close(fd);
    wait_until(f, n.connections == 0 && n.active == 0 && n.requests == 1);
    fixture_close(f);
}

static void abort_held(struct fixture *f, void *arg)
{
    (void)arg;
    http_abort(f->held[0]->request);
    forget_held(f->held[0]);
}

static void a_request_may_be_aborted_later(void **state)
{
    (void)state;
    struct fixture *f = fixture_open(short_limits());
    int fd = dial(f);
    say(fd, "GET /begin HTTP/1.1\r\nHost: h\r\n\r\n");
    wait_until(f, n.held == 1);
    on_server(f, abort_held, NULL);
    struct counts counts = counts_of(f);
    assert_int_equal(counts.active + counts.connections + counts.gone, 0);
    close(fd);
    fixture_close(f);
}

static void closing_the_server_ends_what_is_still_open(void **state)
{
    (void)state;
    struct fixture *f = fixture_open(short_limits());
    int fds[] = {dial(f), dial(f), dial(f), dial(f), dial(f)};
    say(fds[0], "GET /hold HTTP/1.1\r\nHost: h\r\n\r\n");
    say(fds[1], "GET /unwatched HTTP/1.1\r\nHost: h\r\n\r\n");
    say(fds[2], "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc");
    say(fds[3], "GET /begin HTTP/1.1\r\nHost: h\r\n\r\n");
    wait_until(f, n.held == 3 && n.connections == 5);
    fixture_close(f); /* a leak would be found by the sanitizer */
    for (int i = 0; i < 5; i++) close(fds[i]);
}

static void waiting_for_an_answer_with_bytes_to_read_costs_no_time(void **state)
{
    (void)state;
    struct http_limits limits = short_limits();
    limits.first_request_timeout_ms = 500;
    struct fixture *f = fixture_open(limits);
    int busy = dial(f);
    struct buf text = {0};
    buf_puts(&text, "GET /hold HTTP/1.1\r\nHost: h\r\n\r\n");
    for (int i = 0; i < 2000; i++) buf_puts(&text, "GET /next HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_true(say_bytes(busy, text.v, text.len));
    wait_until(f, n.held == 1);
    int64_t before = cpu_ms(f);
    int idle = dial(f);
    assert_true(ended(idle)); /* half a second later */
    assert_true(cpu_ms(f) - before < 200);
    buf_release(&text);
    close(idle);
    close(busy);
    fixture_close(f);
}

/* ---- Slow clients ---- */

static void a_request_that_takes_too_long_is_refused(void **state)
{
    (void)state;
    static const char *const slow[] = {
        "GET / HT",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc",
    };
    struct fixture *f = open_quick(200, 60000, 60000);
    for (int i = 0; i < 2; i++) {
        int fd = dial(f);
        ask_only(fd, slow[i], 408);
        assert_true(ended(fd));
        close(fd);
    }
    fixture_close(f);
}

/* Each byte within the timeout, all of them together not. */
static void drips_of_a_request_do_not_extend_its_time(void **state)
{
    (void)state;
    struct fixture *f = open_quick(200, 60000, 60000);
    int fd = dial(f);
    say(fd, "GET / HTTP/1.1\r\nX: ");
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    int64_t start = now_ms();
    while (poll(&readable, 1, 20) == 0) {
        assert_true(now_ms() - start < PATIENCE_MS);
        say_bytes(fd, "x", 1);
    }
    hear_only(fd, 408);
    assert_true(now_ms() - start >= 190);
    close(fd);
    fixture_close(f);
}

static struct http_limits first_within(int ms)
{
    struct http_limits limits = short_limits();
    limits.first_request_timeout_ms = ms;
    return limits;
}

static void a_connection_that_never_sends_a_request_is_closed_soon(void **state)
{
    (void)state;
    struct fixture *f = fixture_open(first_within(300));
    int silent = dial(f), used = dial(f), slow = dial(f);
    ask_only(used, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", 200);
    say(slow, "GET / HT");
    assert_true(ended(silent)); /* without an answer */
    hear_only(slow, 408);
    ask_only(used, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", 200); /* one that is kept alive has more time */
    say(used, "GET / HT");
    struct pollfd readable = {.fd = used, .events = POLLIN};
    assert_int_equal(poll(&readable, 1, 600), 0); /* and so has its next request */
    ask_only(used, "TP/1.1\r\nHost: h\r\n\r\n", 200);
    close(silent);
    close(used);
    close(slow);
    fixture_close(f);
}

/* The time for the first request ends with its head. */
static void a_first_body_may_take_as_long_as_any(void **state)
{
    (void)state;
    struct fixture *f = fixture_open(first_within(300));
    int fd = dial(f);
    say(fd, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\na");
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&readable, 1, 700), 0);
    ask_only(fd, "bc", 200);
    close(fd);
    fixture_close(f);
}

static void an_idle_connection_is_closed(void **state)
{
    (void)state;
    struct fixture *f = open_quick(60000, 200, 60000);
    int fresh = dial(f), used = dial(f);
    ask_only(used, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", 200);
    say(used, "\r\n");
    assert_true(ended(fresh));
    assert_true(ended(used));
    close(fresh);
    close(used);
    wait_until(f, n.connections == 0);
    fixture_close(f);
}

/* Whether it ends although something is said again and again; both sides of a line's end come apart, too. */
static bool ends_though_it_says(int fd, const char *const *what, size_t n)
{
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    for (size_t i = 0; i < 200; i++) {
        send(fd, what[i % n], strlen(what[i % n]), MSG_NOSIGNAL);
        if (poll(&readable, 1, 20) > 0) return ended(fd);
    }
    return false;
}

static void empty_lines_keep_no_connection_open(void **state)
{
    (void)state;
    static const char *const whole[] = {"\r\n"}, *const halves[] = {"\r", "\n"};
    struct fixture *f = open_quick(60000, 300, 60000);
    int one = dial(f), other = dial(f);
    ask_only(one, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", 200);
    ask_only(other, "\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", 200);
    assert_true(ends_though_it_says(one, whole, 1));
    close(other);
    other = dial(f);
    ask_only(other, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", 200);
    assert_true(ends_though_it_says(other, halves, 2));
    close(one);
    close(other);
    fixture_close(f);
}

static void an_answer_may_take_longer_than_any_timeout_of_the_request(void **state)
{
    (void)state;
    struct fixture *f = open_quick(200, 200, 200);
    int fd = dial(f), other = dial(f);
    say(fd, "GET /hold HTTP/1.1\r\nHost: h\r\n\r\n");
    wait_until(f, n.held == 1);
    assert_true(ended(other)); /* the idle timeout, as long as the read timeout, has passed */
    on_server(f, release_held, NULL);
    hear_only(fd, 200);
    close(fd);
    close(other);
    fixture_close(f);
}

/* ---- Clients that do not read ---- */

static void flood(struct fixture *f, void *arg)
{
    (void)arg;
    static char bytes[65536];
    for (int i = 0; f->n_held > 0 && i < 16; i++) http_send(f->held[0]->request, bytes, sizeof bytes);
    f->backlog = f->n_held > 0 ? http_backlog(f->held[0]->request) : 0;
}

static void what_a_client_does_not_take_counts_as_backlog_until_it_does(void **state)
{
    (void)state;
    struct fixture *f = fixture_open(short_limits());
    int fd = dial(f);
    say(fd, "GET /begin HTTP/1.1\r\nHost: h\r\n\r\n");
    wait_until(f, n.held == 1);
    size_t sent = 5;
    do {
        on_server(f, flood, NULL);
        sent += 16 * 65536;
    } while (counts_of(f).backlog < 8 << 20);
    on_server(f, release_held, NULL); /* ended, and all of it is sent */
    struct answer answer = hear(fd, false);
    assert_int_equal(answer.body.len, sent);
    answer_release(&answer);
    ask_only(fd, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", 200);
    close(fd);
    fixture_close(f);
}

static void a_client_that_takes_nothing_is_gone_after_the_write_timeout(void **state)
{
    (void)state;
    struct fixture *f = open_quick(60000, 60000, 200);
    int fd = dial(f);
    say(fd, "GET /begin HTTP/1.1\r\nHost: h\r\n\r\n");
    wait_until(f, n.held == 1);
    do on_server(f, flood, NULL);
    while (counts_of(f).backlog > 0 && counts_of(f).backlog < 8 << 20);
    wait_until(f, n.gone == 1 && n.connections == 0);
    close(fd);
    fixture_close(f);
}

static void answers_do_not_pile_up_for_a_client_that_only_sends(void **state)
{
    (void)state;
    struct fixture *f = open_quick(60000, 60000, 200);
    int fd = dial(f);
    struct buf text = {0};
    buf_puts(&text, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n");
    for (int i = 0; i < 100000; i++) buf_puts(&text, "0123456789");
    int rounds = 0;
    while (rounds < 200 && say_bytes(fd, text.v, text.len)) rounds++;
    assert_true(rounds < 200); /* no longer read from, and gone after the write timeout */
    wait_until(f, n.connections == 0);
    buf_release(&text);
    close(fd);
    fixture_close(f);
}

/* ---- Many clients ---- */

enum { CLIENTS = 64, ROUNDS = 20 };

static void many_connections_are_served_at_once(void **state)
{
    (void)state;
    struct fixture *f = fixture_open(short_limits());
    int fds[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) fds[i] = dial(f);
    for (int round = 0; round < ROUNDS; round++) {
        char text[128], body[32];
        for (int i = 0; i < CLIENTS; i++) {
            int len = snprintf(body, sizeof body, "%d of %d", i, round);
            snprintf(text, sizeof text, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", len, body);
            say(fds[i], text);
        }
        for (int i = 0; i < CLIENTS; i++) {
            snprintf(body, sizeof body, "%d of %d", i, round);
            struct answer answer = hear(fds[i], false);
            assert_string_equal(answer.body.v, body);
            answer_release(&answer);
        }
    }
    struct counts counts = counts_of(f);
    assert_int_equal(counts.connections, CLIENTS);
    assert_int_equal(counts.requests, CLIENTS * ROUNDS);
    for (int i = 0; i < CLIENTS; i++) close(fds[i]);
    wait_until(f, n.connections == 0);
    fixture_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_that_leaves_before_its_request_is_whole_is_dropped),
        cmocka_unit_test(a_client_that_leaves_while_it_is_answered_is_noticed),
        cmocka_unit_test(a_client_that_only_stops_sending_counts_as_gone_while_it_waits),
        cmocka_unit_test(a_request_that_nobody_watches_stays_valid_until_it_is_ended),
        cmocka_unit_test(an_aborted_request_gets_no_answer),
        cmocka_unit_test(a_request_may_be_aborted_later),
        cmocka_unit_test(closing_the_server_ends_what_is_still_open),
        cmocka_unit_test(waiting_for_an_answer_with_bytes_to_read_costs_no_time),
        cmocka_unit_test(a_request_that_takes_too_long_is_refused),
        cmocka_unit_test(drips_of_a_request_do_not_extend_its_time),
        cmocka_unit_test(a_connection_that_never_sends_a_request_is_closed_soon),
        cmocka_unit_test(a_first_body_may_take_as_long_as_any),
        cmocka_unit_test(an_idle_connection_is_closed),
        cmocka_unit_test(empty_lines_keep_no_connection_open),
        cmocka_unit_test(an_answer_may_take_longer_than_any_timeout_of_the_request),
        cmocka_unit_test(what_a_client_does_not_take_counts_as_backlog_until_it_does),
        cmocka_unit_test(a_client_that_takes_nothing_is_gone_after_the_write_timeout),
        cmocka_unit_test(answers_do_not_pile_up_for_a_client_that_only_sends),
        cmocka_unit_test(many_connections_are_served_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
