/* Passes listening sockets on, over a unix socket that only this user may connect to. The protocol is one message with
 * a byte and the descriptors (SCM_RIGHTS), one byte back, and the end of the connection. The next process reads on its
 * loading thread, the former one in its event loop. */
#include "serve/handover.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/os.h"

#include <errno.h>
#include <event2/listener.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { FIRST_PASSED = 3, MOST_SOCKETS = 128, ANSWER_S = 10, ACCEPT_AGAIN_MS = 100 };

static const char HERE_THEY_ARE = 'H', READY = 'R';

struct handover {
    struct http_server *http;
    char *path;
    int former, next; /* connections with these processes; -1: none */
    struct event *next_says;
    struct evconnlistener *listener; /* NULL: not listening */
    struct event *accept_again;
    bool accept_warned; /* since a connection was accepted last */
    void (*on_ready)(void *ud);
    void *ud;
};

/* ---- From a parent ---- */

/* The number that a variable has, which is then unset; 0: it is not set, or is no number. */
static long take_variable(const char *name)
{
    const char *value = getenv(name);
    long number = value == NULL ? 0 : strtol(value, NULL, 10);
    unsetenv(name);
    return number;
}

static bool listens(int fd)
{
    int value = 0, type = 0;
    socklen_t len = sizeof value;
    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &len) == 0 && value != 0 &&
           getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type == SOCK_STREAM;
}

long handover_passed(void)
{
    long pid = take_variable("LISTEN_PID"), n = take_variable("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    return pid == (long)getpid() && n > 0 ? n : 0; /* else meant for another process, which has passed them on */
}

int handover_from_parent(long n, struct http_server *http, hearth_error *error)
{
    if (n > MOST_SOCKETS)
        return error_at(error, HEARTH_INVALID, "LISTEN_FDS", "LISTEN_FDS: %ld sockets are more than %d", n,
                        MOST_SOCKETS);
    for (int fd = FIRST_PASSED; fd < FIRST_PASSED + n; fd++) {
        if (!listens(fd))
            return error_at(error, HEARTH_INVALID, "LISTEN_FDS",
                            "LISTEN_FDS: descriptor %d is no socket that listens for streams: a socket unit needs "
                            "ListenStream= and Accept=no",
                            fd);
        http_adopt(http, fd, true);
    }
    return HEARTH_OK;
}

/* ---- The next process ---- */

static int failed(hearth_error *error, const char *path, const char *what)
{
    return error_at(error, HEARTH_IO, "server.handover", "server.handover: %s %s", path, what);
}

/* A connection to the process that listens at the path. -1: there is none. -1 with the error: the path cannot be used,
 * or the process cannot be reached, or belongs to another user, who would get what clients send. */
static int find_former(const char *path, hearth_error *error)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    const struct timeval patience = {.tv_sec = ANSWER_S};
    if (*path == '\0' || strlen(path) >= sizeof name.sun_path) {
        failed(error, path, "is not usable: the path of a socket has 1 to 107 bytes");
        return -1;
    }
    memcpy(name.sun_path, path, strlen(path) + 1);
    int fd = os_socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    bool connected = fd >= 0 && connect(fd, (const struct sockaddr *)&name, sizeof name) == 0;
    if (connected && os_peer_is_same_user(fd)) return fd;
    if (connected)
        failed(error, path, "is listened at by a process of another user: name a path in a folder of this user");
    else if (errno != ENOENT && errno != ECONNREFUSED)
        failed(error, path, os_error_text(errno));
    if (fd >= 0) close(fd);
    return -1;
}

union passed {
    struct cmsghdr head; /* aligns it */
    char bytes[CMSG_SPACE(MOST_SOCKETS * sizeof(int))];
};

static void adopt_all(struct handover *h, struct msghdr *message, hearth_error *error)
{
    if (message->msg_flags & MSG_CTRUNC)
        failed(error, h->path, "has passed more sockets than this process may have: raise the limit of open files");
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        for (size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= c->cmsg_len; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (!listens(fd)) failed(error, h->path, "has passed something that is no socket that listens for streams");
            http_adopt(h->http, fd, false);
        }
    }
}

/* False: the former process, which was about to end, does not listen at the path any more. */
static bool receive_sockets(struct handover *h, hearth_error *error)
{
    char byte = 0;
    union passed passed;
    struct iovec bytes = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = passed.bytes, .msg_controllen = sizeof passed.bytes};
    ssize_t got;
    do got = os_receive_message(h->former, &message);
    while (got < 0 && errno == EINTR);
    if (got < 0 && errno == ECONNRESET) return false;
    if (got < 0)
        failed(error, h->path, "is listened at by a process that does not answer: end it");
    else if (got == 0)
        failed(error, h->path, "has passed its sockets to another process, which is starting: wait, or end that");
    else
        adopt_all(h, &message, error);
    if (got > 0 && byte != HERE_THEY_ARE)
        failed(error, h->path, "is listened at by something that is not this version of hearth: name another path");
    return true;
}

struct handover *handover_open(const char *path, struct http_server *http, hearth_error *error)
{
    hearth_error why = {0};
    struct handover *h = mem_alloc(sizeof *h);
    *h = (struct handover){.http = http, .path = mem_strdup(path), .next = -1};
    while ((h->former = find_former(h->path, &why)) >= 0 && !receive_sockets(h, &why)) close(h->former);
    if (h->former >= 0) http_keep_socket_files(http, true); /* until the former one has ended, whatever happens here */
    if (why.code == HEARTH_OK) return h;
    *error = why;
    handover_close(h);
    return NULL;
}

bool handover_has_former(const struct handover *handover)
{
    return handover != NULL && handover->former >= 0;
}

void handover_take(struct handover *h)
{
    const struct timeval forever = {0};
    char byte;
    ssize_t got;
    log_event(LOG_INFO, "http", "ready, waiting for the end of the former process");
    setsockopt(h->former, SOL_SOCKET, SO_RCVTIMEO, &forever, sizeof forever);
    os_send(h->former, &READY, 1); /* fails where that has ended */
    do got = recv(h->former, &byte, 1, 0);
    while (got > 0 || (got < 0 && errno == EINTR));
}

void handover_give_up(struct handover *handover)
{
    shutdown(handover->former, SHUT_RDWR);
}

/* ---- The former process ---- */

static bool send_sockets(struct handover *h, int to)
{
    int fds[MOST_SOCKETS];
    size_t n = http_sockets(h->http, fds, MOST_SOCKETS);
    char byte = HERE_THEY_ARE;
    union passed passed = {0};
    struct iovec bytes = {&byte, 1};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = passed.bytes};
    if (n > MOST_SOCKETS) n = MOST_SOCKETS;
    message.msg_controllen = CMSG_SPACE(n * sizeof *fds);
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(n * sizeof *fds);
    memcpy(CMSG_DATA(c), fds, n * sizeof *fds);
    return os_send_message(to, &message) == 1;
}

static void on_next_says(evutil_socket_t fd, short what, void *ud)
{
    (void)what;
    struct handover *h = ud;
    char byte = 0;
    if (recv(fd, &byte, 1, 0) == 1) {
        if (byte == READY) h->on_ready(h->ud);
        return;
    }
    log_event(LOG_WARN, "http", "the next process has ended before it took over");
    if (h->next_says != NULL) event_free(h->next_says);
    if (h->next >= 0) close(h->next);
    h->next_says = NULL;
    h->next = -1;
    http_keep_socket_files(h->http, false);
}

/* A second process meanwhile sees the end of its connection at once. */
static void on_next(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address, int len, void *ud)
{
    (void)listener, (void)address, (void)len;
    struct handover *h = ud;
    h->accept_warned = false;
    if (h->next >= 0 || !send_sockets(h, fd)) {
        close(fd);
        return;
    }
    log_event(LOG_INFO, "http", "passed the sockets on to the next process");
    http_keep_socket_files(h->http, true);
    h->next = fd;
    h->next_says = event_new(http_base(h->http), fd, EV_READ | EV_PERSIST, on_next_says, h);
    event_add(h->next_says, NULL);
}

/* For want of descriptors, most likely. The connection is still pending, so that accepting again at once would spin. */
static void on_accept_error(struct evconnlistener *listener, void *ud)
{
    struct handover *h = ud;
    const struct timeval after = {.tv_usec = ACCEPT_AGAIN_MS * 1000};
    const char *reason = evutil_socket_error_to_string(EVUTIL_SOCKET_ERROR());
    if (!h->accept_warned)
        log_event(LOG_WARN, "http", "the next process cannot be answered", log_str("reason", reason),
                  log_int("retry_ms", ACCEPT_AGAIN_MS));
    h->accept_warned = true;
    evconnlistener_disable(listener);
    event_add(h->accept_again, &after);
}

static void accept_again(evutil_socket_t fd, short what, void *ud)
{
    (void)fd, (void)what;
    evconnlistener_enable(((struct handover *)ud)->listener);
}

int handover_listen(struct handover *h, void (*on_ready)(void *ud), void *ud, hearth_error *error)
{
    const struct http_socket_access own = {.mode = 0600, .group = (gid_t)-1};
    if (h == NULL) return HEARTH_OK;
    int fd = http_unix_socket(h->path, &own);
    if (fd == -EEXIST) return failed(error, h->path, "is a file that is not a socket: name another path");
    if (fd < 0) return failed(error, h->path, os_error_text(-fd));
    h->on_ready = on_ready;
    h->ud = ud;
    h->listener =
        evconnlistener_new(http_base(h->http), on_next, h, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, fd);
    evconnlistener_set_error_cb(h->listener, on_accept_error);
    h->accept_again = evtimer_new(http_base(h->http), accept_again, h);
    return HEARTH_OK;
}

/* ---- The end ---- */

void handover_stop(struct handover *h)
{
    if (h == NULL) return;
    if (h->listener != NULL) {
        unlink(h->path);
        evconnlistener_free(h->listener);
        event_free(h->accept_again);
        h->listener = NULL;
    }
    if (h->next_says != NULL) event_free(h->next_says);
    h->next_says = NULL;
}

void handover_close(struct handover *h)
{
    if (h == NULL) return;
    if (h->former >= 0) close(h->former);
    if (h->next >= 0) close(h->next);
    free(h->path);
    free(h);
}
