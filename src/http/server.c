/* The HTTP server: its event loop, accepting connections within their limit, calls posted from other threads, and the
 * watchdog of the loop.
 *
 * One thread runs the loop and with it everything in this folder. Only the queue of posted calls is shared with
 * other threads, under its mutex. */
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/os.h"
#include "http/connection.h"

#include <event2/thread.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* ---- The watchdog ---- */

void stalls_enter(struct stalls *stalls)
{
    if (stalls->depth++ > 0) return;
    stalls->route = NULL;
    stalls->began_at = clock_now(clock_monotonic());
    stalls->cpu = clock_cpu_of_thread();
    stalls->waits = os_count_waits();
}

void stalls_leave(struct stalls *stalls)
{
    if (--stalls->depth > 0) return;
    const int64_t most = (int64_t)STALLS_MAX_MS * 1000000;
    int64_t took = clock_now(clock_monotonic()) - stalls->began_at;
    if (took <= most) return;
    int64_t busy = clock_cpu_of_thread() - stalls->cpu;
    /* Each that is longer than all before is a warning: few lines, and the worst is among them. */
    if (busy > most || os_count_waits() > stalls->waits) {
        const char *route = stalls->route != NULL ? stalls->route : "none";
        bool is_longest = took > stalls->longest || busy > stalls->busiest;
        stalls->n++;
        if (took > stalls->longest) stalls->longest = took;
        if (busy > stalls->busiest) stalls->busiest = busy;
        log_event(is_longest ? LOG_WARN : LOG_DEBUG, "http", "all connections were held up", log_str("route", route),
                  log_num("took_ms", clock_to_ms(took)), log_num("busy_ms", clock_to_ms(busy)));
    }
}

void stalls_name(struct stalls *stalls, const char *route)
{
    stalls->route = route;
}

enum {
    ACCEPT_AGAIN_MS = 100,
    MAX_OVER_LIMIT = 16 /* connections accepted over the limit */
};

struct http_limits http_limits_default(void)
{
    return (struct http_limits){
        .max_body = 32u << 20,
        .max_bodies = 256u << 20,
        .max_head = 64u << 10,
        .max_connections = 1024,
        .first_request_timeout_ms = 10000,
        .read_timeout_ms = 60000,
        .idle_timeout_ms = 120000,
        .write_timeout_ms = 60000,
    };
}

/* ---- Accepting connections ---- */

static void enable_listeners(struct http_server *server, bool enable)
{
    for (struct http_listener *l = server->listeners; l != NULL; l = l->next)
        (enable ? evconnlistener_enable : evconnlistener_disable)(l->listener);
}

/* Closes the idle connection that has waited longest; those that never sent a request first. False: none is idle. */
static bool drop_waiting(struct http_server *server)
{
    struct connection *c = TAILQ_FIRST(&server->fresh);
    if (c == NULL) c = TAILQ_FIRST(&server->kept_alive);
    if (c != NULL) connection_free(c);
    return c != NULL;
}

void server_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address, int len, void *ud)
{
    (void)listener, (void)len;
    struct http_server *server = ud;
    int one = 1;
    if (address->sa_family != AF_UNIX) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    server->accept_warned = false;
    bool full = server->n_connections - server->n_over_limit >= (size_t)server->limits.max_connections;
    bool over_limit = full && !drop_waiting(server), plain = server->tls == NULL || address->sa_family == AF_UNIX;
    /* Of those over the limit the oldest is closed for a new one: its urgent request was answered, or it is slow. */
    if (over_limit && server->n_over_limit >= MAX_OVER_LIMIT) connection_gone(TAILQ_FIRST(&server->over_limit));
    struct bufferevent *bev = plain ? bufferevent_socket_new(server->base, fd, BEV_OPT_CLOSE_ON_FREE)
                                    : tls_bufferevent(server->tls, server->base, fd);
    connection_open(server, bev, bodies_client_at(server, address), over_limit);
}

/* accept() failed, most likely for want of descriptors. The connection is still pending, so that accepting again at
 * once would spin. */
void server_accept_error(struct evconnlistener *listener, void *ud)
{
    (void)listener;
    struct http_server *server = ud;
    const char *reason = evutil_socket_error_to_string(EVUTIL_SOCKET_ERROR());
    if (!server->accept_warned)
        log_event(LOG_WARN, "http", "connections cannot be taken", log_str("reason", reason),
                  log_int("connections", (int64_t)server->n_connections), log_int("retry_ms", ACCEPT_AGAIN_MS));
    server->accept_warned = true;
    drop_waiting(server);
    enable_listeners(server, false);
    struct timeval after = {.tv_usec = ACCEPT_AGAIN_MS * 1000};
    event_add(server->accept_again, &after);
}

static void accept_again(evutil_socket_t fd, short what, void *ud)
{
    (void)fd, (void)what;
    struct http_server *server = ud;
    enable_listeners(server, !server->holds_accepts);
}

void http_accept(struct http_server *server, bool accept)
{
    assert_thread(&server->owner);
    server->holds_accepts = !accept;
    enable_listeners(server, accept);
}

/* ---- The watchdog ---- */

void http_enter(struct http_server *server)
{
    assert_thread(&server->owner);
    stalls_enter(&server->stalls);
}

void http_leave(struct http_server *server)
{
    assert_thread(&server->owner);
    stalls_leave(&server->stalls);
}

void http_name(struct http_server *server, const char *route)
{
    assert_thread(&server->owner);
    stalls_name(&server->stalls, route);
}

int64_t http_stalls(const struct http_server *server)
{
    return server->stalls.n;
}

/* ---- Posted calls ---- */

void http_post(struct http_server *server, void (*call)(void *ud), void *ud)
{
    struct http_posts *posts = &server->posts;
    pthread_mutex_lock(&posts->mutex);
    posts->v = mem_room(posts->v, posts->len, &posts->cap, sizeof *posts->v);
    posts->v[posts->len++] = (struct http_posted){.call = call, .ud = ud};
    /* The first call in the queue wakes the loop; under the mutex, so that http_close() cannot free the event
     * meanwhile. */
    if (posts->len == 1) event_active(posts->wake, EV_TIMEOUT, 0);
    pthread_mutex_unlock(&posts->mutex);
}

/* Runs the calls that are queued now; calls that they post run in the next iteration of the loop. */
static size_t run_posted(struct http_server *server)
{
    struct http_posts *posts = &server->posts;
    pthread_mutex_lock(&posts->mutex);
    struct http_posted *v = posts->v;
    size_t len = posts->len;
    posts->v = NULL;
    posts->len = posts->cap = 0;
    pthread_mutex_unlock(&posts->mutex);
    for (size_t i = 0; i < len; i++) {
        http_enter(server);
        v[i].call(v[i].ud);
        http_leave(server);
    }
    free(v);
    return len;
}

static void on_wake(evutil_socket_t fd, short what, void *ud)
{
    (void)fd, (void)what;
    run_posted(ud);
}

/* ---- Opening and closing ---- */

static void use_threads(void)
{
    evthread_use_pthreads();
}

struct http_server *http_open(const struct http_limits *limits, const struct http_handler *handler, hearth_error *error)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, use_threads);
    struct event_config *config = event_config_new();
    struct event_base *base = NULL;
    if (config != NULL) {
        /* Events are edge-triggered, with which connections watch for disconnects. */
        event_config_require_features(config, EV_FEATURE_ET);
        base = event_base_new_with_config(config);
        event_config_free(config);
    }
    if (base == NULL) {
        error_set(error, HEARTH_UNSUPPORTED,
                  "no event loop with epoll or kqueue: unset EVENT_NOEPOLL and EVENT_NOKQUEUE");
        return NULL;
    }
    /* A write to a closed socket is an error to handle, not a reason to end the process. */
    struct sigaction action;
    if (sigaction(SIGPIPE, NULL, &action) == 0 && action.sa_handler == SIG_DFL) signal(SIGPIPE, SIG_IGN);
    struct http_server *server = mem_alloc(sizeof *server);
    server->base = base;
    server->limits = *limits;
    server->handler = *handler;
    server->socket_access = (struct http_socket_access){.mode = 0600, .group = (gid_t)-1};
    TAILQ_INIT(&server->fresh);
    TAILQ_INIT(&server->kept_alive);
    TAILQ_INIT(&server->over_limit);
    server->accept_again = evtimer_new(base, accept_again, server);
    server->posts.wake = event_new(base, -1, 0, on_wake, server);
    pthread_mutex_init(&server->posts.mutex, NULL);
    bodies_init(server);
    return server;
}

void http_use_tls(struct http_server *server, struct http_tls *tls)
{
    assert_thread(&server->owner);
    http_tls_close(server->tls);
    server->tls = tls;
}

void http_set_socket_access(struct http_server *server, struct http_socket_access access)
{
    server->socket_access = access;
}

void http_run(struct http_server *server)
{
    thread_claim(&server->owner);
    event_base_loop(server->base, EVLOOP_NO_EXIT_ON_EMPTY);
    thread_release(&server->owner);
}

void http_stop(struct http_server *server)
{
    event_base_loopexit(server->base, NULL);
}

void http_close(struct http_server *server)
{
    if (server == NULL) return;
    while (run_posted(server) > 0) continue; /* posted calls own memory */
    http_stop_listening(server);
    free(http_close_unused(server));
    while (server->connections != NULL) connection_gone(server->connections);
    while (server->orphans != NULL) request_end_orphan(server->orphans);
    while (run_posted(server) > 0) continue;
    bodies_release(server);
    http_tls_close(server->tls);
    event_free(server->posts.wake);
    event_free(server->accept_again);
    free(server->posts.v);
    pthread_mutex_destroy(&server->posts.mutex);
    event_base_free(server->base);
    free(server);
}

struct event_base *http_base(struct http_server *server)
{
    return server->base;
}

size_t http_active(const struct http_server *server)
{
    return server->n_active;
}

size_t http_connections(const struct http_server *server)
{
    return server->n_connections;
}
