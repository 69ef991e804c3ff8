/* HTTP responses: status line, headers, and the framing of the body (Content-Length, chunks, or the end of the
 * connection). Bytes go into the connection's output buffer; libevent sends them. Event loop's thread only.
 *
 * Once the client has disconnected these functions write nothing; the one that ends the answer still frees the
 * request. */
#include "http/connection.h"

#include <event2/buffer.h>
#include <string.h>
#include <time.h>

/* Those that hearth answers with. */
static const struct {
    int status;
    const char *text;
} statuses[] = {
    {200, "OK"},
    {204, "No Content"},
    {304, "Not Modified"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {413, "Content Too Large"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {503, "Service Unavailable"},
    {505, "HTTP Version Not Supported"},
};

/* ---- The head ---- */

static void add_text(struct evbuffer *out, const char *text)
{
    evbuffer_add(out, text, strlen(text));
}

static void add_status(struct evbuffer *out, int status)
{
    char date[40];
    time_t now = time(NULL);
    struct tm tm;
    const char *text = "Unknown";
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (statuses[i].status == status) text = statuses[i].text;
    evutil_date_rfc1123(date, sizeof date, gmtime_r(&now, &tm));
    evbuffer_add_printf(out, "HTTP/1.1 %d %s\r\nDate: %s\r\n", status, text, date);
}

static void add_connection(struct evbuffer *out, bool keep_alive)
{
    add_text(out, keep_alive ? "Connection: keep-alive\r\n" : "Connection: close\r\n");
}

static void append_header(struct buf *b, const char *name, const char *value)
{
    buf_puts(b, name);
    buf_puts(b, ": ");
    /* Control characters become blanks: a line end in a value would begin another header (response splitting). */
    for (; *value != '\0'; value++) {
        unsigned char c = (unsigned char)*value;
        buf_append(b, (c < ' ' && c != '\t') || c == 0x7f ? " " : value, 1);
    }
    buf_puts(b, "\r\n");
}

void http_set_header(struct http_request *request, const char *name, const char *value)
{
    if (request->reply == REPLY_NONE) append_header(&request->reply_headers, name, value);
}

static bool status_has_body(int status)
{
    return status >= 200 && status != 204 && status != 304;
}

static struct evbuffer *output_of(const struct http_request *request)
{
    return request->connection == NULL ? NULL : bufferevent_get_output(request->connection->bev);
}

/* Writes the head except Content-Length or Transfer-Encoding; NULL if the client has disconnected. */
static struct evbuffer *begin_head(struct http_request *request, int status, const char *content_type)
{
    request->bodyless = request->parser.method == HTTP_HEAD || !status_has_body(status);
    struct evbuffer *out = output_of(request);
    if (out == NULL) return NULL;
    if (content_type != NULL) append_header(&request->reply_headers, "Content-Type", content_type);
    if (request->server->retires) request->keep_alive = false;
    request->connection->keep_alive = request->keep_alive;
    add_status(out, status);
    add_connection(out, request->keep_alive);
    evbuffer_add(out, request->reply_headers.v, request->reply_headers.len);
    return out;
}

/* ---- Whole answers ---- */

static void end_reply(struct http_request *request)
{
    request->reply = REPLY_ENDED;
    if (request->connection != NULL)
        connection_answered(request->connection);
    else
        request_end_orphan(request);
}

void http_reply_buf(struct http_request *request, int status, const char *content_type, struct buf *body)
{
    assert_thread(&request->server->owner);
    if (request->reply == REPLY_NONE) {
        struct evbuffer *out = begin_head(request, status, content_type);
        if (out != NULL) {
            if (status_has_body(status)) evbuffer_add_printf(out, "Content-Length: %zu\r\n", body->len);
            add_text(out, "\r\n");
        }
        if (out != NULL && !request->bodyless && body->len > 0) {
            request->connection->rest = *body;
            *body = (struct buf){0};
            connection_send_rest(request->connection);
        }
        end_reply(request);
    }
    buf_release(body);
}

void http_reply(struct http_request *request, int status, const char *content_type, const void *body, size_t len)
{
    assert_thread(&request->server->owner);
    struct buf copy = {0};
    buf_append(&copy, body, len);
    http_reply_buf(request, status, content_type, &copy);
}

/* ---- Streamed answers ---- */

void http_begin(struct http_request *request, int status, const char *content_type)
{
    assert_thread(&request->server->owner);
    if (request->reply != REPLY_NONE) return;
    request->reply = REPLY_STREAMING;
    /* HTTP/1.0 has no chunks: the end of the connection is the end of the body. */
    request->chunked = !request->version_1_0 && status_has_body(status);
    if (request->version_1_0 && status_has_body(status)) request->keep_alive = false;
    struct evbuffer *out = begin_head(request, status, content_type);
    if (out != NULL) add_text(out, request->chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n");
}

void http_send(struct http_request *request, const void *bytes, size_t len)
{
    assert_thread(&request->server->owner);
    struct evbuffer *out = output_of(request);
    /* An empty chunk would end the body. */
    if (out == NULL || request->reply != REPLY_STREAMING || request->bodyless || len == 0) return;
    if (request->chunked) evbuffer_add_printf(out, "%zx\r\n", len);
    evbuffer_add(out, bytes, len);
    if (request->chunked) add_text(out, "\r\n");
}

void http_end(struct http_request *request)
{
    assert_thread(&request->server->owner);
    if (request->reply != REPLY_STREAMING) return;
    struct evbuffer *out = output_of(request);
    if (out != NULL && request->chunked && !request->bodyless) add_text(out, "0\r\n\r\n");
    end_reply(request);
}

void http_on_drained(struct http_request *request, void (*on_drained)(void *ud))
{
    assert_thread(&request->server->owner);
    request->on_drained = on_drained;
}

size_t http_backlog(const struct http_request *request)
{
    struct evbuffer *out = output_of(request);
    return out == NULL ? 0 : evbuffer_get_length(out);
}

/* ---- Error answers ---- */

void reply_refuse(struct connection *connection, struct http_fault fault)
{
    struct evbuffer *out = bufferevent_get_output(connection->bev);
    struct http_request *request = connection->request;
    const struct http_handler *handler = &connection->server->handler;
    struct buf body = {0};
    handler->put_fault(handler->ud, request, fault.status, fault.message, &body);
    add_status(out, fault.status);
    add_connection(out, false);
    evbuffer_add(out, request->reply_headers.v, request->reply_headers.len);
    evbuffer_add_printf(out, "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n", body.len);
    if (!request->head_done || request->parser.method != HTTP_HEAD) evbuffer_add(out, body.v, body.len);
    buf_release(&body);
}
