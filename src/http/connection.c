/* A connection's state machine: receives requests one after the other, dispatches each to the handler, sends its
 * answer, and detects disconnects and time-outs in every state. Event loop's thread only.
 *
 * While a request is being answered nothing is parsed; pipelined input waits in the input buffer, up to READ_AHEAD
 * bytes, then in the kernel. End of input during an answer counts as a disconnect. A client that only shut down its
 * sending side looks like one that closed, and computing for a client that has left costs more. An answer that has
 * ended already is still sent to the last byte. One disconnect is not detected at once: that of a client that pipelined
 * more than the kernel's buffer holds, since the end of input is queued behind those bytes. The next write of the
 * answer fails then. */
#include "http/connection.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/os.h"

#include <event2/buffer.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    READ_AHEAD = 16384,
    /* Bytes of an answer that are copied into the output at a time, and unsent ones below which there may be more. */
    SEND_PIECE = 128 << 10,
    SEND_AGAIN = 32 << 10,
    LINGER_MS = 2000,    /* lingering close: time for the client to read the answer before the connection is reset */
    OVER_LIMIT_MS = 2000 /* for the request of a connection over the limit */
};

static void set_timer(struct connection *c, int ms)
{
    struct timeval after = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
    event_add(c->timer, &after);
}

static struct evbuffer *input_of(struct connection *c)
{
    return bufferevent_get_input(c->bev);
}

/* ---- Closing ---- */

static void unwatch_hangup(struct connection *c)
{
    if (c->hangup == NULL) return;
    event_free(c->hangup);
    close(c->hangup_fd);
    c->hangup = NULL;
}

static void stop_waiting(struct connection *c)
{
    if (c->waits_in != NULL) TAILQ_REMOVE(c->waits_in, c, waiting);
    c->waits_in = NULL;
}

void connection_free(struct connection *c)
{
    if (c->dispatching) {
        c->state = CONNECTION_CLOSED;
        return;
    }
    bodies_leave(c);
    if (c->request != NULL) request_free(c->request);
    buf_release(&c->rest);
    unwatch_hangup(c);
    event_free(c->timer);
    bufferevent_free(c->bev);
    stop_waiting(c);
    c->server->n_over_limit -= c->over_limit;
    *(c->prev != NULL ? &c->prev->next : &c->server->connections) = c->next;
    if (c->next != NULL) c->next->prev = c->prev;
    c->server->n_connections--;
    free(c);
}

void connection_gone(struct connection *c)
{
    struct http_request *request = c->request;
    if (request != NULL && request->dispatched) {
        c->request = NULL;
        request_lose_client(request);
    }
    connection_free(c);
}

/* ---- Detecting disconnects ---- */

static void on_hangup(evutil_socket_t fd, short what, void *ud)
{
    (void)what;
    struct connection *c = ud;
    struct http_server *server = c->server;
    http_enter(server);
    if (os_is_hung_up(fd)) connection_gone(c);
    http_leave(server);
}

/* Watches for the client's end of input while the socket is not read. Edge-triggered events report it without
 * reporting the unread bytes again and again; libevent needs all events of a descriptor to be of one kind, so a
 * duplicate is watched. If no descriptor is left, the disconnect is detected late, by a failing write. */
static void stop_reading(struct connection *c)
{
    evutil_socket_t fd = bufferevent_getfd(c->bev);
    bufferevent_disable(c->bev, EV_READ);
    if (c->state == CONNECTION_FLUSHING || c->hangup != NULL || fd < 0) return; /* while flushing, writes fail */
    c->hangup_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (c->hangup_fd < 0) return;
    bool tells =
        (event_base_get_features(c->server->base) & EV_FEATURE_EARLY_CLOSE) != 0; /* kqueue has no such event */
    short what = (short)(EV_READ | (tells ? EV_CLOSED : 0) | EV_ET | EV_PERSIST);
    c->hangup = event_new(c->server->base, c->hangup_fd, what, on_hangup, c);
    event_add(c->hangup, NULL);
}

static void start_reading(struct connection *c)
{
    unwatch_hangup(c);
    bufferevent_enable(c->bev, EV_READ);
}

/* libevent stops reading at the high watermark by itself, but then calls back again and again. */
static void stop_reading_if_full(struct connection *c)
{
    if (evbuffer_get_length(input_of(c)) >= READ_AHEAD) stop_reading(c);
}

/* ---- Sending ---- */

static void wait_in(struct connection *c, struct waiting *list)
{
    stop_waiting(c);
    c->waits_in = list;
    TAILQ_INSERT_TAIL(list, c, waiting);
}

/* Lingering close: closing while bytes of the client are unread would send a reset, and its kernel would discard our
 * answer. */
static void linger(struct connection *c)
{
    evutil_socket_t fd = bufferevent_getfd(c->bev);
    tls_send_close_notify(c->bev);
    if (c->reading_closed || fd < 0 || shutdown(fd, SHUT_WR) != 0) {
        connection_free(c);
        return;
    }
    c->state = CONNECTION_LINGERING;
    set_timer(c, LINGER_MS);
    if (!c->over_limit) wait_in(c, &c->server->kept_alive);
    evbuffer_drain(input_of(c), evbuffer_get_length(input_of(c)));
    start_reading(c);
}

bool connection_send_rest(struct connection *c)
{
    size_t left = c->rest.len - c->rest_at, piece = left < SEND_PIECE ? left : SEND_PIECE;
    if (left == 0) return false;
    bufferevent_write(c->bev, c->rest.v + c->rest_at, piece);
    c->rest_at += piece;
    if (piece == left) {
        buf_release(&c->rest);
        c->rest_at = 0;
    }
    return true;
}

static void start_flushing(struct connection *c)
{
    request_free(c->request);
    c->request = NULL;
    c->state = CONNECTION_FLUSHING;
    unwatch_hangup(c);
    event_del(c->timer);
    /* Nothing left to send: on_drained() is called from the loop all the same, since the caller may be the handler. */
    if (evbuffer_get_length(bufferevent_get_output(c->bev)) == 0)
        bufferevent_trigger(c->bev, EV_WRITE, BEV_TRIG_DEFER_CALLBACKS);
}

void connection_answered(struct connection *c)
{
    c->server->n_active--;
    start_flushing(c);
}

static void refuse_request(struct connection *c, struct http_fault fault)
{
    bodies_leave(c);
    if (!c->over_limit) stop_waiting(c);
    reply_refuse(c, fault);
    c->keep_alive = false;
    start_flushing(c);
}

/* ---- Receiving ---- */

static void dispatch(struct connection *c)
{
    struct http_request *request = c->request;
    struct http_server *server = c->server;
    bodies_leave(c);
    bodies_dispatch(server, request->body.len);
    request->dispatched = true;
    server->n_active++;
    c->state = CONNECTION_ANSWERING;
    event_del(c->timer);
    stop_reading_if_full(c);
    c->dispatching = true;
    server->handler.on_request(server->handler.ud, request);
    c->dispatching = false;
    if (c->state == CONNECTION_CLOSED) connection_free(c);
}

/* Lets the handler refuse the request before its body is received. Such an answer closes the connection, since the
 * body would have to be received to find the next request. */
static bool is_refused(struct connection *c)
{
    struct http_request *request = c->request;
    struct http_server *server = c->server;
    if (server->handler.on_head == NULL) return false;
    const bool keep_alive = request->keep_alive;
    request->keep_alive = false;
    server->n_active++;
    server->handler.on_head(server->handler.ud, request);
    if (c->request == NULL) return true;
    server->n_active--;
    request->keep_alive = keep_alive;
    return false;
}

/* These consume a piece of the input. False: the connection no longer receives a request, and may even be freed. */
static bool receive_head(struct connection *c, const char *bytes, size_t len)
{
    struct http_request *request = c->request;
    size_t used = 0;
    enum parse parsed = request_parse_head(request, bytes, len, &used);
    evbuffer_drain(input_of(c), used);
    if (parsed == PARSE_MORE) return true;
    if (parsed == PARSE_FAULT) {
        refuse_request(c, request->fault);
        return false;
    }
    c->sent_head = true;
    if (c->over_limit) {
        const struct http_handler *handler = &c->server->handler;
        request->keep_alive = false;
        if (!request->whole || handler->is_urgent == NULL || !handler->is_urgent(handler->ud, request)) {
            refuse_request(c, (struct http_fault){503, "all connections are taken, try again later"});
            return false;
        }
    } else {
        stop_waiting(c);
    }
    if (request->whole) {
        dispatch(c);
        return false;
    }
    if (is_refused(c)) return false;
    double took_ms = clock_to_ms(clock_now(clock_monotonic()) - c->began_at);
    int left_ms = c->server->limits.read_timeout_ms - (int)took_ms;
    c->state = CONNECTION_BODY;
    set_timer(c, left_ms > 0 ? left_ms : 0);
    bodies_enter(c);
    /* The client may wait for this before it sends the body. */
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (request->wants_continue && evbuffer_get_length(input_of(c)) == 0)
        evbuffer_add(bufferevent_get_output(c->bev), go_on, strlen(go_on));
    return true;
}

static bool receive_body(struct connection *c, const char *bytes, size_t len)
{
    struct http_request *request = c->request;
    if (!bodies_may_read(c)) {
        bodies_stall(c, true);
        stop_reading(c);
        return false;
    }
    size_t used = 0;
    http_name(c->server, "receiving a body");
    enum parse parsed = request_parse_body(request, bytes, len, &used);
    evbuffer_drain(input_of(c), used);
    if (parsed == PARSE_FAULT)
        refuse_request(c, request->fault);
    else if (parsed == PARSE_WHOLE)
        dispatch(c);
    return parsed == PARSE_MORE;
}

static void receive(struct connection *c)
{
    for (bool goes_on = true; goes_on;) {
        struct evbuffer *input = input_of(c);
        /* Some clients send an empty line after a body: that begins no request, and keeps no connection open. */
        char first[2];
        while (c->state == CONNECTION_IDLE && evbuffer_copyout(input, first, 2) == 2 && memcmp(first, "\r\n", 2) == 0)
            evbuffer_drain(input, 2);
        size_t len = evbuffer_get_contiguous_space(input);
        if (len == 0) return;
        const char *bytes = (const char *)evbuffer_pullup(input, (ssize_t)len);
        if (c->state == CONNECTION_IDLE && evbuffer_get_length(input) == 1 && bytes[0] == '\r')
            return; /* half of one, perhaps */
        if (c->state == CONNECTION_IDLE) {
            const struct http_limits *limits = &c->server->limits;
            int first_ms = limits->first_request_timeout_ms, read_ms = limits->read_timeout_ms;
            c->request = request_new(c);
            c->client = c->address;
            c->state = CONNECTION_HEAD;
            c->began_at = clock_now(clock_monotonic());
            if (!c->over_limit) set_timer(c, !c->sent_head && first_ms < read_ms ? first_ms : read_ms);
        }
        goes_on = c->state == CONNECTION_HEAD ? receive_head(c, bytes, len) : receive_body(c, bytes, len);
    }
}

void connection_resume(struct connection *c)
{
    bodies_stall(c, false);
    start_reading(c);
    receive(c);
}

/* ---- The end of all connections ---- */

/* A client that has sent no request for a while is least likely to send one just as its connection is closed. */
void http_retire(struct http_server *server, int idle_ms)
{
    assert_thread(&server->owner);
    server->retires = true;
    server->limits.idle_timeout_ms = server->limits.first_request_timeout_ms = idle_ms;
    for (struct connection *c = server->connections; c != NULL; c = c->next)
        if (c->state == CONNECTION_IDLE || c->state == CONNECTION_HANDSHAKE) set_timer(c, idle_ms);
}

bool http_is_retired(const struct http_server *server)
{
    const struct connection *c = server->connections;
    while (c != NULL && c->state == CONNECTION_LINGERING) c = c->next;
    return c == NULL;
}

/* ---- libevent's callbacks; a connection may be freed within them ---- */

static void on_readable(struct bufferevent *bev, void *ud)
{
    (void)bev;
    struct connection *c = ud;
    struct http_server *server = c->server;
    http_enter(server);
    switch (c->state) {
    case CONNECTION_HANDSHAKE:
        break;
    case CONNECTION_IDLE:
    case CONNECTION_HEAD:
    case CONNECTION_BODY:
        if (!c->stalled) receive(c);
        break;
    case CONNECTION_LINGERING:
        evbuffer_drain(input_of(c), evbuffer_get_length(input_of(c)));
        break;
    case CONNECTION_ANSWERING:
    case CONNECTION_FLUSHING:
        stop_reading_if_full(c);
        break;
    case CONNECTION_CLOSED:
        break;
    }
    http_leave(server);
}

/* Few bytes are unsent. */
static void on_drained(struct bufferevent *bev, void *ud)
{
    struct connection *c = ud;
    struct http_server *server = c->server;
    http_enter(server);
    const struct http_request *request = c->request;
    if (c->state == CONNECTION_ANSWERING && request->on_drained != NULL) {
        request->on_drained(request->ud);
    } else if (c->state == CONNECTION_FLUSHING && !connection_send_rest(c) &&
               evbuffer_get_length(bufferevent_get_output(bev)) == 0) {
        if (c->keep_alive && !c->reading_closed) {
            const struct http_limits *limits = &server->limits;
            c->state = CONNECTION_IDLE;
            set_timer(c, c->sent_head ? limits->idle_timeout_ms : limits->first_request_timeout_ms);
            if (c->sent_head) wait_in(c, &server->kept_alive);
            start_reading(c);
            receive(c);
        } else {
            linger(c);
        }
    }
    http_leave(server);
}

static void on_event(struct bufferevent *bev, short what, void *ud)
{
    struct connection *c = ud;
    struct http_server *server = c->server;
    http_enter(server);
    bool only_end = what == (BEV_EVENT_READING | BEV_EVENT_EOF);
    if ((what & BEV_EVENT_CONNECTED) != 0) {
        c->state = CONNECTION_IDLE; /* the timer of the first request runs on */
    } else if (only_end && c->state == CONNECTION_FLUSHING) {
        c->reading_closed = true;
        bufferevent_enable(bev, EV_WRITE); /* at the end of input libevent's TLS disables writing too */
    } else {
        if (c->state == CONNECTION_HANDSHAKE) tls_log_failure(bev);
        connection_gone(c);
    }
    http_leave(server);
}

static void on_timer(evutil_socket_t fd, short what, void *ud)
{
    (void)fd, (void)what;
    struct connection *c = ud;
    struct http_server *server = c->server;
    http_enter(server);
    if (c->state != CONNECTION_HEAD && c->state != CONNECTION_BODY)
        connection_free(c);
    else if (c->stalled)
        refuse_request(c, (struct http_fault){503, "too many requests are being received, try again later"});
    else
        refuse_request(c, (struct http_fault){408, "the request took too long to arrive"});
    http_leave(server);
}

/* ---- Opening ---- */

void connection_open(struct http_server *server, struct bufferevent *bev, uint64_t address, bool over_limit)
{
    assert_thread(&server->owner);
    struct connection *c = mem_alloc(sizeof *c);
    c->server = server;
    c->bev = bev;
    c->address = address;
    c->over_limit = over_limit;
    server->n_over_limit += over_limit;
    wait_in(c, over_limit ? &server->over_limit : &server->fresh);
    c->next = server->connections;
    if (c->next != NULL) c->next->prev = c;
    server->connections = c;
    server->n_connections++;
    c->timer = evtimer_new(server->base, on_timer, c);
    int ms = server->limits.write_timeout_ms;
    struct timeval patience = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
    bufferevent_set_timeouts(bev, NULL, &patience);
    bufferevent_setwatermark(bev, EV_READ, 0, READ_AHEAD);
    bufferevent_setwatermark(bev, EV_WRITE, SEND_AGAIN, 0);
    bufferevent_setcb(bev, on_readable, on_drained, on_event, c);
    bufferevent_enable(bev, EV_READ | EV_WRITE);
    c->state = tls_is(bev) ? CONNECTION_HANDSHAKE : CONNECTION_IDLE;
    set_timer(c, over_limit ? OVER_LIMIT_MS : server->limits.first_request_timeout_ms);
}
