/* The client of redis.h. Connections that no call uses wait in a list; a call takes one or makes one. A connection on
 * which anything went wrong is closed, since a late answer would be taken for that of the next command. */
#include "store/remote/redis.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"
#include "store/remote/redis_replies.h"
#include "store/remote/redis_tls.h"

#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

enum { MOST_IDLE = 8, MOST_IDLE_BESIDE = 2, PIECES_AT_ONCE = 16 };

struct connection {
    int fd;
    uint32_t epoch; /* of the client, when it was made */
    redisReader *reader;
    struct redis_tls *tls; /* NULL: without */
    struct connection *next;
};

struct redis {
    struct redis_params params;
    char *user, *password_file, *ca_file, *certificate_file, *certificate_key_file;
    pthread_mutex_t mutex; /* guards what follows */
    struct sockaddr_storage socket;
    socklen_t socket_size; /* 0: it was never connected */
    char *password;
    struct redis_tls_context *tls; /* NULL: without */
    uint32_t epoch;                /* connections of earlier ones are closed */
    struct connection *idle;
    size_t n_idle;
};

/* ---- One exchange ---- */

/* How far a batch was sent. */
struct position {
    size_t text, n_large; /* so much of the text; so many large arguments whole, */
    size_t large;         /* and so much of the next one */
};

struct exchange {
    struct connection *connection;
    struct redis_batch *batch;
    struct redis_replies replies;
    struct position sent;
    int64_t progress_at;
};

static int fail_io(hearth_error *error, const char *what)
{
    return error_set(error, HEARTH_UNAVAILABLE, "the server is away: %s", what);
}

/* Of a send or receive that has failed. */
static const char *io_reason(const struct connection *connection)
{
    return connection->tls != NULL && errno == EPROTO ? redis_tls_reason() : strerror(errno);
}

/* The large argument that comes there; NULL: text does, or nothing. */
static const struct redis_large *large_at(const struct redis_batch *batch, const struct position *at)
{
    const struct redis_large *next = at->n_large < batch->n_large ? &batch->large[at->n_large] : NULL;
    return next != NULL && at->text == next->text_end ? next : NULL;
}

/* Bytes to be sent there; 0: nothing. */
static struct iovec piece_at(const struct redis_batch *batch, const struct position *at)
{
    const struct redis_large *large = large_at(batch, at);
    if (large != NULL)
        return (struct iovec){.iov_base = (char *)(uintptr_t)large->bytes + at->large,
                              .iov_len = large->size - at->large};
    size_t end = at->n_large < batch->n_large ? batch->large[at->n_large].text_end : batch->text.len;
    return (struct iovec){.iov_base = batch->text.v + at->text, .iov_len = end - at->text};
}

static void advance(const struct redis_batch *batch, struct position *at, size_t n)
{
    while (n > 0) {
        size_t left = piece_at(batch, at).iov_len, step = n < left ? n : left;
        if (large_at(batch, at) == NULL) {
            at->text += step;
        } else if (step < left) {
            at->large += step;
        } else {
            at->n_large++;
            at->large = 0;
        }
        n -= step;
    }
}

/* Without TLS several pieces together: each by itself would wake the server. */
static int send_some(struct exchange *x, hearth_error *error)
{
    struct connection *to = x->connection;
    struct iovec pieces[PIECES_AT_ONCE];
    struct msghdr message = {.msg_iov = pieces};
    struct position at = x->sent;
    do {
        pieces[message.msg_iovlen] = piece_at(x->batch, &at);
        advance(x->batch, &at, pieces[message.msg_iovlen].iov_len);
    } while (pieces[message.msg_iovlen].iov_len > 0 && ++message.msg_iovlen < PIECES_AT_ONCE);
    ssize_t n = to->tls != NULL ? redis_tls_send(to->tls, pieces[0].iov_base, pieces[0].iov_len)
                                : os_send_message(to->fd, &message);
    if (n < 0 && errno != EAGAIN && errno != EINTR) return fail_io(error, io_reason(to));
    if (n <= 0) return 0;
    advance(x->batch, &x->sent, (size_t)n);
    x->progress_at = clock_now(clock_monotonic());
    return 0;
}

static int receive_some(struct exchange *x, hearth_error *error)
{
    struct connection *from = x->connection;
    int result = 0;
    do {
        size_t size;
        char *room = redis_replies_room(&x->replies, &size);
        ssize_t n = from->tls != NULL ? redis_tls_receive(from->tls, room, size) : recv(from->fd, room, size, 0);
        if (n == 0) return fail_io(error, "it closed the connection");
        if (n < 0 && errno != EAGAIN && errno != EINTR) return fail_io(error, io_reason(from));
        if (n < 0) continue;
        x->progress_at = clock_now(clock_monotonic());
        result = redis_replies_take(&x->replies, (size_t)n, error);
    } while (result == 0 && from->tls != NULL && redis_tls_has_more(from->tls));
    return result;
}

/* Waits for one of the events. Milliseconds are rounded up, so that no wait ends just before its time. */
static int wait_for(int fd, short events, int64_t until, short *happened, hearth_error *error)
{
    int64_t left = until - clock_now(clock_monotonic());
    if (left <= 0) return fail_io(error, "it does not answer");
    struct pollfd polled = {.fd = fd, .events = events};
    int n = poll(&polled, 1, left > 3600000000000 ? 3600000 : (int)((left + 999999) / 1000000));
    if (n < 0 && errno != EINTR) return fail_io(error, strerror(errno));
    *happened = n > 0 ? polled.revents : 0;
    return 0;
}

static int run_on(struct connection *connection, struct redis_batch *batch, int64_t timeout, int64_t deadline,
                  hearth_error *error)
{
    struct exchange x = {.connection = connection, .batch = batch, .progress_at = clock_now(clock_monotonic())};
    int result = redis_replies_begin(&x.replies, connection->reader, batch, error);
    if (result != 0) return result;
    while (result == 0) {
        bool sends = piece_at(batch, &x.sent).iov_len > 0;
        /* A server may answer what it has not been sent whole. */
        if (batch->n_replies == batch->n_commands && (batch->n_commands == 0 || !sends)) break;
        int64_t stalls_at = x.progress_at + timeout;
        short happened = 0;
        result = wait_for(connection->fd, (short)(POLLIN | (sends ? POLLOUT : 0)),
                          stalls_at < deadline ? stalls_at : deadline, &happened, error);
        /* Its own words come first: they may say why it closes the connection. */
        if (result == 0 && (happened & ~POLLOUT)) result = receive_some(&x, error);
        if (result == 0 && (happened & POLLOUT)) result = send_some(&x, error);
    }
    redis_replies_end(&x.replies);
    return result;
}

/* ---- Connections ---- */

static void connection_close(struct connection *connection)
{
    if (connection == NULL) return;
    redis_tls_close(connection->tls);
    close(connection->fd);
    redisReaderFree(connection->reader);
    free(connection);
}

static void close_list(struct connection *first)
{
    for (struct connection *next; first != NULL; first = next) {
        next = first->next;
        connection_close(first);
    }
}

static int open_socket(const struct sockaddr_storage *address, socklen_t size, int64_t until, int *fd,
                       hearth_error *error)
{
    int on = 1, fault = 0, result = 0;
    *fd = os_socket_nonblocking(address->ss_family, SOCK_STREAM, 0);
    if (*fd < 0) return fail_io(error, strerror(errno));
    if (address->ss_family != AF_UNIX) setsockopt(*fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(*fd, (const struct sockaddr *)address, size) != 0) fault = errno;
    if (fault == EINPROGRESS) {
        short happened = 0;
        socklen_t fault_size = sizeof fault;
        fault = 0;
        while (result == 0 && happened == 0) result = wait_for(*fd, POLLOUT, until, &happened, error);
        if (result == 0) getsockopt(*fd, SOL_SOCKET, SO_ERROR, &fault, &fault_size);
    }
    if (fault != 0) result = fail_io(error, strerror(fault));
    if (result != 0) close(*fd);
    return result;
}

static void add_words(struct redis_batch *batch, const char *const *words, size_t n)
{
    struct redis_argument arguments[3];
    for (size_t i = 0; i < n; i++) arguments[i] = (struct redis_argument){words[i], strlen(words[i])};
    redis_add(batch, arguments, n);
}

/* AUTH, SELECT and PING, as far as they are needed. A refusal says why: a wrong password, a server that loads. */
static int greet(const struct redis *redis, const char *password, struct connection *connection, int64_t until,
                 hearth_error *error)
{
    struct redis_batch batch = {0};
    char database[16];
    snprintf(database, sizeof database, "%d", redis->params.address.database);
    if (password != NULL && redis->user != NULL)
        add_words(&batch, (const char *const[]){"AUTH", redis->user, password}, 3);
    else if (password != NULL)
        add_words(&batch, (const char *const[]){"AUTH", password}, 2);
    if (redis->params.address.database > 0) add_words(&batch, (const char *const[]){"SELECT", database}, 2);
    add_words(&batch, (const char *const[]){"PING"}, 1);
    int result = run_on(connection, &batch, redis->params.timeout_ns, until, error);
    const char *refusal = result == 0 ? redis_refusal(&batch) : NULL;
    if (refusal != NULL) result = error_set(error, HEARTH_UNAVAILABLE, "the server refuses to serve: %s", refusal);
    redis_batch_release(&batch);
    return result;
}

/* Where connections lead, and how. */
struct endpoint {
    struct sockaddr_storage socket;
    socklen_t size;
    char *password;
    struct redis_tls_context *tls;
    uint32_t epoch;
};

static void endpoint_release(struct endpoint *endpoint)
{
    free(endpoint->password);
    redis_tls_context_unref(endpoint->tls);
}

static int begin_tls(struct connection *connection, const struct endpoint *to, const char *name, int64_t until,
                     hearth_error *error)
{
    short events = 0, happened;
    connection->tls = redis_tls_open(to->tls, connection->fd, name);
    int result;
    while ((result = redis_tls_shake_hands(connection->tls, &events, error)) == HEARTH_BUSY) {
        result = wait_for(connection->fd, events, until, &happened, error);
        if (result != 0) break;
    }
    return result;
}

static int connection_open(const struct redis *redis, const struct endpoint *to, int64_t deadline,
                           struct connection **connection, hearth_error *error)
{
    int fd;
    int64_t stalls_at = clock_now(clock_monotonic()) + redis->params.timeout_ns,
            until = stalls_at < deadline ? stalls_at : deadline;
    int result = open_socket(&to->socket, to->size, until, &fd, error);
    if (result != 0) return result;
    struct connection *opened = mem_alloc(sizeof *opened);
    *opened = (struct connection){.fd = fd, .epoch = to->epoch, .reader = redis_reader_open()};
    if (opened->reader == NULL) result = error_set(error, HEARTH_NO_MEMORY, "no memory for a connection");
    if (result == 0 && to->tls != NULL) result = begin_tls(opened, to, redis->params.address.name, until, error);
    if (result == 0) result = greet(redis, to->password, opened, deadline, error);
    if (result != 0) {
        connection_close(opened);
        return result;
    }
    *connection = opened;
    return 0;
}

/* An idle connection; NULL: there is none, and `to` says where a new one leads. */
static struct connection *take_idle(struct redis *redis, struct endpoint *to)
{
    struct connection *closed = NULL, *found = NULL;
    pthread_mutex_lock(&redis->mutex);
    while (found == NULL && redis->idle != NULL) {
        struct connection *first = redis->idle;
        redis->idle = first->next;
        redis->n_idle--;
        /* A connection that the server has closed meanwhile can be read: nothing was asked on it. */
        struct pollfd polled = {.fd = first->fd, .events = POLLIN};
        if (first->epoch == redis->epoch && poll(&polled, 1, 0) == 0) {
            found = first;
        } else {
            first->next = closed;
            closed = first;
        }
    }
    *to = (struct endpoint){.socket = redis->socket, .size = redis->socket_size, .epoch = redis->epoch};
    if (found == NULL) to->password = mem_strdup(redis->password);
    if (found == NULL) to->tls = redis_tls_context_ref(redis->tls);
    pthread_mutex_unlock(&redis->mutex);
    close_list(closed);
    return found;
}

static void give_back(struct redis *redis, struct connection *connection)
{
    pthread_mutex_lock(&redis->mutex);
    bool keep = connection->epoch == redis->epoch && redis->n_idle < redis->params.most_idle;
    if (keep) {
        connection->next = redis->idle;
        redis->idle = connection;
        redis->n_idle++;
    }
    pthread_mutex_unlock(&redis->mutex);
    if (!keep) connection_close(connection);
}

int redis_run(struct redis *redis, struct redis_batch *batch, int64_t deadline, hearth_error *error)
{
    assert(batch->replies == NULL && batch->n_replies == 0);
    struct endpoint to;
    int result = 0;
    struct connection *connection = take_idle(redis, &to);
    if (connection == NULL && to.size == 0) result = fail_io(error, "it was not reached yet");
    if (connection == NULL && result == 0) result = connection_open(redis, &to, deadline, &connection, error);
    endpoint_release(&to);
    if (result != 0) return result;
    result = run_on(connection, batch, redis->params.timeout_ns, deadline, error);
    if (result == 0)
        give_back(redis, connection);
    else
        connection_close(connection);
    return result;
}

/* ---- Connecting ---- */

/* The first line of the file, without its end. */
static int read_password(const char *path, char **password, hearth_error *error)
{
    char line[1024];
    FILE *file = fopen(path, "re");
    if (file == NULL) return error_set(error, HEARTH_IO, "cannot read %s: %s", path, strerror(errno));
    bool any = fgets(line, sizeof line, file) != NULL;
    fclose(file);
    line[any ? strcspn(line, "\r\n") : 0] = '\0';
    if (line[0] == '\0') return error_set(error, HEARTH_IO, "%s has no password in its first line", path);
    *password = mem_strdup(line);
    return 0;
}

/* Tries the addresses of the name in turn. */
static int connect_to_name(const struct redis *redis, struct endpoint *to, struct connection **connection,
                           hearth_error *error)
{
    const struct redis_address *address = &redis->params.address;
    char port[8];
    struct addrinfo *found, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    snprintf(port, sizeof port, "%u", address->port);
    int fault = getaddrinfo(address->name, port, &hints, &found);
    if (fault != 0) return error_set(error, HEARTH_IO, "cannot resolve %s: %s", address->name, gai_strerror(fault));
    int result = HEARTH_IO;
    bool tried = false;
    for (const struct addrinfo *at = found; at != NULL && result != 0; at = at->ai_next) {
        struct host host;
        bool local = host_of_socket(at->ai_addr, &host) && !host_is_unspecified(&host) && host_is_loopback(&host);
        if (redis->params.only_local && !local) continue;
        tried = true;
        memcpy(&to->socket, at->ai_addr, at->ai_addrlen);
        to->size = at->ai_addrlen;
        result = connection_open(redis, to, CLOCK_NEVER, connection, error);
    }
    freeaddrinfo(found);
    if (!tried) return error_set(error, HEARTH_IO, "%s is no address of this machine", address->name);
    return result;
}

static int connect_anew(struct redis *redis, struct endpoint *to, struct connection **connection, hearth_error *error)
{
    const struct redis_address *address = &redis->params.address;
    int result = redis->password_file == NULL ? 0 : read_password(redis->password_file, &to->password, error);
    if (result != 0) return result;
    const struct redis_tls_files files = {redis->ca_file, redis->certificate_file, redis->certificate_key_file};
    if (address->tls && (to->tls = redis_tls_context_open(&files, error)) == NULL) return HEARTH_IO;
    if (address->path[0] == '\0') return connect_to_name(redis, to, connection, error);
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    snprintf(local.sun_path, sizeof local.sun_path, "%s", address->path);
    memcpy(&to->socket, &local, sizeof local);
    to->size = sizeof local;
    return connection_open(redis, to, CLOCK_NEVER, connection, error);
}

int redis_connect(struct redis *redis, hearth_error *error)
{
    struct endpoint to = {0};
    struct connection *connection = NULL;
    pthread_mutex_lock(&redis->mutex);
    to.epoch = redis->epoch + 1;
    pthread_mutex_unlock(&redis->mutex);
    if (connect_anew(redis, &to, &connection, error) != 0) {
        endpoint_release(&to);
        return HEARTH_IO;
    }
    pthread_mutex_lock(&redis->mutex);
    struct connection *former = redis->idle;
    struct endpoint was = {.password = redis->password, .tls = redis->tls};
    redis->socket = to.socket;
    redis->socket_size = to.size;
    redis->password = to.password;
    redis->tls = to.tls;
    redis->epoch = to.epoch;
    redis->idle = connection;
    redis->n_idle = 1;
    pthread_mutex_unlock(&redis->mutex);
    close_list(former);
    endpoint_release(&was);
    return 0;
}

/* ---- Life ---- */

struct redis *redis_open(const struct redis_params *params)
{
    assert(params->timeout_ns > 0);
    assert(params->address.name[0] != '\0' || params->address.path[0] != '\0');
    struct redis *redis = mem_alloc(sizeof *redis);
    redis->params = *params;
    if (params->most_idle == 0) redis->params.most_idle = MOST_IDLE;
    redis->params.user = redis->user = mem_strdup(params->user);
    redis->params.password_file = redis->password_file = mem_strdup(params->password_file);
    redis->params.ca_file = redis->ca_file = mem_strdup(params->ca_file);
    redis->params.certificate_file = redis->certificate_file = mem_strdup(params->certificate_file);
    redis->params.certificate_key_file = redis->certificate_key_file = mem_strdup(params->certificate_key_file);
    pthread_mutex_init(&redis->mutex, NULL);
    return redis;
}

struct redis *redis_open_beside(const struct redis *redis, const struct redis_address *address)
{
    struct redis_params params = redis->params;
    params.address = *address;
    params.most_idle = MOST_IDLE_BESIDE;
    return redis_open(&params);
}

const struct redis_address *redis_address(const struct redis *redis)
{
    return &redis->params.address;
}

void redis_close(struct redis *redis)
{
    close_list(redis->idle);
    pthread_mutex_destroy(&redis->mutex);
    redis_tls_context_unref(redis->tls);
    free(redis->password);
    free(redis->password_file);
    free(redis->ca_file);
    free(redis->certificate_file);
    free(redis->certificate_key_file);
    free(redis->user);
    free(redis);
}
