/* The HTTP server's internals, shared by the files of this folder: the server, its connections and their requests. One
 * thread, the event loop's, runs all of it except http_post().
 *
 * The server owns its listeners and connections; a connection owns its bufferevent and, until the client
 * disconnects, its request. A request that is not watched when its client disconnects becomes an orphan: the
 * handler, which still holds the pointer, owns it, and ending its answer frees it. */
#ifndef HTTP_CONNECTION_H
#define HTTP_CONNECTION_H

#include "base/thread.h"
#include "http/http.h"

#include <event2/bufferevent.h>
#include <event2/listener.h>
#include <llhttp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/un.h>

/* ---- The watchdog of the server's thread ---- */

/* It notices what holds up all other connections. Each callback of the event loop, and each posted call, is measured
 * from stalls_enter() to stalls_leave(); pairs within others do not count. Long is what took processor time, or waited
 * for something, for more than STALLS_MAX_MS: time in which the system ran another thread instead is nobody's fault
 * here. */
enum { STALLS_MAX_MS = 5 };

struct stalls {
    int depth;                   /* of pairs that are open */
    const char *route;           /* what is measured now; NULL: not known yet */
    int64_t began_at, cpu;       /* at the outermost stalls_enter(): monotonic ns, the thread's processor time */
    long waits;                  /* and how often the thread had waited */
    int64_t n, longest, busiest; /* stalls so far; the longest, and the most processor time of one: ns */
};

void stalls_enter(struct stalls *stalls);
void stalls_leave(struct stalls *stalls);

/* Names what is measured now: a constant text. */
void stalls_name(struct stalls *stalls, const char *route);

/* ---- The server ---- */

/* The address that a socket is bound to; all zero if unknown. */
union socket_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un path;
};

union socket_address socket_address(int fd);

struct http_listener {
    struct http_listener *next;
    struct evconnlistener *listener;
    char *unix_path; /* NULL for TCP */
    ino_t node;      /* inode of the socket file: a file that another server has put there is not removed */
};

/* A listening socket of another process that no address uses yet. */
struct http_adopted {
    struct http_adopted *next;
    int fd;
    bool lent;
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

/* The bodies that the connections of one client receive together. Clients whose numbers end alike have one share: with
 * a secret in the number none of them can choose whose. */
#define BODY_SHARES 4096

struct body_share {
    size_t receiving;          /* bytes of bodies that have not arrived whole */
    struct connection *oldest; /* of those that receive one, the one that began first */
};

/* Memory of request bodies, and its limit; see bodies.c. */
struct http_bodies {
    size_t held;                        /* bytes of all bodies, and of what was parsed from them */
    size_t dispatched;                  /* of these, bytes of dispatched requests */
    size_t reserved;                    /* bytes that were announced and may not have arrived yet */
    size_t stalled;                     /* connections that wait for memory */
    struct connection *oldest, *newest; /* connections that receive a body, in the order of its beginning */
    struct body_share shares[BODY_SHARES];
    uint64_t secret; /* clients' numbers are mixed with */
    struct event *resume;
};

TAILQ_HEAD(waiting, connection);

struct http_server {
    struct event_base *base;
    struct thread_owner owner; /* the thread in http_run() */
    struct http_limits limits;
    struct http_handler handler;
    struct http_listener *listeners;
    struct http_adopted *adopted;
    bool holds_accepts;         /* connections wait in the kernel */
    bool keeps_files;           /* of unix sockets */
    bool retires;               /* each answer ends its connection */
    struct event *accept_again; /* timer: accepts again after an error such as too many open files */
    bool accept_warned;         /* the error was logged since the last accepted connection */
    struct http_socket_access socket_access;
    struct connection *connections;
    /* Connections without a whole head of a request, in the order of waiting: those that never sent a request
     * (fresh), and those whose requests are answered (kept_alive). And those over the limit, which are in no other
     * list. */
    struct waiting fresh, kept_alive, over_limit;
    struct http_tls *tls; /* NULL: none */
    size_t n_connections, n_over_limit;
    size_t n_active;
    struct http_request *orphans;
    struct http_bodies bodies;
    struct http_posts posts;
    struct stalls stalls;
};

void server_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address, int len, void *ud);
void server_accept_error(struct evconnlistener *listener, void *ud);

/* ---- A connection ---- */

enum connection_state {
    CONNECTION_HANDSHAKE, /* TLS handshake */
    CONNECTION_IDLE,      /* no byte of a request has arrived */
    CONNECTION_HEAD,      /* request line and headers are arriving */
    CONNECTION_BODY,      /* the body is arriving, or is `stalled` until there is memory for more of it */
    CONNECTION_ANSWERING, /* the handler has the request; pipelined input waits in the input buffer */
    CONNECTION_FLUSHING,  /* the answer has ended and is being sent */
    CONNECTION_LINGERING, /* lingering close: the answer is sent; input is discarded until the client closes */
    CONNECTION_CLOSED     /* closed from within on_request; freed when that returns */
};

struct connection {
    struct connection *prev, *next; /* of the server */
    struct http_server *server;
    struct bufferevent *bev;
    enum connection_state state;
    bool stalled;
    bool reading_closed; /* the client has shut down its sending side */
    bool keep_alive;     /* another request may follow the answer */
    bool dispatching;    /* on_request is running */
    bool sent_head;      /* a whole head of a request has arrived, now or earlier */
    bool over_limit;     /* over the limit of connections: only an urgent request is answered */
    int64_t began_at;    /* when the first byte of the current request arrived: CLOCK_MONOTONIC ns */
    struct event *timer; /* idle, read or linger timeout, by state */
    struct event *hangup;
    int hangup_fd;
    uint64_t address;                 /* number of its client's address */
    uint64_t client;                  /* of the request's: that, or of what the handler named (http_set_client()) */
    struct connection *older, *newer; /* among those that receive a body */
    struct body_share *share;         /* its client's, while it receives a body */
    size_t received;                  /* bytes of that body so far */
    struct waiting *waits_in;         /* its list of the server; NULL: none */
    TAILQ_ENTRY(connection) waiting;
    struct http_request *request;
    struct buf rest; /* of an answer that has ended: bytes that are not in the output yet, from `rest_at` on */
    size_t rest_at;
};

/* Serves requests over `bev`, which it takes over, after the handshake if it is TLS. `over_limit`: only an urgent
 * request is answered. `address`: bodies_client_at(). */
void connection_open(struct http_server *server, struct bufferevent *bev, uint64_t address, bool over_limit);

/* The number of a client by its address: a network of 64 bits in IPv6; all of unix sockets have one. */
uint64_t bodies_client_at(const struct http_server *server, const struct sockaddr *address);

/* Close the connection and free it. Only connection_gone() calls on_gone for its request. */
void connection_free(struct connection *connection);
void connection_gone(struct connection *connection);

/* Continues to receive a body that waited for memory. */
void connection_resume(struct connection *connection);

/* Adds more of the rest of a long answer to the output. False: there is none. */
bool connection_send_rest(struct connection *connection);

/* The answer has ended: sends the rest of it, then receives the next request or closes. */
void connection_answered(struct connection *connection);

/* ---- TLS ---- */

/* A TLS bufferevent, the server side of the handshake. */
struct bufferevent *tls_bufferevent(const struct http_tls *tls, struct event_base *base, evutil_socket_t fd);
bool tls_is(struct bufferevent *bev);                /* whether it is TLS */
void tls_send_close_notify(struct bufferevent *bev); /* sends TLS's close_notify; no effect on a plain one */
void tls_log_failure(struct bufferevent *bev);       /* logs why a handshake failed */

/* ---- Memory of bodies ---- */

void bodies_init(struct http_server *server);
void bodies_release(struct http_server *server);
void bodies_enter(struct connection *connection); /* its body begins to arrive */
void bodies_leave(struct connection *connection); /* its body has arrived whole or is given up; harmless twice */
bool bodies_may_read(struct connection *connection);
void bodies_receive(struct connection *connection, size_t len); /* so much of the request's body has arrived */
void bodies_stall(struct connection *connection, bool stalled);
void bodies_dispatch(struct http_server *server, size_t len);
void bodies_uncount(struct http_server *server, size_t len, bool dispatched);

/* ---- A request ---- */

enum parse { PARSE_MORE, PARSE_WHOLE, PARSE_FAULT };

struct http_fault {
    int status;
    const char *message; /* plain text */
};

/* Offsets of a header's name and value in `head`, zero-terminated once the head is whole. */
struct http_field {
    size_t name, value;
};

struct http_pair {
    const char *name, *value;
};

/* The request's target, decoded. */
struct http_target {
    char *text; /* path and pairs point into it */
    char *host; /* with its port; NULL: none */
    const char *path;
    struct http_pair *pairs;
    size_t n_pairs;
};

enum reply_state { REPLY_NONE, REPLY_STREAMING, REPLY_ENDED };

struct http_request {
    struct http_server *server;
    struct connection *connection;    /* NULL: the client has disconnected */
    struct http_request *prev, *next; /* in the list of orphans */
    bool dispatched;

    llhttp_t parser;
    struct http_fault fault;
    struct buf head; /* as it arrived */
    size_t line;     /* offset in `head` of the line that is arriving */
    size_t url;
    struct http_field *fields;
    size_t n_fields, cap_fields;
    bool head_done, whole, has_client;
    bool version_1_0, keep_alive, wants_continue, has_length;
    uint64_t length; /* Content-Length */
    size_t framing;  /* bytes of chunk sizes, extensions and trailers since the last byte of the body */
    struct http_target target;
    struct buf body;
    size_t reserved; /* bytes of it, in the sum of all bodies */

    void (*on_gone)(void *ud);
    void (*on_drained)(void *ud);
    void *ud;

    enum reply_state reply;
    bool chunked;  /* the answer is sent in chunks */
    bool bodyless; /* the answer has no body, whatever the handler sends */
    struct buf reply_headers;
};

struct http_request *request_new(struct connection *connection);
void request_free(struct http_request *request);

/* The client has disconnected: calls on_gone, or keeps the request as an orphan until the handler ends it. */
void request_lose_client(struct http_request *request);
void request_end_orphan(struct http_request *request);

/* Parse more of the head or the body; `used` gets the bytes consumed. PARSE_WHOLE: the head (body) is complete.
 * PARSE_FAULT: the request is malformed, see `fault`. */
enum parse request_parse_head(struct http_request *request, const char *bytes, size_t len, size_t *used);
enum parse request_parse_body(struct http_request *request, const char *bytes, size_t len, size_t *used);

/* Writes the error answer to a request that the server refuses. */
void reply_refuse(struct connection *connection, struct http_fault fault);

#endif
