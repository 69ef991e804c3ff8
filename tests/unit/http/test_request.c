/* Valid and malformed requests: parsing, framing, size limits, and the form of answers. */
#include "fixture.h"

static int setup(void **state)
{
    *state = fixture_open(short_limits());
    return 0;
}

static int teardown(void **state)
{
    fixture_close(*state);
    return 0;
}

/* The answer to one request on a connection of its own, which must be closed after it. */
static void refused(struct fixture *f, const char *bytes, size_t len, int status)
{
    int fd = dial(f);
    assert_true(say_bytes(fd, bytes, len));
    struct answer answer = hear(fd, false);
    if (answer.status != status) fail_msg("%d instead of %d for: %s", answer.status, status, bytes);
    assert_string_equal(answer_header(&answer, "Content-Type"), "application/json");
    assert_string_equal(answer_header(&answer, "Connection"), "close");
    assert_string_equal(answer_header(&answer, "X-Fault"), "yes");
    char expected[32];
    snprintf(expected, sizeof expected, "\"status\":%d,", status);
    assert_non_null(strstr(answer.body.v, expected));
    if (status == 413) assert_non_null(strstr(answer.body.v, "{\"path\":\"/"));
    assert_true(ended(fd));
    answer_release(&answer);
    close(fd);
}

static void a_request_is_answered_and_the_connection_kept(void **state)
{
    int fd = dial(*state);
    for (int i = 0; i < 3; i++) {
        struct answer answer = ask(fd,
                                   "POST /a%20b?q=x%2By+z HTTP/1.1\r\nHost: h\r\nX-TEST: \t v w \t\r\n"
                                   "Content-Length: 5\r\n\r\nhello",
                                   200);
        assert_string_equal(answer.body.v, "hello");
        assert_string_equal(answer_header(&answer, "X-Method"), "POST");
        assert_string_equal(answer_header(&answer, "X-Path"), "/a b");
        assert_string_equal(answer_header(&answer, "X-Query"), "x+y z");
        assert_string_equal(answer_header(&answer, "X-Test"), "v w");
        assert_string_equal(answer_header(&answer, "Content-Length"), "5");
        assert_string_equal(answer_header(&answer, "Connection"), "keep-alive");
        assert_non_null(strstr(answer_header(&answer, "Date"), " GMT"));
        answer_release(&answer);
    }
    close(fd);
}

static void a_request_may_come_byte_by_byte(void **state)
{
    const char text[] = "POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3;ext=1\r\nabc\r\n2\r\nde\r\n"
                        "0\r\nTrailer: t\r\n\r\nGET /next HTTP/1.1\r\nHost: h\r\n\r\n";
    int fd = dial(*state);
    for (size_t i = 0; i < sizeof text - 1; i++) assert_true(say_bytes(fd, text + i, 1));
    struct answer answer = hear(fd, false);
    assert_string_equal(answer.body.v, "abcde");
    answer_release(&answer);
    answer = hear(fd, false);
    assert_string_equal(answer_header(&answer, "X-Path"), "/next");
    answer_release(&answer);
    close(fd);
}

static void pipelined_requests_are_answered_in_order(void **state)
{
    int fd = dial(*state);
    struct buf all = {0};
    for (int i = 0; i < 200; i++)
        buf_printf(&all, "POST /%d HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab\r\n", i);
    assert_true(say_bytes(fd, all.v, all.len));
    for (int i = 0; i < 200; i++) {
        char path[16];
        snprintf(path, sizeof path, "/%d", i);
        struct answer answer = hear(fd, false);
        assert_string_equal(answer_header(&answer, "X-Path"), path);
        assert_string_equal(answer.body.v, "ab");
        answer_release(&answer);
    }
    buf_release(&all);
    close(fd);
}

static void a_pipelined_request_waits_for_the_answer_before_it(void **state)
{
    struct fixture *f = *state;
    int fd = dial(f);
    say(fd, "GET /hold HTTP/1.1\r\nHost: h\r\n\r\nGET /second HTTP/1.1\r\nHost: h\r\n\r\n");
    wait_until(f, n.held == 1);
    assert_int_equal(counts_of(f).requests, 1);
    on_server(f, release_held, NULL);
    struct answer answer = hear(fd, false);
    assert_string_equal(answer.body.v, "released");
    answer_release(&answer);
    answer = hear(fd, false);
    assert_string_equal(answer_header(&answer, "X-Path"), "/second");
    answer_release(&answer);
    close(fd);
}

static void http_1_0_closes_unless_it_asks_to_be_kept(void **state)
{
    int fd = dial(*state);
    struct answer answer = ask(fd, "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 200);
    assert_string_equal(answer_header(&answer, "Connection"), "keep-alive");
    answer_release(&answer);
    answer = ask(fd, "GET / HTTP/1.0\r\n\r\n", 200);
    assert_string_equal(answer_header(&answer, "Connection"), "close");
    answer_release(&answer);
    assert_true(ended(fd));
    close(fd);
}

static void a_stream_is_chunked_or_ends_with_the_connection(void **state)
{
    int fd = dial(*state);
    struct answer answer = ask(fd, "GET /stream HTTP/1.1\r\nHost: h\r\n\r\n", 200);
    assert_string_equal(answer_header(&answer, "Transfer-Encoding"), "chunked");
    assert_string_equal(answer.body.v, "one two three");
    answer_release(&answer);
    answer = ask(fd, "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 200);
    assert_null(answer_header(&answer, "Transfer-Encoding"));
    assert_null(answer_header(&answer, "Content-Length"));
    assert_string_equal(answer_header(&answer, "Connection"), "close");
    assert_string_equal(answer.body.v, "one two three");
    answer_release(&answer);
    close(fd);
}

static void connection_close_is_honoured(void **state)
{
    int fd = dial(*state);
    struct answer answer = ask(fd, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", 200);
    assert_string_equal(answer_header(&answer, "Connection"), "close");
    answer_release(&answer);
    assert_true(ended(fd));
    close(fd);
}

static void head_gets_headers_and_no_body(void **state)
{
    static const char *const paths[] = {"/", "/stream", "/empty"};
    int fd = dial(*state);
    for (size_t i = 0; i < 3; i++) {
        char text[256];
        snprintf(text, sizeof text, "HEAD %s HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc", paths[i]);
        say(fd, text);
        struct answer answer = hear(fd, true);
        assert_int_equal(answer.status, i == 2 ? 204 : 200);
        if (i == 0) assert_string_equal(answer_header(&answer, "Content-Length"), "3");
        answer_release(&answer);
    }
    ask_only(fd, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", 200);
    close(fd);
}

static void no_content_has_neither_body_nor_length(void **state)
{
    int fd = dial(*state);
    struct answer answer = ask(fd, "GET /empty HTTP/1.1\r\nHost: h\r\n\r\n", 204);
    assert_null(answer_header(&answer, "Content-Length"));
    answer_release(&answer);
    ask_only(fd, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", 200);
    close(fd);
}

static void a_header_value_cannot_smuggle_a_header(void **state)
{
    int fd = dial(*state);
    struct answer answer = ask(fd, "GET /inject HTTP/1.1\r\nHost: h\r\n\r\n", 200);
    assert_string_equal(answer_header(&answer, "X-Value"), "a  X-Evil: b");
    assert_null(answer_header(&answer, "X-Evil"));
    answer_release(&answer);
    close(fd);
}

static void expect_continue_is_answered_before_the_body_is_sent(void **state)
{
    int fd = dial(*state);
    const char head[] = "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\nContent-Length: 3\r\n\r\n";
    ask_only(fd, head, 100);
    ask_only(fd, "abc", 200);
    /* No 100 Continue if the body is arriving already. */
    say(fd, "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc");
    hear_only(fd, 200);
    close(fd);
    static const char big[] = "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 9999999\r\n\r\n";
    refused(*state, big, sizeof big - 1, 413);
    static const char odd[] = "POST / HTTP/1.1\r\nHost: h\r\nExpect: gold\r\nContent-Length: 3\r\n\r\n";
    refused(*state, odd, sizeof odd - 1, 417);
}

static void an_offer_to_upgrade_is_passed_over(void **state)
{
    int fd = dial(*state);
    ask_only(fd, "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", 200);
    struct answer answer = ask(fd,
                               "POST / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n"
                               "Content-Length: 3\r\n\r\nabc",
                               200);
    assert_string_equal(answer.body.v, "abc");
    answer_release(&answer);
    close(fd);
}

static void a_target_may_name_a_host(void **state)
{
    static const struct {
        const char *target, *host, *path;
    } rows[] = {
        {"/x?y=http://other/", NULL, "/x"},
        {"//other/x", NULL, "//other/x"},
        {"http://other:80/x?q=1", "other:80", "/x"},
        {"http://other", "other", "/"},
        {"HTTPS://user@[::1]:8/x", "user@[::1]:8", "/x"},
    };
    int fd = dial(*state);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[128];
        snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", rows[i].target);
        struct answer answer = ask(fd, text, 200);
        const char *host = answer_header(&answer, "X-Target-Host");
        assert_int_equal(host == NULL, rows[i].host == NULL);
        if (host != NULL) assert_string_equal(host, rows[i].host);
        assert_string_equal(answer_header(&answer, "X-Path"), rows[i].path);
        assert_string_equal(answer_header(&answer, "X-Unix"), "no");
        assert_int_equal(atoi(answer_header(&answer, "X-Port")), ((struct fixture *)*state)->port);
        answer_release(&answer);
    }
    close(fd);
}

static const struct {
    const char *request;
    int status;
} malformed[] = {
    {"GET / HTTP/1.1\r\nHost: h\nX: y\r\n\r\n", 400},      /* bare line feed */
    {"GET / HTTP/1.1\n\n", 400},                           /* likewise */
    {"GET / HTTP/1.1\r\nHost: h\rX: y\r\n\r\n", 400},      /* bare carriage return */
    {"GET / HTTP/1.1\r\nHost: h\r\n folded\r\n\r\n", 400}, /* folded */
    {"GET / HTTP/1.1\r\nHost : h\r\n\r\n", 400},           /* space before the colon */
    {"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400},           /* no header */
    {"GET / HTTP/1.1\r\nHost: \x01\r\n\r\n", 400},         /* control character */
    {"GET / HTTP/1.1\r\n\r\n", 400},                       /* no Host */
    {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400}, /* two */
    {"GET / HTTP/1.1\r\nHost: h\r\nOrigin: http://a\r\norigin: http://b\r\n\r\n", 400},
    {"G@T / HTTP/1.1\r\nHost: h\r\n\r\n", 400},        /* no method */
    {"get / HTTP/1.1\r\nHost: h\r\n\r\n", 400},        /* methods are in capitals */
    {"GET relative HTTP/1.1\r\nHost: h\r\n\r\n", 400}, /* no path */
    {"GET /%zz HTTP/1.1\r\nHost: h\r\n\r\n", 400},     /* no percent encoding */
    {"GET /a%00b HTTP/1.1\r\nHost: h\r\n\r\n", 400},   /* an encoded NUL */
    {"GET /?a=%4 HTTP/1.1\r\nHost: h\r\n\r\n", 400},   /* cut off */
    {"GET /\r\n\r\n", 400},                            /* HTTP/0.9 */
    {"GET / RTSP/1.0\r\n\r\n", 400},                   /* another protocol */
    {"CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n", 400},  /* for proxies */
    {"\x16\x03\x01\x02\x01", 400},                     /* TLS on a plain port */
    {"GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505},        /* other versions */
    {"GET / HTTP/1.2\r\nHost: h\r\n\r\n", 505},
    {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
    {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400},
    {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc", 400},
    {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3, 3\r\n\r\nabc", 400},
    {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +3\r\n\r\nabc", 400},
    {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -3\r\n\r\nabc", 400},
    {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0x3\r\n\r\nabc", 400},
    {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999999\r\n\r\nabc", 400},
    {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", 400},
    {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcXX0\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc", 400},
};

static void malformed_requests_are_refused_and_the_connection_closed(void **state)
{
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        refused(*state, malformed[i].request, strlen(malformed[i].request), malformed[i].status);
    }
    refused(*state, "GET /\0 HTTP/1.1\r\n\r\n", 19, 400);
    assert_int_equal(counts_of(*state).requests, 0);
}

static void a_head_may_fill_its_limit_and_no_more(void **state)
{
    size_t max = short_limits().max_head;
    struct buf text = {0};
    buf_puts(&text, "GET / HTTP/1.1\r\nHost: h\r\nX: ");
    while (text.len < max - 4) buf_puts(&text, "x");
    buf_puts(&text, "\r\n\r\n");
    assert_int_equal(text.len, max);
    int fd = dial(*state);
    ask_only(fd, text.v, 200);
    close(fd);
    text.len -= 4;
    buf_puts(&text, "x\r\n\r\n");
    refused(*state, text.v, text.len, 431);
    buf_release(&text);
    for (int i = 0; i < 3000; i++) buf_printf(&text, "%s", i == 0 ? "GET / HTTP/1.1\r\nHost: h\r\n" : "a: b\r\n");
    refused(*state, text.v, text.len, 431);
    buf_release(&text);
}

static void a_body_may_fill_its_limit_and_no_more(void **state)
{
    size_t max = short_limits().max_body;
    char *body = mem_alloc(max + 2);
    memset(body, 'b', max + 1);
    char head[128];
    int fd = dial(*state);
    snprintf(head, sizeof head, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n", max);
    say(fd, head);
    assert_true(say_bytes(fd, body, max));
    struct answer answer = hear(fd, false);
    assert_int_equal(answer.body.len, max);
    answer_release(&answer);
    close(fd);
    snprintf(head, sizeof head, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n", max + 1);
    refused(*state, head, strlen(head), 413);
    fd = dial(*state);
    say(fd, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    snprintf(head, sizeof head, "1\r\nx\r\n%zx\r\n", max);
    ask_only(fd, head, 413);
    /* Lingering close: the client may still send for a while, since a reset would discard the answer. */
    for (size_t said = 0; said < max; said += 65536) assert_true(say_bytes(fd, body, 65536));
    close(fd);
    free(body);
}

static void chunk_extensions_and_trailers_are_bounded(void **state)
{
    struct buf text = {0};
    buf_puts(&text, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1;");
    for (int i = 0; i < 60000; i++) buf_puts(&text, "e");
    refused(*state, text.v, text.len, 431);
    buf_clear(&text);
    buf_puts(&text, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n");
    for (int i = 0; i < 10000; i++) buf_puts(&text, "T: x\r\n");
    refused(*state, text.v, text.len, 431);
    buf_release(&text);
}

#define test(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(a_request_is_answered_and_the_connection_kept),
        test(a_request_may_come_byte_by_byte),
        test(pipelined_requests_are_answered_in_order),
        test(a_pipelined_request_waits_for_the_answer_before_it),
        test(http_1_0_closes_unless_it_asks_to_be_kept),
        test(a_stream_is_chunked_or_ends_with_the_connection),
        test(connection_close_is_honoured),
        test(head_gets_headers_and_no_body),
        test(no_content_has_neither_body_nor_length),
        test(a_header_value_cannot_smuggle_a_header),
        test(expect_continue_is_answered_before_the_body_is_sent),
        test(an_offer_to_upgrade_is_passed_over),
        test(a_target_may_name_a_host),
        test(malformed_requests_are_refused_and_the_connection_closed),
        test(a_head_may_fill_its_limit_and_no_more),
        test(a_body_may_fill_its_limit_and_no_more),
        test(chunk_extensions_and_trailers_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
