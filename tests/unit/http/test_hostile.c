/* Ten thousand requests that are random or nearly valid: each gets an answer or a closed connection, and the server
 * works afterwards. The seed is fixed, so that failures are reproducible. */
#include "fixture.h"

enum { ATTACKS = 10000, MAX_TEXT = 4096, TIME_MS = 20000 };

static uint64_t random_state = 0x9e3779b97f4a7c15u;

static unsigned roll(unsigned below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (unsigned)((random_state >> 11) % below);
}

static const char *const seeds[] = {
    "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
    "POST /x?q=%20 HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
    "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nT: x\r\n\r\n",
    "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "HEAD /empty HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx",
    "GET /stream HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "GET /abort HTTP/1.1\r\nHost: h\r\n\r\nGET /hold HTTP/1.1\r\nHost: h\r\n\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: h\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
};

static const char *const splices[] = {
    "\r\n",     "\n", "\r",   "\r\n\r\n",    ":",        "Content-Length: 9\r\n",
    "chunked",  "0",  "\xff", " ",           "%00",      "Transfer-Encoding: chunked\r\n",
    "HTTP/9.9", "-1", ";",    "Host: x\r\n", "ffffffff", "Connection: close\r\n"};

static size_t attack_text(char *text)
{
    if (roll(8) == 0) {
        size_t len = roll(600);
        for (size_t i = 0; i < len; i++) text[i] = (char)roll(256);
        return len;
    }
    const char *seed = seeds[roll(sizeof seeds / sizeof *seeds)];
    size_t len = strlen(seed);
    memcpy(text, seed, len);
    for (unsigned n = roll(5); n > 0 && len > 0; n--) {
        size_t at = roll((unsigned)len);
        const char *splice = splices[roll(sizeof splices / sizeof *splices)];
        size_t splice_len = strlen(splice);
        switch (roll(5)) {
        case 0:
            text[at] = (char)roll(256);
            break;
        case 1:
            memmove(text + at, text + at + 1, len - at - 1);
            len--;
            break;
        case 2:
            len = at;
            break;
        case 3:
            memmove(text + at + splice_len, text + at, len - at);
            memcpy(text + at, splice, splice_len);
            len += splice_len;
            break;
        default:
            memmove(text + len, text + at, len - at);
            len += len - at;
            break;
        }
    }
    return len;
}

/* Sends it in one to three pieces, then waits for an answer or the end of the connection, or disconnects. */
static void attack(struct fixture *f)
{
    char text[MAX_TEXT], word[256];
    size_t len = attack_text(text);
    int fd = dial(f);
    for (size_t said = 0; said < len;) {
        size_t n = roll(2) == 0 ? len - said : 1 + roll((unsigned)(len - said));
        if (!say_bytes(fd, text + said, n)) break;
        said += n;
    }
    if (roll(4) != 0) {
        shutdown(fd, SHUT_WR);
        while (recv(fd, word, sizeof word, 0) > 0) continue;
        assert_true(errno != EAGAIN); /* neither an answer nor an end */
    }
    close(fd);
}

static void ten_thousand_malformed_requests_leave_no_trace(void **state)
{
    (void)state;
    struct fixture *f = fixture_open(short_limits());
    int64_t start = now_ms();
    for (int i = 0; i < ATTACKS; i++) {
        errno = 0;
        attack(f);
    }
    wait_until(f, n.connections == 0 && n.active == 0 && n.bodies == 0 && n.stalled == 0);
    assert_true(now_ms() - start < TIME_MS);
    assert_true(counts_of(f).requests > ATTACKS / 10); /* many were valid enough to be dispatched */
    int fd = dial(f);
    ask_only(fd, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", 200);
    close(fd);
    fixture_close(f);
}

/* The same texts while the connection stays open: malformed requests must be answered although the client waits. */
static void what_is_malformed_is_answered_while_the_client_waits(void **state)
{
    (void)state;
    struct http_limits limits = short_limits();
    limits.first_request_timeout_ms = limits.read_timeout_ms = limits.idle_timeout_ms = 20;
    struct fixture *f = fixture_open(limits);
    for (int i = 0; i < 300; i++) {
        char text[MAX_TEXT], word[256];
        size_t len = attack_text(text);
        if (memmem(text, len, "/hold", 5) != NULL) continue;
        int fd = dial(f);
        say_bytes(fd, text, len);
        errno = 0;
        while (recv(fd, word, sizeof word, 0) > 0) continue;
        assert_true(errno != EAGAIN);
        close(fd);
    }
    wait_until(f, n.connections == 0 && n.active == 0 && n.bodies == 0);
    fixture_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_thousand_malformed_requests_leave_no_trace),
        cmocka_unit_test(what_is_malformed_is_answered_while_the_client_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
