/* The memory limit of all request bodies together, and of what was parsed from dispatched ones; backpressure on the
 * connections that send them. Event loop's thread only.
 *
 * While the sum is at its limit no connection that sends a body is read: its bytes stay in the kernel, and TCP makes
 * the client wait. That alone could deadlock: many bodies, each received in part, none of which can be completed. So
 * the body that began first is always read, unless dispatched requests hold memory: these end by themselves and free
 * it. Bodies thus take at most max_bodies + max_body bytes (and one read buffer). What a handler parses from a body
 * replaces it in the sum (http_recount()); the handler keeps that within a limit of its own. */
#include "http/connection.h"

static bool is_receiving(const struct connection *connection)
{
    return connection->older != NULL || connection->server->bodies.oldest == connection;
}

/* Resumes stalled connections from the event loop, not at once: the caller that frees memory may be within a handler
 * or a connection's callback. */
static void memory_freed(struct http_bodies *bodies)
{
    if (bodies->stalled > 0) event_active(bodies->resume, EV_TIMEOUT, 0);
}

static struct connection *next_to_resume(struct http_bodies *bodies)
{
    struct connection *c = bodies->oldest;
    while (c != NULL && !(c->stalled && bodies_may_read(c))) c = c->newer;
    return c;
}

/* Starts over after each: resuming a connection may call the handler, which may close any other. */
static void resume_all(evutil_socket_t fd, short what, void *ud)
{
    (void)fd, (void)what;
    struct http_server *server = ud;
    for (struct connection *c; (c = next_to_resume(&server->bodies)) != NULL;) connection_resume(c);
}

void bodies_init(struct http_server *server)
{
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
}

void bodies_leave(struct connection *connection)
{
    if (!is_receiving(connection)) return;
    struct http_bodies *bodies = &connection->server->bodies;
    bodies_stall(connection, false);
    *(connection->older != NULL ? &connection->older->newer : &bodies->oldest) = connection->newer;
    *(connection->newer != NULL ? &connection->newer->older : &bodies->newest) = connection->older;
    connection->older = connection->newer = NULL;
    memory_freed(bodies);
}

bool bodies_may_read(struct connection *connection)
{
    const struct http_bodies *bodies = &connection->server->bodies;
    if (bodies->held < connection->server->limits.max_bodies) return true;
    return bodies->dispatched == 0 && bodies->oldest == connection;
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

void bodies_add(struct http_server *server, size_t len)
{
    server->bodies.held += len;
}

void bodies_dispatch(struct http_server *server, size_t len)
{
    server->bodies.dispatched += len;
}

void http_recount(struct http_server *server, size_t before, size_t now)
{
    bodies_add(server, now);
    bodies_dispatch(server, now);
    bodies_free(server, before, true);
}

void bodies_free(struct http_server *server, size_t len, bool dispatched)
{
    if (len == 0) return;
    server->bodies.held -= len;
    if (dispatched) server->bodies.dispatched -= len;
    memory_freed(&server->bodies);
}
