/* One HTTP request: parses head and body with llhttp, and gives the handler access to them. Event loop's thread only.
 *
 * The head is passed to llhttp in whole lines that were checked for line ends and control characters beforehand.
 * llhttp and this file must agree where the head ends. Against request smuggling, any framing of the body that two
 * parsers could read differently is refused (RFC 9112, section 6), since a reverse proxy may be the other parser. */
#include "base/memory.h"
#include "http/connection.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

/* ---- The target ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes in place. A zero byte counts as malformed, since comparisons of paths would stop there. */
static bool percent_decode(char *text, bool plus_is_space)
{
    char *to = text;
    for (const char *from = text; *from != '\0'; from++) {
        char c = *from;
        if (c == '+' && plus_is_space) c = ' ';
        if (c == '%') {
            int high = hex_digit(from[1]);
            int low = high < 0 ? -1 : hex_digit(from[2]);
            if (low < 0 || (high == 0 && low == 0)) return false;
            c = (char)(high * 16 + low);
            from += 2;
        }
        *to++ = c;
    }
    *to = '\0';
    return true;
}

static bool decode_query(struct http_target *target, char *query)
{
    size_t max = 1;
    for (const char *c = query; *c != '\0'; c++) max += *c == '&';
    target->pairs = mem_grow(NULL, max, sizeof *target->pairs);
    char *rest = query;
    for (char *pair; (pair = strsep(&rest, "&")) != NULL;) {
        if (*pair == '\0') continue;
        char *value = strchr(pair, '=');
        if (value != NULL)
            *value++ = '\0';
        else
            value = pair + strlen(pair);
        if (!percent_decode(pair, true) || !percent_decode(value, true)) return false;
        target->pairs[target->n_pairs++] = (struct http_pair){.name = pair, .value = value};
    }
    return true;
}

/* Decodes "/path?name=value" or "http://host/path"; false if it is malformed. The target owns the decoded text; path,
 * names and values point into it. */
static bool decode_target(struct http_target *target, const char *url)
{
    char *path = target->text = mem_strdup(url);
    char *scheme_end = *path == '/' ? NULL : strstr(path, "://");
    if (scheme_end != NULL) { /* an absolute target, which proxies send */
        char *host = scheme_end + 3;
        path = host + strcspn(host, "/?");
        target->host = mem_strndup(host, (size_t)(path - host));
    }
    path[strcspn(path, "#")] = '\0';
    char *query = strchr(path, '?');
    if (query != NULL) *query++ = '\0';
    if (!percent_decode(path, false)) return false;
    target->path = *path == '\0' ? "/" : path;
    return query == NULL || decode_query(target, query);
}

/* ---- llhttp's callbacks ---- */

static int set_fault(struct http_request *request, int status, const char *message)
{
    request->fault = (struct http_fault){.status = status, .message = message};
    return HPE_USER;
}

static int on_url(llhttp_t *parser, const char *at, size_t len)
{
    struct http_request *request = parser->data;
    (void)len;
    request->url = (size_t)(at - request->head.v);
    return 0;
}

static int on_header_field(llhttp_t *parser, const char *at, size_t len)
{
    struct http_request *request = parser->data;
    (void)len;
    if (request->head_done) return 0; /* a trailer, which is ignored */
    request->fields = mem_room(request->fields, request->n_fields, &request->cap_fields, sizeof *request->fields);
    request->fields[request->n_fields++] = (struct http_field){.name = (size_t)(at - request->head.v)};
    return 0;
}

static int on_headers_complete(llhttp_t *parser)
{
    struct http_request *request = parser->data;
    request->head_done = true;
    request->keep_alive = llhttp_should_keep_alive(parser);
    request->has_length = (parser->flags & F_CONTENT_LENGTH) != 0;
    request->length = parser->content_length;
    return 0;
}

static int check_room(struct http_request *request, uint64_t more)
{
    size_t room = request->server->limits.max_body - request->body.len;
    return more > room ? set_fault(request, 413, "the body is too large") : 0;
}

/* Refuses a chunk that is too large before it arrives. */
static int on_chunk_header(llhttp_t *parser)
{
    return check_room(parser->data, parser->content_length);
}

static void end_reserve(struct http_request *request)
{
    request->server->bodies.reserved -= request->reserved;
    request->reserved = 0;
}

static int on_body(llhttp_t *parser, const char *at, size_t len)
{
    struct http_request *request = parser->data;
    struct http_server *server = request->server;
    /* Growing a long body would copy it again and again. Reserved bytes take no memory until they arrive, but are
     * bounded all the same. */
    if (request->body.v == NULL && request->has_length &&
        request->length <= server->limits.max_bodies - server->bodies.reserved) {
        request->reserved = (size_t)request->length;
        server->bodies.reserved += request->reserved;
        buf_reserve(&request->body, request->reserved);
    }
    buf_append(&request->body, at, len);
    bodies_receive(request->connection, len);
    request->framing = 0;
    return 0;
}

/* Pauses llhttp, so that it does not parse the next request. */
static int on_message_complete(llhttp_t *parser)
{
    struct http_request *request = parser->data;
    request->whole = true;
    return HPE_PAUSED;
}

static const llhttp_settings_t settings = {
    .on_url = on_url,
    .on_header_field = on_header_field,
    .on_headers_complete = on_headers_complete,
    .on_chunk_header = on_chunk_header,
    .on_body = on_body,
    .on_message_complete = on_message_complete,
};

/* ---- Creation and end ---- */

struct http_request *request_new(struct connection *connection)
{
    struct http_request *request = mem_alloc(sizeof *request);
    request->server = connection->server;
    request->connection = connection;
    llhttp_init(&request->parser, HTTP_REQUEST, &settings);
    request->parser.data = request;
    return request;
}

void request_free(struct http_request *request)
{
    bodies_uncount(request->server, request->body.len, request->dispatched);
    end_reserve(request);
    buf_release(&request->body);
    struct http_target *target = &request->target;
    free(target->pairs);
    free(target->host);
    free(target->text);
    *target = (struct http_target){0};
    buf_release(&request->head);
    buf_release(&request->reply_headers);
    free(request->fields);
    free(request);
}

void request_lose_client(struct http_request *request)
{
    request->connection = NULL;
    if (request->on_gone == NULL) {
        struct http_server *server = request->server;
        request->next = server->orphans;
        if (request->next != NULL) request->next->prev = request;
        server->orphans = request;
        return;
    }
    request->server->n_active--;
    request->reply = REPLY_ENDED; /* so that calls of on_gone for the answer have no effect */
    request->on_gone(request->ud);
    request_free(request);
}

void request_end_orphan(struct http_request *request)
{
    request->server->n_active--;
    *(request->prev != NULL ? &request->prev->next : &request->server->orphans) = request->next;
    if (request->next != NULL) request->next->prev = request->prev;
    request_free(request);
}

void http_abort(struct http_request *request)
{
    assert_thread(&request->server->owner);
    struct connection *connection = request->connection;
    if (request->reply == REPLY_ENDED) return;
    if (connection == NULL) {
        request_end_orphan(request);
        return;
    }
    request->server->n_active--;
    connection->request = NULL;
    request_free(request);
    connection_free(connection);
}

/* ---- The head ---- */

static enum parse parse_fault(struct http_request *request, int status, const char *message)
{
    set_fault(request, status, message);
    return PARSE_FAULT;
}

/* The fault for an error of llhttp, with its reason; an unsupported version has a status of its own. */
static enum parse parser_fault(struct http_request *request, llhttp_errno_t error)
{
    const char *reason = llhttp_get_error_reason(&request->parser);
    if (request->fault.status != 0) return PARSE_FAULT;
    if (error == HPE_INVALID_VERSION) return parse_fault(request, 505, "only HTTP/1.0 and HTTP/1.1 are supported");
    return parse_fault(request, 400, reason != NULL && *reason != '\0' ? reason : "malformed request");
}

/* Passes one line, with its CRLF, to llhttp. */
static enum parse parse_line(struct http_request *request)
{
    const char *line = request->head.v + request->line;
    size_t len = request->head.len - request->line;
    bool blank = len == 2;
    if (len < 2 || line[len - 2] != '\r')
        return parse_fault(request, 400, "lines end with carriage return and line feed");
    if (memchr(line, '\r', len - 2) != NULL) return parse_fault(request, 400, "a carriage return inside a line");
    if (request->line == 0) {
        /* The version, before the line's end: llhttp would also accept RTSP/1.0, and a line without a version. */
        const char *version = len < 11 ? line : line + len - 11;
        if (len < 11 || memcmp(version, " HTTP/", 6) != 0)
            return parse_fault(request, 400, "the request line is malformed");
        if (memcmp(version + 6, "1.1", 3) != 0 && memcmp(version + 6, "1.0", 3) != 0)
            return parse_fault(request, 505, "only HTTP/1.0 and HTTP/1.1 are supported");
        request->version_1_0 = version[8] == '0';
    }
    if (request->line > 0 && (line[0] == ' ' || line[0] == '\t'))
        return parse_fault(request, 400, "folded header lines are obsolete");
    llhttp_errno_t error = llhttp_execute(&request->parser, line, len);
    bool paused = error == HPE_PAUSED || error == HPE_PAUSED_UPGRADE;
    if (error != HPE_OK && !(paused && request->whole)) return parser_fault(request, error);
    if (blank != request->head_done) return parse_fault(request, 400, "malformed request");
    request->line = request->head.len;
    return blank ? PARSE_WHOLE : PARSE_MORE;
}

/* Zero-terminates the names and values of headers, and the target. */
static void cut_strings(struct http_request *request)
{
    char *head = request->head.v;
    head[request->url + strcspn(head + request->url, " ")] = '\0';
    for (size_t i = 0; i < request->n_fields; i++) {
        struct http_field *field = &request->fields[i];
        size_t colon = field->name + strcspn(head + field->name, ":");
        head[colon] = '\0';
        field->value = colon + 1 + strspn(head + colon + 1, " \t");
        size_t end = field->value + strcspn(head + field->value, "\r");
        while (end > field->value && (head[end - 1] == ' ' || head[end - 1] == '\t')) end--;
        head[end] = '\0';
    }
}

size_t http_count_headers(const struct http_request *request, const char *name)
{
    size_t n = 0;
    for (size_t i = 0; i < request->n_fields; i++) {
        n += strcasecmp(request->head.v + request->fields[i].name, name) == 0;
    }
    return n;
}

static int check_framing(struct http_request *request)
{
    const char *coding = http_header(request, "Transfer-Encoding");
    if (coding != NULL && http_count_headers(request, "Content-Length") > 0)
        return set_fault(request, 400, "both Content-Length and Transfer-Encoding");
    if (http_count_headers(request, "Content-Length") > 1)
        return set_fault(request, 400, "more than one Content-Length");
    if (coding == NULL) return 0;
    if (http_count_headers(request, "Transfer-Encoding") > 1)
        return set_fault(request, 400, "more than one Transfer-Encoding");
    if (strcasecmp(coding, "chunked") != 0) return set_fault(request, 400, "the only Transfer-Encoding is chunked");
    if (request->version_1_0) return set_fault(request, 400, "HTTP/1.0 has no Transfer-Encoding");
    return 0;
}

static int check_head(struct http_request *request)
{
    int rc = check_framing(request);
    if (rc != 0) return rc;
    /* Of repeated Host and Origin headers one reader would use the first and another the last. */
    size_t n_hosts = http_count_headers(request, "Host");
    if (n_hosts > 1) return set_fault(request, 400, "more than one Host header");
    if (http_count_headers(request, "Origin") > 1) return set_fault(request, 400, "more than one Origin header");
    if (n_hosts == 0 && !request->version_1_0) return set_fault(request, 400, "a Host header is missing");
    const char *expect = request->version_1_0 ? NULL : http_header(request, "Expect");
    if (expect != NULL && strcasecmp(expect, "100-continue") != 0)
        return set_fault(request, 417, "the only Expect is 100-continue");
    request->wants_continue = expect != NULL;
    if (request->parser.method == HTTP_CONNECT) return set_fault(request, 400, "this is no proxy");
    if (!decode_target(&request->target, request->head.v + request->url))
        return set_fault(request, 400, "the address is malformed");
    return request->has_length ? check_room(request, request->length) : 0;
}

enum parse request_parse_head(struct http_request *request, const char *bytes, size_t len, size_t *used)
{
    enum parse parsed = PARSE_MORE;
    for (*used = 0; *used < len && parsed == PARSE_MORE;) {
        const char *from = bytes + *used;
        const char *end = memchr(from, '\n', len - *used);
        size_t n = end == NULL ? len - *used : (size_t)(end - from) + 1;
        *used += n;
        if (n > request->server->limits.max_head - request->head.len)
            return parse_fault(request, 431, "request line and headers are too large");
        for (size_t i = 0; i < n; i++) {
            unsigned char c = (unsigned char)from[i];
            if ((c < ' ' && c != '\t' && c != '\r' && c != '\n') || c == 0x7f)
                return parse_fault(request, 400, "a control character in request line or headers");
        }
        buf_append(&request->head, from, n);
        if (end != NULL) parsed = parse_line(request);
    }
    if (parsed != PARSE_WHOLE) return parsed;
    cut_strings(request);
    return check_head(request) == 0 ? PARSE_WHOLE : PARSE_FAULT;
}

/* ---- The body ---- */

enum parse request_parse_body(struct http_request *request, const char *bytes, size_t len, size_t *used)
{
    *used = 0;
    if (request->whole) return PARSE_WHOLE;
    size_t before = request->body.len;
    llhttp_errno_t error = llhttp_execute(&request->parser, bytes, len);
    *used = error == HPE_OK ? len : (size_t)(llhttp_get_error_pos(&request->parser) - bytes);
    if (error != HPE_OK && !request->whole) return parser_fault(request, error);
    if (request->whole) return PARSE_WHOLE;
    if (request->body.len == before) request->framing += len;
    if (request->framing > request->server->limits.max_head)
        return parse_fault(request, 431, "chunk extensions or trailers are too large");
    return PARSE_MORE;
}

/* ---- Access for the handler ---- */

const char *http_method(const struct http_request *request)
{
    return llhttp_method_name((llhttp_method_t)request->parser.method);
}

const char *http_path(const struct http_request *request)
{
    return request->target.path;
}

const char *http_query(const struct http_request *request, const char *name)
{
    const struct http_target *target = &request->target;
    for (size_t i = 0; i < target->n_pairs; i++)
        if (strcmp(target->pairs[i].name, name) == 0) return target->pairs[i].value;
    return NULL;
}

const char *http_header(const struct http_request *request, const char *name)
{
    for (size_t i = 0; i < request->n_fields; i++) {
        if (strcasecmp(request->head.v + request->fields[i].name, name) == 0)
            return request->head.v + request->fields[i].value;
    }
    return NULL;
}

const char *http_target_host(const struct http_request *request)
{
    return request->target.host;
}

static union socket_address local_address(const struct http_request *request)
{
    return socket_address(request->connection == NULL ? -1 : bufferevent_getfd(request->connection->bev));
}

bool http_is_unix(const struct http_request *request)
{
    return local_address(request).any.sa_family == AF_UNIX;
}

int http_port(const struct http_request *request)
{
    union socket_address address = local_address(request);
    if (address.any.sa_family == AF_INET) return ntohs(address.v4.sin_port);
    return address.any.sa_family == AF_INET6 ? ntohs(address.v6.sin6_port) : 0;
}

struct buf http_take_body(struct http_request *request)
{
    assert_thread(&request->server->owner);
    struct buf body = request->body;
    request->body = (struct buf){0};
    end_reserve(request);
    return body;
}

void http_watch(struct http_request *request, void (*on_gone)(void *ud), void *ud)
{
    assert_thread(&request->server->owner);
    request->on_gone = on_gone;
    request->ud = ud;
}
