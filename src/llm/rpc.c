/* Devices of RPC servers: see rpc.h. llama.cpp keeps what it learns of a server for the life of the process. It has one
 * connection to a server, which all models share and which ends with the last of them. A server serves one connection
 * at a time: while models use it nobody could greet it, so they are counted here, under a mutex. */
#include "llm/rpc.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/little.h"
#include "base/memory.h"
#include "base/os.h"
#include "llm/backends.h"
#include "llm/placement.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <ggml-rpc.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PATIENCE_NS (INT64_C(5) * 1000000000)

/* Bytes of the protocol's first message and of its answer. Each has the capabilities of its sender; in the answer the
 * server's version comes before them. */
enum { HELLO = 14, CAPABILITIES = 24, REQUEST = 1 + 8 + CAPABILITIES, ANSWER = 8 + 4 + CAPABILITIES };

static int refuse(const char *endpoint, const char *reason, hearth_error *error)
{
    return error_at(error, HEARTH_UNAVAILABLE, "rpc",
                    "rpc: %s %s: start llama.cpp's ggml-rpc-server there, of version 0.5.0 as hearth's", endpoint,
                    reason);
}

/* ---- Asking a server ---- */

/* False: not before the deadline. */
static bool await(int fd, short events, int64_t deadline)
{
    for (;;) {
        int64_t left = deadline - clock_now(clock_monotonic());
        struct pollfd one = {.fd = fd, .events = events};
        if (left <= 0) return false;
        int n = poll(&one, 1, (int)(left / 1000000) + 1);
        if (n != 0 && !(n < 0 && errno == EINTR)) return n > 0;
    }
}

/* -1: there is no server. */
static int connect_to(const char *host, const char *port, int64_t deadline)
{
    const struct addrinfo wanted = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}; /* llama.cpp's takes no other */
    struct addrinfo *found = NULL;
    if (getaddrinfo(host, port, &wanted, &found) != 0) return -1;
    int fd = os_socket_nonblocking(found->ai_family, SOCK_STREAM, 0), fault = 0;
    socklen_t len = sizeof fault;
    bool connected = fd >= 0 && (connect(fd, found->ai_addr, found->ai_addrlen) == 0 ||
                                 (errno == EINPROGRESS && await(fd, POLLOUT, deadline) &&
                                  getsockopt(fd, SOL_SOCKET, SO_ERROR, &fault, &len) == 0 && fault == 0));
    if (fd >= 0 && !connected) {
        close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

static bool receive(int fd, uint8_t *bytes, size_t n, int64_t deadline)
{
    while (n > 0 && await(fd, POLLIN, deadline)) {
        ssize_t got = recv(fd, bytes, n, 0);
        if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) return false;
        bytes += got > 0 ? got : 0;
        n -= got > 0 ? (size_t)got : 0;
    }
    return n == 0;
}

static int greet(int fd, const char *endpoint, int64_t deadline, hearth_error *error)
{
    uint8_t request[REQUEST] = {HELLO}, answer[ANSWER];
    little_put(request + 1, CAPABILITIES, 8);
    bool answered = os_send(fd, request, sizeof request) == (ssize_t)sizeof request &&
                    receive(fd, answer, sizeof answer, deadline) && little_get(answer, 8) == ANSWER - 8;
    if (!answered) return refuse(endpoint, "does not answer as an RPC server", error);
    const uint8_t *version = answer + 8;
    if (version[0] == RPC_PROTO_MAJOR_VERSION && version[1] <= RPC_PROTO_MINOR_VERSION) return HEARTH_OK;
    char reason[80];
    snprintf(reason, sizeof reason, "speaks version %u.%u of the protocol, hearth %d.%d", version[0], version[1],
             RPC_PROTO_MAJOR_VERSION, RPC_PROTO_MINOR_VERSION);
    return refuse(endpoint, reason, error);
}

static int check(const char *endpoint, hearth_error *error)
{
    const char *colon = strrchr(endpoint, ':');
    if (colon == NULL || colon == endpoint || colon[1] == '\0')
        return error_at(error, HEARTH_INVALID, "rpc", "rpc: '%s' is not host:port", endpoint);
    int64_t deadline = clock_now(clock_monotonic()) + PATIENCE_NS;
    char *host = mem_strndup(endpoint, (size_t)(colon - endpoint));
    int fd = connect_to(host, colon + 1, deadline);
    free(host);
    if (fd < 0) return refuse(endpoint, "cannot be reached", error);
    int rc = greet(fd, endpoint, deadline, error);
    /* An answer to a connection that has ended kills llama.cpp's server (SIGPIPE), however late it comes to it; one
     * that is reset it drops before it answers. */
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    if (rc != HEARTH_OK) setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd);
    return rc;
}

/* ---- Servers in use ---- */

struct server {
    char *endpoint;
    ggml_backend_reg_t devices;
    size_t users; /* models of this process */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct server servers[GGML_RPC_MAX_SERVERS];
static size_t n_servers;

static struct server *find_server(const char *endpoint)
{
    for (size_t i = 0; i < n_servers; i++)
        if (strcmp(servers[i].endpoint, endpoint) == 0) return &servers[i];
    return NULL;
}

/* The caller holds the mutex, even while a server is greeted: a second one must find its connection made, or the server
 * free. */
static int use_server(const char *endpoint, hearth_error *error)
{
    struct server *server = find_server(endpoint);
    if ((server == NULL || server->users == 0) && check(endpoint, error) != HEARTH_OK) return (int)error->code;
    if (server == NULL && n_servers == GGML_RPC_MAX_SERVERS)
        return error_at(error, HEARTH_INVALID, "rpc", "rpc: %s is one too many: a process uses at most %d servers",
                        endpoint, GGML_RPC_MAX_SERVERS);
    if (server == NULL) {
        server = &servers[n_servers++];
        *server = (struct server){.endpoint = mem_strdup(endpoint)};
    }
    ggml_backend_reg_t (*add_server)(const char *);
    if (!llm_find_function("RPC", "ggml_backend_rpc_add_server", &add_server))
        return error_at(error, HEARTH_UNSUPPORTED, "rpc",
                        "rpc: llama.cpp's backend for RPC servers is not there: "
                        "`hearth version` says what was found");
    if (server->devices == NULL) server->devices = add_server(endpoint);
    if (server->devices == NULL) return refuse(endpoint, "has no devices", error);
    server->users++;
    return HEARTH_OK;
}

void llm_rpc_close(const char *const *endpoints, size_t n)
{
    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < n; i++) {
        struct server *server = find_server(endpoints[i]);
        assert(server != NULL && server->users > 0);
        server->users--;
    }
    pthread_mutex_unlock(&mutex);
}

int llm_rpc_open(const char *const *endpoints, size_t n, hearth_error *error)
{
    size_t used = 0;
    pthread_mutex_lock(&mutex);
    while (used < n && use_server(endpoints[used], error) == HEARTH_OK) used++;
    pthread_mutex_unlock(&mutex);
    if (used == n) return HEARTH_OK;
    llm_rpc_close(endpoints, used);
    return (int)error->code;
}

/* ---- Devices ---- */

struct devices {
    ggml_backend_dev_t *v;
    size_t n;
};

static void add(struct devices *devices, ggml_backend_dev_t device)
{
    devices->v = mem_grow(devices->v, devices->n + 2, sizeof(ggml_backend_dev_t));
    devices->v[devices->n++] = device;
    devices->v[devices->n] = NULL;
}

static bool has_card(const struct devices *devices, ggml_backend_dev_t device)
{
    for (size_t i = 0; i < devices->n; i++)
        if (llm_is_same_card(devices->v[i], device)) return true;
    return false;
}

/* The cards of the machine; where it has none, the processors with graphics, of one backend. */
static void add_own(struct devices *devices)
{
    size_t before = devices->n, n = ggml_backend_dev_count();
    for (size_t i = 0; i < n; i++) {
        ggml_backend_dev_t device = ggml_backend_dev_get(i);
        if (ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_GPU && !has_card(devices, device))
            add(devices, device);
    }
    ggml_backend_reg_t first = NULL;
    for (size_t i = 0; i < n && (devices->n == before || first != NULL); i++) {
        ggml_backend_dev_t device = ggml_backend_dev_get(i);
        if (ggml_backend_dev_type(device) != GGML_BACKEND_DEVICE_TYPE_IGPU) continue;
        if (first == NULL) first = ggml_backend_dev_backend_reg(device);
        if (ggml_backend_dev_backend_reg(device) == first) add(devices, device);
    }
}

ggml_backend_dev_t *llm_rpc_devices(const char *const *endpoints, size_t n)
{
    struct devices devices = {.v = mem_alloc(sizeof(ggml_backend_dev_t))};
    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < n; i++) {
        ggml_backend_reg_t server = find_server(endpoints[i])->devices;
        for (size_t k = 0; k < ggml_backend_reg_dev_count(server); k++)
            add(&devices, ggml_backend_reg_dev_get(server, k));
    }
    pthread_mutex_unlock(&mutex);
    add_own(&devices);
    return devices.v;
}
