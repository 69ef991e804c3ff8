/* An HTTP/1.1 server on one thread: libevent moves the bytes, llhttp parses, this folder keeps the limits.
 *
 * Everything declared here runs on the server's thread, the one that calls http_run(), except http_post(), which may
 * be called from any. A handler is called once a request is there whole; it may answer at once or keep the pointer
 * and answer later, until `on_gone` is called or it has ended the answer. */
#ifndef HTTP_HTTP_H
#define HTTP_HTTP_H

#include "base/buf.h"
#include "hearth.h"

#include <event2/event.h>
#include <stdbool.h>
#include <sys/types.h>

struct http_server;
struct http_request;
struct sockaddr;
struct http_tls; /* a certificate and its key */

struct http_limits {
    size_t max_body;   /* bytes of one body; more is 413 */
    size_t max_bodies; /* bytes of all bodies together; above it, connections are not read until others end */
    size_t max_head;   /* bytes of request line and headers; more is 431 */
    /* For a further one another goes, of which no whole head of a request is there: one that never sent any, else one
     * whose requests were all answered; the one that has waited longest. Where there is none it is taken all the same,
     * for requests that are urgent; others are told with 503 that there is no room. */
    int max_connections;
    int first_request_timeout_ms; /* the head of a connection's first request must begin so soon, and then end so soon
                                   */
    int read_timeout_ms;          /* a request must be there whole this long after its first byte; 408 */
    int idle_timeout_ms;          /* a kept-alive connection without a request is closed */
    int write_timeout_ms;         /* a client that takes no bytes for so long is gone */
};

struct http_handler {
    /* A request is there. */
    void (*on_request)(void *ud, struct http_request *request);
    /* The head of a request is there and a body is to come. What is refused now, with http_reply(), is never asked
     * for its body; otherwise nothing may be done with the request yet. May be NULL. */
    void (*on_head)(void *ud, struct http_request *request);
    /* Whether the request is answered even where there is no room for its connection: only one that is answered at
     * once, with little. NULL: none is. */
    bool (*is_urgent)(void *ud, const struct http_request *request);
    /* Writes the JSON that tells why a request could not be taken, and may set headers; the answer itself is given
     * afterwards. Of a request that broke off in its head there may be no path (NULL) and no headers. */
    void (*put_fault)(void *ud, struct http_request *request, int status, const char *message, struct buf *out);
    void *ud;
};

struct http_limits http_limits_default(void);

struct http_server *http_open(const struct http_limits *limits, const struct http_handler *handler,
                              hearth_error *error);

/* Who may connect to sockets unix:PATH. */
struct http_socket_access {
    mode_t mode;
    gid_t group; /* (gid_t)-1: the process's own */
};

/* Unix sockets that are listened on from now on are accessible so; until then, to their owner alone. */
void http_set_socket_access(struct http_server *server, struct http_socket_access access);

/* Adds a listening socket: "host:port", "[v6]:port" or "unix:PATH" (a stale socket file is replaced). Port 0 takes a
 * free one. `bound` (may be NULL, else free() it) gets the address as clients write it. */
int http_listen(struct http_server *server, const char *address, char **bound, hearth_error *error);

/* Reads a certificate chain and its private key from PEM files. NULL where they cannot be had or do not belong
 * together; error->param is then "tls_cert" or "tls_key". */
struct http_tls *http_tls_open(const char *cert_path, const char *key_path, hearth_error *error);
void http_tls_close(struct http_tls *tls);

/* Calls `visit` with the address of each TCP socket that listens. */
void http_each_address(const struct http_server *server, void (*visit)(void *ud, const struct sockaddr *address),
                       void *ud);

/* TCP connections that come from now on are TLS; those that are there stay as they are, and so do unix sockets. Takes
 * `tls`, and closes the one before it. */
void http_use_tls(struct http_server *server, struct http_tls *tls);

/* Serves until http_stop(). */
void http_run(struct http_server *server);

/* Makes http_run() return after the current events. From the server's thread (http_post() gets you there). */
void http_stop(struct http_server *server);

/* Closes listeners only; running requests go on. */
void http_stop_listening(struct http_server *server);

/* After http_run() has returned, on its thread or any other, when nobody posts any more. Runs what was posted, then
 * closes every connection: requests that are watched get on_gone, all others are freed. NULL is fine. */
void http_close(struct http_server *server);
struct event_base *http_base(struct http_server *server); /* for timers and signals of the caller */

/* Requests that were handed out and not yet ended, and open connections. */
size_t http_active(const struct http_server *server);
size_t http_connections(const struct http_server *server);

/* Runs `call(ud)` on the server's thread, soon. From any thread; wakes the loop. */
void http_post(struct http_server *server, void (*call)(void *ud), void *ud);

/* ---- A request ---- */

const char *http_method(const struct http_request *request);                   /* "GET" */
const char *http_path(const struct http_request *request);                     /* decoded, without the query */
const char *http_query(const struct http_request *request, const char *name);  /* decoded; NULL if absent */
const char *http_header(const struct http_request *request, const char *name); /* the first; NULL if absent; any case */

/* The host that the target names ("GET http://host:port/path"); NULL: it is a path alone. */
const char *http_target_host(const struct http_request *request);

/* Whether the request came over a unix socket, and the port of this machine that it came to (0: none). Until the
 * handler has returned. */
bool http_is_unix(const struct http_request *request);
int http_port(const struct http_request *request);

/* Moves the body out of the request, which has none afterwards; buf_release() it. Its bytes go on counting in the sum
 * of all bodies: whoever holds them, or what was made of them, says with http_recount() how much that has become, and
 * with 0 that it is gone. */
struct buf http_take_body(struct http_request *request);
void http_recount(struct http_server *server, size_t before, size_t now);

/* Keeps `ud` with the request and tells when the client goes away before the answer was ended: after on_gone the
 * request is invalid. A client that shuts down only its sending side counts as gone too. A request that is not
 * watched stays valid, its answer going nowhere, until the handler has ended it. */
void http_watch(struct http_request *request, void (*on_gone)(void *ud), void *ud);

/* ---- An answer: headers, then either http_reply() or http_begin(), http_send()…, http_end() ----
 * http_reply(), http_end() and http_abort() end it: the request is invalid afterwards. Date, Connection and what tells
 * the body's length are written by the server. content_type may be NULL. */

/* Adds a header; both strings are copied. */
void http_set_header(struct http_request *request, const char *name, const char *value);
void http_reply(struct http_request *request, int status, const char *content_type, const void *body, size_t len);
void http_begin(struct http_request *request, int status, const char *content_type); /* chunked */
void http_send(struct http_request *request, const void *bytes, size_t len);
void http_end(struct http_request *request);

/* Bytes handed to http_send() that the client has not taken yet. */
size_t http_backlog(const struct http_request *request);

/* Drops the connection without a word; the request is invalid afterwards and on_gone is not called. */
void http_abort(struct http_request *request);

const char *http_status_text(int status);

#endif
