/* An HTTP/1.1 server on one thread, the event loop: libevent does the I/O, llhttp parses, this folder enforces limits
 * on connections, time and memory.
 *
 * Everything declared here runs on the server's thread, the one that calls http_run(), except http_post(), which any
 * thread may call. The handler is called once a request has been received whole. It may answer at once, or keep the
 * pointer and answer later, until `on_gone` is called or it has ended the answer. */
#ifndef HTTP_HTTP_H
#define HTTP_HTTP_H

#include "base/buf.h"
#include "hearth.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct http_server;
struct http_request;
struct sockaddr;
struct http_tls; /* a certificate and its key */

struct http_limits {
    size_t max_body;   /* bytes of one body; more is 413 */
    size_t max_bodies; /* bytes of all bodies together; above it connections are not read until others end
                          (backpressure). One client's may take half of it before they have arrived, and an eighth
                          is kept for small ones */
    size_t max_head;   /* bytes of request line and headers; more is 431 */
    /* At the limit a new connection replaces the idle one that has waited longest, of those that never sent a request,
     * else of those whose requests are all answered. If none is idle, the new one is accepted over the limit, for an
     * urgent request; other requests get 503. */
    int max_connections;
    int first_request_timeout_ms; /* the head of a connection's first request must begin within this time, and then end
                                     within it */
    int read_timeout_ms;          /* a request must have arrived whole this long after its first byte; else 408 */
    int idle_timeout_ms;          /* a keep-alive connection without a request is closed after this time */
    int write_timeout_ms;         /* a client that takes no bytes for this time is dropped */
};

struct http_handler {
    /* A request has been received whole. */
    void (*on_request)(void *ud, struct http_request *request);
    /* The head of a request has been received, and a body will follow. The handler may refuse the request now, with
     * http_reply(), before its body is received; else it may not touch the request yet. May be NULL. */
    void (*on_head)(void *ud, struct http_request *request);
    /* Whether the request is answered on a connection over the limit: only requests with short, immediate answers.
     * NULL: none. */
    bool (*is_urgent)(void *ud, const struct http_request *request);
    /* Writes the JSON body of the error for a request that the server refuses, and may set headers; the server sends
     * the answer. A request refused within its head may have no path (NULL) and no headers. */
    void (*put_fault)(void *ud, struct http_request *request, int status, const char *message, struct buf *out);
    void *ud;
};

struct http_limits http_limits_default(void);

struct http_server *http_open(const struct http_limits *limits, const struct http_handler *handler,
                              hearth_error *error);

/* Permissions of unix sockets. */
struct http_socket_access {
    mode_t mode;
    gid_t group; /* (gid_t)-1: the process's own */
};

/* Sets the permissions of unix sockets that are opened from now on. Default: 0600, the process's own group. */
void http_set_socket_access(struct http_server *server, struct http_socket_access access);

/* Adds a listening socket: "host:port", "[v6]:port" or "unix:PATH" (the socket file of a server that died is
 * replaced). Port 0 chooses a free one. `bound` (may be NULL, else free() it) gets the address as clients write it. */
int http_listen(struct http_server *server, const char *address, char **bound, hearth_error *error);

/* A unix socket that listens at `path`, as http_listen() opens it; or a negated errno, -EEXIST where there is a file
 * of that name that is not a socket. */
int http_unix_socket(const char *path, const struct http_socket_access *access);

/* Takes over a listening socket that another process opened: http_listen() uses it for the address that it is bound to,
 * in place of opening one. `lent`: that process goes on to own it, so that the file of a unix socket stays at the end.
 */
void http_adopt(struct http_server *server, int fd, bool lent);

/* Closes the adopted sockets that http_listen() did not use. Returns the address of one that was lent, which whoever
 * lent it will miss (free() it); NULL: there is none. */
char *http_close_unused(struct http_server *server);

/* The descriptors of all listening sockets, at most `most`; they stay the server's. Returns how many there are. */
size_t http_sockets(const struct http_server *server, int *fds, size_t most);

/* Whether the files of unix sockets stay when their listeners close: another process listens there too. Default: not.
 */
void http_keep_socket_files(struct http_server *server, bool keep);

/* Whether connections are accepted (the default), or wait in the kernel, where a process that has the same sockets may
 * accept them. */
void http_accept(struct http_server *server, bool accept);

/* From now on every answer ends its connection, and a connection is closed once it has had no request for so long. */
void http_retire(struct http_server *server, int idle_ms);
bool http_is_retired(const struct http_server *server); /* no connection has a request, or may send one */

/* Reads a certificate chain and its private key from PEM files. NULL if they cannot be read or do not match;
 * error->param is then "tls_cert" or "tls_key". */
struct http_tls *http_tls_open(const char *cert_path, const char *key_path, hearth_error *error);
void http_tls_close(struct http_tls *tls);

/* Calls `visit` with the address of each listening TCP socket. */
void http_each_address(const struct http_server *server, void (*visit)(void *ud, const struct sockaddr *address),
                       void *ud);

/* TCP connections accepted from now on use TLS; open ones stay as they are, and so do unix sockets. Takes `tls`
 * over, and closes the former one. */
void http_use_tls(struct http_server *server, struct http_tls *tls);

/* Serves until http_stop(). */
void http_run(struct http_server *server);

/* Makes http_run() return after the current events. Server's thread only (http_post() gets there). */
void http_stop(struct http_server *server);

/* Closes listeners only; requests in flight continue. */
void http_stop_listening(struct http_server *server);

/* After http_run() has returned, on any thread, when no thread posts any more. Runs what was posted, then closes
 * every connection: watched requests get on_gone, all others are freed. NULL is fine. */
void http_close(struct http_server *server);
struct event_base *http_base(struct http_server *server); /* for timers and signals of the caller */

/* The number of dispatched requests whose answer has not ended, and of open connections. */
size_t http_active(const struct http_server *server);
size_t http_connections(const struct http_server *server);

/* Runs `call(ud)` on the server's thread, soon. From any thread; wakes the loop. */
void http_post(struct http_server *server, void (*call)(void *ud), void *ud);

/* The watchdog measures each callback on the server's thread, and counts it as a stall if it holds up all connections
 * for too long. The caller's own timers and signals are measured between http_enter() and http_leave(); http_name()
 * names the route that is answered, a constant text. */
void http_enter(struct http_server *server);
void http_leave(struct http_server *server);
void http_name(struct http_server *server, const char *route);
int64_t http_stalls(const struct http_server *server); /* how many there were */

/* ---- A request ---- */

const char *http_method(const struct http_request *request);                   /* "GET" */
const char *http_path(const struct http_request *request);                     /* decoded, without the query */
const char *http_query(const struct http_request *request, const char *name);  /* decoded; NULL if absent */
const char *http_header(const struct http_request *request, const char *name); /* the first; NULL if absent; any case */
size_t http_count_headers(const struct http_request *request, const char *name); /* of that name */

/* The host in the request's target ("GET http://host:port/path"); NULL: the target is a path alone. */
const char *http_target_host(const struct http_request *request);

/* Whether the request came over a unix socket, and the local port that it came to (0: none). Valid until the handler
 * has returned. */
bool http_is_unix(const struct http_request *request);
int http_port(const struct http_request *request);

/* Moves the body out of the request; buf_release() it. Its bytes still count in the sum of all bodies. The caller
 * updates the count with http_recount() when it parses the body to something of another size, and sets it to 0 when
 * that is freed. */
struct buf http_take_body(struct http_request *request);

/* Names the client in on_head, in place of its address: clients share the memory of bodies that arrive, so that those
 * of one cannot keep others from sending theirs. */
void http_set_client(struct http_request *request, const void *name, size_t len);
bool http_has_client(const struct http_request *request); /* whether on_head named it */
void http_recount(struct http_server *server, size_t before, size_t now);

/* Watches for the client's disconnect before the answer has ended: calls on_gone(ud), after which the request is
 * invalid. A client that shuts down its sending side only counts as disconnected too. A request that is not watched
 * stays valid, its answer discarded, until the handler has ended it. */
void http_watch(struct http_request *request, void (*on_gone)(void *ud), void *ud);

/* ---- An answer: headers, then either http_reply() or http_begin(), http_send()…, http_end() ---- http_reply(),
 * http_reply_buf(), http_end() and http_abort() end it: the request is invalid afterwards. The server writes Date,
 * Connection and Content-Length or Transfer-Encoding. content_type may be NULL. */

/* Adds a header; both strings are copied. Also on another thread that makes the answer, as long as it alone does. */
void http_set_header(struct http_request *request, const char *name, const char *value);
void http_reply(struct http_request *request, int status, const char *content_type, const void *body, size_t len);
void http_reply_buf(struct http_request *request, int status, const char *content_type,
                    struct buf *body);                                               /* takes it */
void http_begin(struct http_request *request, int status, const char *content_type); /* chunked */
void http_send(struct http_request *request, const void *bytes, size_t len);
void http_end(struct http_request *request);

/* Bytes passed to http_send() that are not in the kernel yet: the caller's measure for backpressure. And what is called
 * while an answer is sent, with on_gone's `ud`, each time that few or none are left. */
size_t http_backlog(const struct http_request *request);
void http_on_drained(struct http_request *request, void (*on_drained)(void *ud));

/* Closes the connection without an answer; the request is invalid afterwards and on_gone is not called. */
void http_abort(struct http_request *request);

#endif
