/* Fuzzes the HTTP server: the input arrives over a pair of bufferevents in pieces, a handler answers, and the answers
 * are discarded. No sockets, no timers: everything happens in iterations of the event loop.
 *
 * The first byte of an input chooses the size of the pieces and how the connection ends; the rest is what the client
 * sends. */
#include "base/memory.h"
#include "http/connection.h"

#include <event2/buffer.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BODY = 4096, MAX_HEAD = 2048 };

static struct http_server *server_of_test;
static struct http_request *held;

static void held_gone(void *ud)
{
    (void)ud;
    held = NULL;
}

static void touch(const void *bytes, size_t len)
{
    volatile unsigned char sum = 0;
    for (size_t i = 0; i < len; i++) sum = (unsigned char)(sum + ((const unsigned char *)bytes)[i]);
}

static void touch_text(const char *text)
{
    if (text != NULL) touch(text, strlen(text));
}

static void on_request(void *ud, struct http_request *request)
{
    (void)ud;
    struct buf taken = http_take_body(request);
    size_t len = taken.len;
    const char *body = buf_text(&taken);
    http_recount(server_of_test, len, 0);
    if (len > MAX_BODY || body[len] != '\0') abort();
    touch(body, len);
    touch_text(http_method(request));
    touch_text(http_path(request));
    touch_text(http_query(request, "q"));
    touch_text(http_header(request, "host"));
    if (http_path(request)[0] == '\0') abort();
    switch (http_path(request)[1]) {
    case 's':
        http_begin(request, 200, "text/plain");
        http_send(request, body, len);
        http_end(request);
        break;
    case 'h':
        if (held != NULL) abort(); /* one connection, one request at a time */
        held = request;
        http_watch(request, held_gone, NULL);
        break;
    case 'd':
        http_reply(request, 204, NULL, NULL, 0);
        break;
    case 'a':
        http_abort(request);
        break;
    default:
        http_set_header(request, "X-Path", http_path(request));
        http_reply(request, 200, "text/plain", body, len);
        break;
    }
    buf_release(&taken);
}

/* Refuses some requests once their head has arrived. */
static void on_head(void *ud, struct http_request *request)
{
    (void)ud;
    if (http_path(request)[0] != '\0' && http_path(request)[1] == 'r') http_reply(request, 401, NULL, "no", 2);
}

static void put_fault(void *ud, struct http_request *request, int status, const char *message, struct buf *out)
{
    (void)ud, (void)status;
    touch_text(http_path(request));
    touch_text(http_header(request, "X-Request-Id"));
    buf_puts(out, message);
}

static void turn(struct http_server *server)
{
    event_base_loop(http_base(server), EVLOOP_NONBLOCK);
}

/* Discards the server's output, so that its buffer never fills. */
static void discard(struct bufferevent *client, void *ud)
{
    (void)ud;
    struct evbuffer *input = bufferevent_get_input(client);
    evbuffer_drain(input, evbuffer_get_length(input));
}

static struct bufferevent *dial(struct http_server *server)
{
    struct bufferevent *pair[2];
    if (bufferevent_pair_new(http_base(server), 0, pair) != 0) abort();
    connection_open(server, pair[0], 0, false);
    bufferevent_setcb(pair[1], discard, NULL, NULL, NULL);
    bufferevent_enable(pair[1], EV_READ | EV_WRITE);
    return pair[1];
}

static struct http_server *server_open(void)
{
    struct http_limits limits = http_limits_default();
    limits.max_body = MAX_BODY;
    limits.max_bodies = MAX_BODY / 2; /* so that bodies wait for memory */
    limits.max_head = MAX_HEAD;
    struct http_handler handler = {.on_request = on_request, .on_head = on_head, .put_fault = put_fault};
    hearth_error error;
    struct http_server *server = http_open(&limits, &handler, &error);
    if (server == NULL) abort();
    return server;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (server_of_test == NULL) server_of_test = server_open();
    struct http_server *server = server_of_test;
    if (size == 0) return 0;
    size_t piece = (data[0] & 0x0f) == 0 ? size : data[0] & 0x0fu;
    bool orderly = (data[0] & 0x10) != 0;
    bool answers_late = (data[0] & 0x20) != 0;
    struct bufferevent *client = dial(server);
    for (size_t at = 1; at < size; at += piece) {
        bufferevent_write(client, data + at, size - at < piece ? size - at : piece);
        turn(server);
        if (held != NULL && answers_late) {
            struct http_request *request = held;
            held = NULL;
            http_reply(request, 200, NULL, "late", 4);
            turn(server);
        }
    }
    if (orderly) {
        bufferevent_flush(client, EV_WRITE, BEV_FINISHED);
        turn(server);
    }
    while (server->connections != NULL) connection_gone(server->connections);
    bufferevent_free(client);
    turn(server);
    if (held != NULL || http_active(server) != 0 || http_connections(server) != 0) abort();
    if (server->bodies.held != 0 || server->bodies.dispatched != 0 || server->bodies.stalled != 0) abort();
    return 0;
}
