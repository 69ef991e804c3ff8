/* An HTTP server on a thread of the test, with a handler whose paths do what tests need, and a blocking client.
 *
 * Only the server's thread touches the handler's fields; tests read them through on_server() and wait_until(). */
#ifndef TESTS_UNIT_HTTP_FIXTURE_H
#define TESTS_UNIT_HTTP_FIXTURE_H

#include "base/buf.h"
#include "base/memory.h"
#include "http/connection.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_HELD = 256, PATIENCE_MS = 10000 };

struct held {
    struct fixture *fixture;
    struct http_request *request;
    bool begun;
};

struct fixture {
    struct http_server *server;
    pthread_t thread;
    int port;
    size_t requests; /* dispatched to the handler */
    size_t gone;     /* on_gone calls */
    size_t n_held;
    struct held *held[MAX_HELD];
    size_t backlog;     /* of the request that is flooded */
    size_t peak_bodies; /* maximum memory of all bodies when a request was dispatched */
};

/* ---- The handler ---- */

static inline void forget_held(struct held *held)
{
    struct fixture *f = held->fixture;
    for (size_t i = 0; i < f->n_held; i++) {
        if (f->held[i] == held) {
            f->held[i] = f->held[--f->n_held];
            break;
        }
    }
    free(held);
}

static inline void held_gone(void *ud)
{
    struct held *held = ud;
    held->fixture->gone++;
    http_send(held->request, "late", 4); /* forbidden, and harmless */
    http_end(held->request);
    forget_held(held);
}

static inline struct held *hold(struct fixture *f, struct http_request *request, bool watched)
{
    struct held *held = mem_alloc(sizeof *held);
    *held = (struct held){.fixture = f, .request = request};
    assert_true(f->n_held < MAX_HELD);
    f->held[f->n_held++] = held;
    if (watched) http_watch(request, held_gone, held);
    return held;
}

static inline struct buf take_body(struct fixture *f, struct http_request *request)
{
    struct buf body = http_take_body(request);
    http_recount(f->server, body.len, 0);
    return body;
}

static inline void answer_echo(struct fixture *f, struct http_request *request)
{
    struct buf body = take_body(f, request);
    const char *q = http_query(request, "q");
    const char *x = http_header(request, "x-test");
    char port[16];
    snprintf(port, sizeof port, "%d", http_port(request));
    http_set_header(request, "X-Unix", http_is_unix(request) ? "yes" : "no");
    http_set_header(request, "X-Port", port);
    if (http_target_host(request) != NULL) http_set_header(request, "X-Target-Host", http_target_host(request));
    http_set_header(request, "X-Method", http_method(request));
    http_set_header(request, "X-Path", http_path(request));
    if (q != NULL) http_set_header(request, "X-Query", q);
    if (x != NULL) http_set_header(request, "X-Test", x);
    http_reply(request, 200, "text/plain", body.v, body.len);
    buf_release(&body);
}

static inline void answer_hold(struct fixture *f, struct http_request *request)
{
    hold(f, request, true);
}

static inline void answer_unwatched(struct fixture *f, struct http_request *request)
{
    hold(f, request, false);
}

static inline void answer_hold_dropped(struct fixture *f, struct http_request *request)
{
    struct buf body = take_body(f, request);
    buf_release(&body);
    hold(f, request, true);
}

static inline void answer_stream(struct fixture *f, struct http_request *request)
{
    (void)f;
    http_begin(request, 200, "text/plain");
    http_send(request, "one ", 4);
    http_send(request, "", 0);
    http_send(request, "two ", 4);
    http_send(request, "three", 5);
    http_end(request);
}

static inline void answer_begin(struct fixture *f, struct http_request *request)
{
    http_begin(request, 200, "text/plain");
    http_send(request, "begun", 5);
    hold(f, request, true)->begun = true;
}

static inline void answer_empty(struct fixture *f, struct http_request *request)
{
    (void)f;
    http_reply(request, 204, NULL, NULL, 0);
}

static inline void answer_inject(struct fixture *f, struct http_request *request)
{
    (void)f;
    http_set_header(request, "X-Value", "a\r\nX-Evil: b");
    http_reply(request, 200, NULL, "", 0);
}

static inline void answer_abort(struct fixture *f, struct http_request *request)
{
    (void)f;
    http_abort(request);
}

static const struct {
    const char *path;
    void (*answer)(struct fixture *f, struct http_request *request);
} routes[] = {
    {"/hold", answer_hold},     {"/unwatched", answer_unwatched}, {"/dropped", answer_hold_dropped},
    {"/stream", answer_stream}, {"/begin", answer_begin},         {"/empty", answer_empty},
    {"/inject", answer_inject}, {"/abort", answer_abort},
};

static inline void on_request(void *ud, struct http_request *request)
{
    struct fixture *f = ud;
    f->requests++;
    if (f->server->bodies.held > f->peak_bodies) f->peak_bodies = f->server->bodies.held;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (strcmp(http_path(request), routes[i].path) == 0) {
            routes[i].answer(f, request);
            return;
        }
    }
    answer_echo(f, request);
}

static inline bool is_urgent(void *ud, const struct http_request *request)
{
    (void)ud;
    return strcmp(http_path(request), "/urgent") == 0;
}

static inline void put_fault(void *ud, struct http_request *request, int status, const char *message, struct buf *out)
{
    (void)ud;
    const char *path = http_path(request);
    http_set_header(request, "X-Fault", "yes");
    buf_printf(out, "{\"path\":\"%s\",\"status\":%d,\"message\":\"%s\"}", path == NULL ? "" : path, status, message);
}

/* ---- The server's thread ---- */

static inline void *serve(void *ud)
{
    http_run(((struct fixture *)ud)->server);
    return NULL;
}

static inline struct http_limits short_limits(void)
{
    struct http_limits limits = http_limits_default();
    limits.max_body = 1 << 20;
    limits.max_bodies = 4 << 20;
    limits.max_head = 8192;
    return limits;
}

static inline struct fixture *fixture_open(struct http_limits limits)
{
    struct fixture *f = mem_alloc(sizeof *f);
    struct http_handler handler = {.on_request = on_request, .is_urgent = is_urgent, .put_fault = put_fault, .ud = f};
    hearth_error error = {0};
    char *bound = NULL;
    f->server = http_open(&limits, &handler, &error);
    assert_non_null(f->server);
    assert_int_equal(http_listen(f->server, "127.0.0.1:0", &bound, &error), 0);
    f->port = atoi(strrchr(bound, ':') + 1);
    free(bound);
    assert_int_equal(pthread_create(&f->thread, NULL, serve, f), 0);
    return f;
}

struct call {
    struct fixture *fixture;
    void (*fn)(struct fixture *f, void *arg);
    void *arg;
    sem_t done;
};

static inline void run_call(void *ud)
{
    struct call *call = ud;
    call->fn(call->fixture, call->arg);
    sem_post(&call->done);
}

/* Runs `fn` on the server's thread and waits for it. */
static inline void on_server(struct fixture *f, void (*fn)(struct fixture *f, void *arg), void *arg)
{
    struct call call = {.fixture = f, .fn = fn, .arg = arg};
    sem_init(&call.done, 0, 0);
    http_post(f->server, run_call, &call);
    while (sem_wait(&call.done) != 0) continue;
    sem_destroy(&call.done);
}

struct counts {
    size_t requests, gone, held, active, connections, backlog, bodies, peak_bodies, stalled;
};

static inline void read_counts(struct fixture *f, void *arg)
{
    *(struct counts *)arg = (struct counts){
        .requests = f->requests,
        .gone = f->gone,
        .held = f->n_held,
        .active = http_active(f->server),
        .connections = http_connections(f->server),
        .backlog = f->backlog,
        .bodies = f->server->bodies.held,
        .peak_bodies = f->peak_bodies,
        .stalled = f->server->bodies.stalled,
    };
}

static inline struct counts counts_of(struct fixture *f)
{
    struct counts counts;
    on_server(f, read_counts, &counts);
    return counts;
}

static inline int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Waits until the condition on the counts `n` holds; fails the test after PATIENCE_MS. */
#define wait_until(f, condition)                                                                                       \
    do {                                                                                                               \
        int64_t deadline_ = now_ms() + PATIENCE_MS;                                                                    \
        for (;;) {                                                                                                     \
            struct counts n = counts_of(f);                                                                            \
            if (condition) break;                                                                                      \
            if (now_ms() > deadline_) fail_msg("not reached: %s", #condition);                                         \
            poll(NULL, 0, 1);                                                                                          \
        }                                                                                                              \
    } while (0)

/* Processor time that the server's thread has used. */
static inline int64_t cpu_ms(struct fixture *f)
{
    clockid_t clock;
    struct timespec t;
    assert_int_equal(pthread_getcpuclockid(f->thread, &clock), 0);
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static inline void stop_server(struct fixture *f, void *arg)
{
    (void)arg;
    http_stop(f->server);
}

static inline void fixture_close(struct fixture *f)
{
    on_server(f, stop_server, NULL);
    pthread_join(f->thread, NULL);
    http_close(f->server);
    while (f->n_held > 0) forget_held(f->held[0]);
    free(f);
}

/* Answers all held requests. */
static inline void release_held(struct fixture *f, void *arg)
{
    (void)arg;
    while (f->n_held > 0) {
        struct held *held = f->held[0];
        if (held->begun)
            http_end(held->request);
        else
            http_reply(held->request, 200, "text/plain", "released", 8);
        forget_held(held);
    }
}

/* ---- The client ---- */

/* `host`: the last part of the client's address, 127.0.0.host. */
static inline int dial_from(struct fixture *f, unsigned host)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)f->port)};
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK - 1 + host)}};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    int one = 1;
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one); /* to look for a free one takes its time */
    assert_int_equal(bind(fd, (struct sockaddr *)&own, sizeof own), 0);
    struct timeval patience = {.tv_sec = PATIENCE_MS / 1000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static inline int dial(struct fixture *f)
{
    return dial_from(f, 1);
}

/* False if the server closed meanwhile. */
static inline bool say_bytes(int fd, const void *bytes, size_t len)
{
    const char *at = bytes;
    while (len > 0) {
        ssize_t n = send(fd, at, len, MSG_NOSIGNAL);
        if (n <= 0) return false;
        at += n;
        len -= (size_t)n;
    }
    return true;
}

static inline void say(int fd, const char *text)
{
    assert_true(say_bytes(fd, text, strlen(text)));
}

struct answer {
    int status; /* 0: the connection ended without an answer */
    struct buf head, body;
};

static inline void answer_release(struct answer *answer)
{
    buf_release(&answer->head);
    buf_release(&answer->body);
}

static inline bool read_some(int fd, struct buf *b, size_t max)
{
    char piece[65536];
    ssize_t n = recv(fd, piece, max < sizeof piece ? max : sizeof piece, 0);
    if (n <= 0) return false;
    buf_append(b, piece, (size_t)n);
    return true;
}

static inline const char *answer_header(const struct answer *answer, const char *name)
{
    static char value[512];
    char line[128];
    snprintf(line, sizeof line, "\r\n%s: ", name);
    const char *at = strcasestr(answer->head.v, line);
    if (at == NULL) return NULL;
    at += strlen(line);
    snprintf(value, sizeof value, "%.*s", (int)strcspn(at, "\r"), at);
    return value;
}

static inline void read_exactly(int fd, struct buf *b, size_t len)
{
    for (size_t target = b->len + len; b->len < target;) {
        if (!read_some(fd, b, target - b->len)) fail_msg("the body ended after %zu of %zu bytes", b->len, target);
    }
}

static inline void read_chunks(int fd, struct buf *body)
{
    for (;;) {
        struct buf line = {0};
        while (line.len < 2 || line.v[line.len - 1] != '\n') assert_true(read_some(fd, &line, 1));
        size_t len = strtoul(line.v, NULL, 16);
        buf_release(&line);
        if (len > 0) read_exactly(fd, body, len);
        struct buf end = {0};
        read_exactly(fd, &end, 2);
        assert_string_equal(end.v, "\r\n");
        buf_release(&end);
        if (len == 0) return;
    }
}

/* Reads one answer to its last byte and no further. */
static inline struct answer hear(int fd, bool bodyless)
{
    struct answer answer = {0};
    while (answer.head.len < 4 || memcmp(answer.head.v + answer.head.len - 4, "\r\n\r\n", 4) != 0) {
        if (!read_some(fd, &answer.head, 1)) return answer;
    }
    assert_int_equal(sscanf(answer.head.v, "HTTP/1.1 %d ", &answer.status), 1);
    const char *length = answer_header(&answer, "Content-Length");
    if (bodyless || answer.status < 200 || answer.status == 204) return answer;
    if (length != NULL)
        read_exactly(fd, &answer.body, strtoul(length, NULL, 10));
    else if (answer_header(&answer, "Transfer-Encoding") != NULL)
        read_chunks(fd, &answer.body);
    else
        while (read_some(fd, &answer.body, 65536)) continue;
    buf_puts(&answer.body, "");
    return answer;
}

/* Whether the server closes the connection within PATIENCE_MS without sending anything. */
static inline bool ended(int fd)
{
    char c;
    ssize_t n = recv(fd, &c, 1, 0);
    return n == 0 || (n < 0 && errno == ECONNRESET);
}

/* Sends `text`, expects an answer of `status`; the caller releases it. */
static inline struct answer ask(int fd, const char *text, int status)
{
    say(fd, text);
    struct answer answer = hear(fd, false);
    if (answer.status != status) fail_msg("%d instead of %d for: %s", answer.status, status, text);
    return answer;
}

static inline void ask_only(int fd, const char *text, int status)
{
    struct answer answer = ask(fd, text, status);
    answer_release(&answer);
}

static inline void hear_only(int fd, int status)
{
    struct answer answer = hear(fd, false);
    assert_int_equal(answer.status, status);
    answer_release(&answer);
}

#endif
