/* The client of redis.h. Connections that no call uses wait in a list; a call takes one or makes one. A connection on
 * which anything went wrong is closed, since a late answer would be taken for that of the next command. */
#include "store/redis.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "store/redis_tls.h"

#include <errno.h>
#include <fcntl.h>
#include <hiredis/read.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

enum { MOST_IDLE = 8, MOST_IDLE_BESIDE = 2, READ_BYTES = 256 << 10 };

/* Bytes of one reply: a part and its ends. A server that sends more is not what it says. */
#define MOST_REPLY_BYTES ((size_t)8 << 20)

/* Of a refusal, whatever was asked for, and of what stands around a reply. */
#define MOST_MESSAGE_BYTES 1024

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

/* ---- Replies, as hiredis makes them ---- */

static void *make_reply(enum redis_kind kind, int64_t integer, const char *bytes, size_t size)
{
    struct redis_reply *reply = mem_alloc(sizeof *reply);
    *reply = (struct redis_reply){.kind = kind, .integer = integer, .size = size};
    if (bytes == NULL) return reply;
    reply->bytes = malloc(size + 1);
    if (reply->bytes == NULL) {
        free(reply);
        return NULL;
    }
    memcpy(reply->bytes, bytes, size);
    reply->bytes[size] = '\0';
    return reply;
}

static void *make_string(const redisReadTask *task, char *bytes, size_t size)
{
    return make_reply(task->type == REDIS_REPLY_ERROR ? REDIS_REFUSED : REDIS_BYTES, 0, bytes, size);
}

/* No command that is sent here is answered by a list, and hiredis 0.14 would allocate whatever number of elements a
 * server names. */
static void *refuse_list(const redisReadTask *task, int elements)
{
    (void)task;
    (void)elements;
    return NULL;
}

static void *make_integer(const redisReadTask *task, long long value)
{
    (void)task;
    return make_reply(REDIS_INTEGER, value, NULL, 0);
}

static void *make_nil(const redisReadTask *task)
{
    (void)task;
    return make_reply(REDIS_NIL, 0, NULL, 0);
}

static void free_reply(void *object)
{
    struct redis_reply *reply = object;
    if (reply == NULL) return;
    free(reply->bytes);
    free(reply);
}

static redisReplyObjectFunctions functions = {make_string, refuse_list, make_integer, make_nil, free_reply};

/* ---- One exchange ---- */

struct exchange {
    struct connection *connection;
    struct redis_batch *batch;
    size_t text_sent, n_large_sent; /* so much of the text; so many large arguments whole, */
    size_t large_sent;              /* and so much of the next one */
    int64_t timeout, progress_at, deadline;
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

/* What is to be sent next; 0 bytes: nothing. */
struct to_send {
    const char *bytes;
    size_t size;
    size_t *sent; /* where it is counted */
    bool more;    /* follows at once */
};

static struct to_send next_to_send(struct exchange *x)
{
    const struct redis_batch *batch = x->batch;
    const struct redis_large *large = x->n_large_sent < batch->n_large ? &batch->large[x->n_large_sent] : NULL;
    size_t text_end = large != NULL ? large->text_end : batch->text.len;
    if (x->text_sent < text_end || large == NULL)
        return (struct to_send){.bytes = batch->text.v + x->text_sent,
                                .size = text_end - x->text_sent,
                                .sent = &x->text_sent,
                                .more = large != NULL};
    return (struct to_send){
        .bytes = large->bytes + x->large_sent, .size = large->size - x->large_sent, .sent = &x->large_sent};
}

/* A server may answer what it has not been sent whole. */
static bool is_over(struct exchange *x)
{
    const struct redis_batch *batch = x->batch;
    return batch->n_replies == batch->n_commands && (batch->n_commands == 0 || next_to_send(x).size == 0);
}

static int send_some(struct exchange *x, hearth_error *error)
{
    struct connection *to = x->connection;
    struct to_send next = next_to_send(x);
    ssize_t n = to->tls != NULL ? redis_tls_send(to->tls, next.bytes, next.size)
                                : send(to->fd, next.bytes, next.size, MSG_NOSIGNAL | (next.more ? MSG_MORE : 0));
    if (n < 0 && errno != EAGAIN && errno != EINTR) return fail_io(error, io_reason(to));
    if (n <= 0) return 0;
    *next.sent += (size_t)n;
    x->progress_at = clock_now(clock_monotonic());
    if (next.sent == &x->large_sent && (size_t)n == next.size) {
        x->n_large_sent++;
        x->large_sent = 0;
    }
    return 0;
}

static size_t most_reply(const struct redis_batch *batch)
{
    return batch->most_reply != 0 ? batch->most_reply + MOST_MESSAGE_BYTES : MOST_REPLY_BYTES;
}

static int take_replies(struct exchange *x, hearth_error *error)
{
    redisReader *reader = x->connection->reader;
    size_t most = most_reply(x->batch);
    for (;;) {
        void *object = NULL;
        if (redisReaderGetReply(reader, &object) != REDIS_OK) return fail_io(error, reader->errstr);
        if (object == NULL) break;
        struct redis_reply *reply = object;
        if (x->batch->n_replies == x->batch->n_commands || reply->size > most) {
            bool asked = x->batch->n_replies < x->batch->n_commands;
            free_reply(reply);
            return fail_io(error, asked ? "an answer is too long" : "it answers what it was not asked");
        }
        x->batch->replies[x->batch->n_replies++] = *reply;
        free(reply);
    }
    return reader->len - reader->pos > most ? fail_io(error, "an answer is too long") : 0;
}

static int receive_some(struct exchange *x, char *room, hearth_error *error)
{
    ssize_t n = x->connection->tls != NULL ? redis_tls_receive(x->connection->tls, room, READ_BYTES)
                                           : recv(x->connection->fd, room, READ_BYTES, 0);
    if (n == 0) return fail_io(error, "it closed the connection");
    if (n < 0) return errno == EAGAIN || errno == EINTR ? 0 : fail_io(error, io_reason(x->connection));
    x->progress_at = clock_now(clock_monotonic());
    if (redisReaderFeed(x->connection->reader, room, (size_t)n) != REDIS_OK)
        return fail_io(error, x->connection->reader->errstr);
    return take_replies(x, error);
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

static int exchange_within(struct exchange *x, char *room, hearth_error *error)
{
    int result = 0;
    while (result == 0 && !is_over(x)) {
        bool sends = next_to_send(x).size > 0;
        int64_t stalls_at = x->progress_at + x->timeout;
        short happened = 0;
        result = wait_for(x->connection->fd, (short)(POLLIN | (sends ? POLLOUT : 0)),
                          stalls_at < x->deadline ? stalls_at : x->deadline, &happened, error);
        /* What it has said comes first: why it closes the connection, for one. */
        if (result == 0 && (happened & ~POLLOUT)) result = receive_some(x, room, error);
        if (result == 0 && (happened & POLLOUT)) result = send_some(x, error);
    }
    return result;
}

static int run_on(struct connection *connection, struct redis_batch *batch, int64_t timeout, int64_t deadline,
                  hearth_error *error)
{
    char *room = malloc(READ_BYTES);
    if (room == NULL) return error_set(error, HEARTH_NO_MEMORY, "no memory for an answer");
    struct exchange x = {.connection = connection,
                         .batch = batch,
                         .timeout = timeout,
                         .progress_at = clock_now(clock_monotonic()),
                         .deadline = deadline};
    batch->replies = mem_alloc((batch->n_commands + 1) * sizeof *batch->replies);
    int result = exchange_within(&x, room, error);
    free(room);
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

static int await_connected(int fd, int64_t until, hearth_error *error)
{
    short happened = 0;
    int fault = 0, result = 0;
    socklen_t size = sizeof fault;
    while (result == 0 && happened == 0) result = wait_for(fd, POLLOUT, until, &happened, error);
    if (result != 0) return result;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &fault, &size);
    return fault == 0 ? 0 : fail_io(error, strerror(fault));
}

static int open_socket(const struct sockaddr_storage *address, socklen_t size, int64_t until, int *fd,
                       hearth_error *error)
{
    int on = 1, result = 0;
    *fd = socket(address->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*fd < 0) return fail_io(error, strerror(errno));
    if (address->ss_family != AF_UNIX) setsockopt(*fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(*fd, (const struct sockaddr *)address, size) != 0)
        result = errno == EINPROGRESS ? await_connected(*fd, until, error) : fail_io(error, strerror(errno));
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
    *opened = (struct connection){.fd = fd, .epoch = to->epoch, .reader = redisReaderCreateWithFunctions(&functions)};
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

/* A connection that the server has closed meanwhile can be read: nothing was asked on it. */
static bool is_usable(const struct connection *connection, uint32_t epoch)
{
    struct pollfd polled = {.fd = connection->fd, .events = POLLIN};
    return connection->epoch == epoch && poll(&polled, 1, 0) == 0;
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
        if (is_usable(first, redis->epoch)) {
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

static void unix_endpoint(const char *path, struct endpoint *to)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    memcpy(&to->socket, &address, sizeof address);
    to->size = sizeof address;
}

static bool is_local_socket(const struct sockaddr *address)
{
    struct host host;
    return host_of_socket(address, &host) && !host_is_unspecified(&host) && host_is_loopback(&host);
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
        if (redis->params.only_local && !is_local_socket(at->ai_addr)) continue;
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
    unix_endpoint(address->path, to);
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
    struct redis *redis = mem_alloc(sizeof *redis);
    redis->params = *params;
    if (params->most_idle == 0) redis->params.most_idle = MOST_IDLE;
    redis->user = mem_strdup(params->user);
    redis->password_file = mem_strdup(params->password_file);
    redis->ca_file = mem_strdup(params->ca_file);
    redis->certificate_file = mem_strdup(params->certificate_file);
    redis->certificate_key_file = mem_strdup(params->certificate_key_file);
    pthread_mutex_init(&redis->mutex, NULL);
    return redis;
}

struct redis *redis_open_beside(const struct redis *redis, const struct redis_address *address)
{
    struct redis_params params = redis->params;
    params.address = *address;
    params.most_idle = MOST_IDLE_BESIDE;
    params.user = redis->user;
    params.password_file = redis->password_file;
    params.ca_file = redis->ca_file;
    params.certificate_file = redis->certificate_file;
    params.certificate_key_file = redis->certificate_key_file;
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
