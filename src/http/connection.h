/* What the files of this folder share: the server, its connections and their requests. One thread, the loop's, runs
 * all of it but http_post().
 *
 * Who owns what: the server owns its listeners and connections; a connection owns its bufferevent and, until the
 * client goes away, its request. A request whose client went away while nobody watched it is an orphan: it belongs to
 * the handler, which still holds the pointer, and is freed when the handler ends it. */
#ifndef HTTP_CONNECTION_H
#define HTTP_CONNECTION_H

#include "http/http.h"

#include <event2/bufferevent.h>
#include <event2/listener.h>
#include <llhttp.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/queue.h>

/* ---- The server ---- */

struct http_listener {
    struct http_listener *next;
    struct evconnlistener *listener;
    char *unix_path; /* NULL for TCP */
    ino_t node;      /* the socket file's: another server's file is not ours to remove */
};

struct http_posted {
    void (*call)(void *ud);
    void *ud;
};

struct http_posts {
    pthread_mutex_t mutex;
    struct http_posted *v; /* under the mutex */
    size_t len, cap;       /* under the mutex */
    struct event *wake;
};

/* Memory of request bodies; see bodies.c. */
struct http_bodies {
    size_t held;                        /* bytes of all bodies, and of what was made of them */
    size_t dispatched;                  /* of these, those of requests that were handed out */
    size_t stalled;                     /* connections that wait for memory */
    struct connection *oldest, *newest; /* connections that receive a body, in the order they began */
    struct event *resume;
};

TAILQ_HEAD(waiting, connection);

struct http_server {
    struct event_base *base;
    struct http_limits limits;
    struct http_handler handler;
    struct http_listener *listeners;
    struct event *accept_again; /* timer: tries to accept after an error such as too many open files */
    bool accept_warned;         /* since a connection was last taken */
    struct http_socket_access socket_access;
    struct connection *connections;
    /* Connections of which no whole head of a request is there, those that have waited longest first: that never sent
     * one, and whose request was answered. And those for which there is no room; they are in no other list. */
    struct waiting fresh, kept_alive, over_limit;
    struct http_tls *tls; /* NULL: none */
    size_t n_connections, n_over_limit;
    size_t n_active;
    struct http_request *orphans;
    struct http_bodies bodies;
    struct http_posts posts;
};

void listener_free(struct http_listener *listener);
void server_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address, int len, void *ud);
void server_accept_error(struct evconnlistener *listener, void *ud);

/* ---- A connection ---- */

enum connection_state {
    CONNECTION_HANDSHAKE, /* client and server agree on TLS */
    CONNECTION_IDLE,      /* no byte of a request has come */
    CONNECTION_HEAD,      /* request line and headers are coming */
    CONNECTION_BODY,      /* the body is coming, or `stalled` until there is memory for more of it */
    CONNECTION_ANSWERING, /* the handler has the request; what comes meanwhile waits in the input buffer */
    CONNECTION_FLUSHING,  /* the answer has ended and is being sent */
    CONNECTION_LINGERING, /* all is said: what still comes is thrown away until the client closes */
    CONNECTION_CLOSED     /* aborted from within on_request; freed when that returns */
};

struct connection {
    struct connection *prev, *next; /* of the server */
    struct http_server *server;
    struct bufferevent *bev;
    enum connection_state state;
    bool stalled;
    bool reading_closed; /* the client said it sends no more */
    bool keep_alive;     /* another request may follow the answer */
    bool dispatching;    /* on_request is running */
    bool sent_head;      /* a whole head of a request has come, now or earlier */
    bool over_limit;     /* there is no room for it: only an urgent request is answered */
    int64_t began_at;    /* the request that is being received: CLOCK_MONOTONIC ns */
    struct event *timer; /* idle, read or linger timeout, by state */
    struct event *hangup;
    int hangup_fd;
    struct connection *older, *newer; /* among those that receive a body */
    struct waiting *waits_in;         /* a list of the server's; NULL: in none */
    TAILQ_ENTRY(connection) waiting;
    struct http_request *request;
};

/* The one place where a plain bufferevent is made of a socket. */
struct bufferevent *connection_bufferevent(struct event_base *base, evutil_socket_t fd);

/* Starts serving what comes over `bev`, which it owns from now on, once a handshake is done if it needs one.
 * `over_limit`: there is no room for it. */
struct connection *connection_open(struct http_server *server, struct bufferevent *bev, bool over_limit);

/* Drops the connection. The handler is told of the end of its request only by connection_gone(). */
void connection_free(struct connection *connection);
void connection_gone(struct connection *connection);

/* Goes on with a body that waited for memory. */
void connection_resume(struct connection *connection);

/* The answer has ended: sends what is left of it, then takes the next request or closes. */
void connection_answered(struct connection *connection);

/* ---- TLS ---- */

/* A bufferevent that answers the client's handshake. */
struct bufferevent *tls_bufferevent(const struct http_tls *tls, struct event_base *base, evutil_socket_t fd);
bool tls_is(struct bufferevent *bev); /* rather than a plain one */
void tls_send_close_notify(
    struct bufferevent *bev);                  /* tells the client that nothing follows; harmless on a plain one */
void tls_log_failure(struct bufferevent *bev); /* why a handshake came to nothing */

/* ---- Memory of bodies ---- */

void bodies_init(struct http_server *server);
void bodies_release(struct http_server *server);
void bodies_enter(struct connection *connection); /* its body begins */
void bodies_leave(struct connection *connection); /* its body ended or never will; harmless twice */
bool bodies_may_read(struct connection *connection);
void bodies_stall(struct connection *connection, bool stalled);
void bodies_add(struct http_server *server, size_t len);
void bodies_dispatch(struct http_server *server, size_t len);
void bodies_free(struct http_server *server, size_t len, bool dispatched);

/* ---- A request ---- */

enum parse { PARSE_MORE, PARSE_WHOLE, PARSE_FAULT };

struct http_fault {
    int status;
    const char *message; /* plain text */
};

/* Where a header lies in `head`; both are zero-terminated once the head is whole. */
struct http_field {
    size_t name, value;
};

struct http_pair {
    const char *name, *value;
};

/* The request's target, decoded. */
struct http_target {
    char *text; /* what path and pairs point into */
    char *host; /* with its port; NULL: it names none */
    const char *path;
    struct http_pair *pairs;
    size_t n_pairs;
};

enum reply_state { REPLY_NONE, REPLY_STREAMING, REPLY_ENDED };

struct http_request {
    struct http_server *server;
    struct connection *connection;    /* NULL: the client is gone */
    struct http_request *prev, *next; /* among the orphans */
    bool dispatched;

    llhttp_t parser;
    struct http_fault fault;
    struct buf head; /* as it came, less the line ends */
    size_t line;     /* where the line that is coming begins in `head` */
    size_t url;
    struct http_field *fields;
    size_t n_fields, cap_fields;
    bool head_done, whole;
    bool version_1_0, keep_alive, wants_continue, has_length;
    uint64_t length; /* Content-Length */
    size_t framing;  /* bytes of chunk sizes, extensions and trailers since the last byte of body */
    struct http_target target;
    struct buf body;

    void (*on_gone)(void *ud);
    void *ud;

    enum reply_state reply;
    bool chunked;  /* the answer is sent in chunks */
    bool bodyless; /* the answer has no body, whatever the handler sends */
    struct buf reply_headers;
};

struct http_request *request_new(struct connection *connection);
void request_free(struct http_request *request);

/* The client is gone: tells the handler, or keeps the request as an orphan until the handler ends it. */
void request_lose_client(struct http_request *request);
void request_end_orphan(struct http_request *request);

/* Parses more of the head or the body; `used` gets the bytes taken. PARSE_WHOLE: the head (body) is complete.
 * PARSE_FAULT: see `fault`. */
enum parse request_parse_head(struct http_request *request, const char *bytes, size_t len, size_t *used);
enum parse request_parse_body(struct http_request *request, const char *bytes, size_t len, size_t *used);

/* Decodes "/path?name=value" or "http://host/path"; false where it is malformed. */
bool target_decode(struct http_target *target, const char *url);
void target_release(struct http_target *target);
const char *target_query(const struct http_target *target, const char *name);

/* Writes an error answer on a connection whose request could not be taken. */
void reply_refuse(struct connection *connection, struct http_fault fault);

/* Asks the client to send the body it announced. */
void reply_continue(struct connection *connection);

#endif
