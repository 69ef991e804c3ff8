/* Counts the memory of bodies, and owns none of it: the bytes are request->body. The limit of all request bodies
 * together, and of what was parsed from dispatched ones; backpressure on the connections that send them. Event loop's
 * thread only.
 *
 * While the sum is at its limit no connection that sends a body is read: its bytes stay in the kernel, and TCP makes
 * the client wait. That alone could deadlock: many bodies, each received in part, none of which can be completed. So
 * the body that began first is always read, unless dispatched requests hold memory: these end by themselves and free
 * it. Bodies thus take at most max_bodies + max_body bytes (and one read buffer). A handler that parses a body counts
 * the result in place of the body (http_recount()), and keeps it within a limit of its own.
 *
 * A client that begins bodies and does not send the rest would keep all others from sending theirs until its time is
 * up. So bodies of one client that have not arrived whole take half of the memory at most. The one that began first is
 * exempt, so that it can always be completed. Large bodies leave some of the memory to small ones. */
#include "http/connection.h"

#include "base/os.h"
#include "base/sha256.h"

#include <netinet/in.h>
#include <string.h>

/* Up to so many bytes a body is small: a chat, without media. */
#define SMALL_BODY (256u << 10)

/* Resumes stalled connections from the event loop, not at once: the caller that frees memory may be within a handler
 * or a connection's callback. */
static void memory_freed(struct http_bodies *bodies)
{
    if (bodies->stalled > 0) event_active(bodies->resume, EV_TIMEOUT, 0);
}

/* Starts over after each: resuming a connection may call the handler, which may close any other. */
static void resume_all(evutil_socket_t fd, short what, void *ud)
{
    (void)fd, (void)what;
    struct http_server *server = ud;
    for (;;) {
        struct connection *c = server->bodies.oldest;
        while (c != NULL && !(c->stalled && bodies_may_read(c))) c = c->newer;
        if (c == NULL) return;
        http_enter(server);
        connection_resume(c);
        http_leave(server);
    }
}

/* ---- Clients ---- */

static uint64_t number_of(const struct http_server *server, const void *name, size_t len)
{
    struct sha256 *hash = sha256_open();
    uint8_t digest[SHA256_BYTES];
    uint64_t number;
    sha256_feed(hash, &server->bodies.secret, sizeof server->bodies.secret);
    sha256_feed(hash, name, len);
    sha256_so_far(hash, digest);
    sha256_close(hash);
    memcpy(&number, digest, sizeof number);
    return number;
}

uint64_t bodies_client_at(const struct http_server *server, const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return number_of(server, &((const struct sockaddr_in *)address)->sin_addr, sizeof(struct in_addr));
    if (address->sa_family == AF_INET6)
        return number_of(server, &((const struct sockaddr_in6 *)address)->sin6_addr, sizeof(struct in6_addr) / 2);
    return number_of(server, "", 0);
}

void http_set_client(struct http_request *request, const void *name, size_t len)
{
    request->connection->client = number_of(request->server, name, len);
    request->has_client = true;
}

bool http_has_client(const struct http_request *request)
{
    return request->has_client;
}

/* ---- Connections that receive a body ---- */

void bodies_init(struct http_server *server)
{
    os_random(&server->bodies.secret, sizeof server->bodies.secret);
    server->bodies.resume = event_new(server->base, -1, 0, resume_all, server);
}

void bodies_release(struct http_server *server)
{
    event_free(server->bodies.resume);
}

void bodies_enter(struct connection *connection)
{
    struct http_bodies *bodies = &connection->server->bodies;
    connection->older = bodies->newest;
    connection->newer = NULL;
    *(bodies->newest != NULL ? &bodies->newest->newer : &bodies->oldest) = connection;
    bodies->newest = connection;
    connection->share = &bodies->shares[connection->client % BODY_SHARES];
    connection->received = 0;
    if (connection->share->oldest == NULL) connection->share->oldest = connection;
}

void bodies_leave(struct connection *connection)
{
    if (connection->share == NULL) return; /* it receives none */
    struct http_bodies *bodies = &connection->server->bodies;
    bodies_stall(connection, false);
    struct body_share *share = connection->share;
    struct connection *next = connection->newer;
    connection->share = NULL;
    share->receiving -= connection->received;
    if (share->oldest == connection) {
        while (next != NULL && next->share != share) next = next->newer;
        share->oldest = next;
    }
    *(connection->older != NULL ? &connection->older->newer : &bodies->oldest) = connection->newer;
    *(connection->newer != NULL ? &connection->newer->older : &bodies->newest) = connection->older;
    connection->older = connection->newer = NULL;
    memory_freed(bodies);
}

void bodies_receive(struct connection *connection, size_t len)
{
    connection->server->bodies.held += len;
    if (connection->share == NULL) return; /* it came with the head */
    connection->received += len;
    connection->share->receiving += len;
}

/* Small ones have a part of the memory for themselves, of which a client may take half. */
bool bodies_may_read(struct connection *connection)
{
    const struct http_bodies *bodies = &connection->server->bodies;
    const struct body_share *share = connection->share;
    const size_t most = connection->server->limits.max_bodies, kept = most / 8;
    /* Bodies without a length are small until they are not. */
    const bool small = connection->request->length <= SMALL_BODY && connection->received <= SMALL_BODY;
    if (bodies->dispatched == 0 && bodies->oldest == connection) return true;
    if (bodies->held >= (small ? most : most - kept)) return false;
    return share->oldest == connection || share->receiving < most / 2 + (small ? kept / 2 : 0);
}

void bodies_stall(struct connection *connection, bool stalled)
{
    if (connection->stalled == stalled) return;
    connection->stalled = stalled;
    if (stalled)
        connection->server->bodies.stalled++;
    else
        connection->server->bodies.stalled--;
}

void bodies_dispatch(struct http_server *server, size_t len)
{
    server->bodies.dispatched += len;
}

void http_recount(struct http_server *server, size_t before, size_t now)
{
    assert_thread(&server->owner);
    server->bodies.held += now;
    bodies_dispatch(server, now);
    bodies_uncount(server, before, true);
}

void bodies_uncount(struct http_server *server, size_t len, bool dispatched)
{
    if (len == 0) return;
    server->bodies.held -= len;
    if (dispatched) server->bodies.dispatched -= len;
    memory_freed(&server->bodies);
}
