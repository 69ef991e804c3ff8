/* A blocking HTTP client for the tests of the server: one connection, one thread. */
#ifndef UNIT_SERVE_HTTP_CLIENT_H
#define UNIT_SERVE_HTTP_CLIENT_H

#include "base/buf.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

struct client {
    int fd;
    struct buf in; /* received, not consumed */
};

struct response {
    int status;
    struct buf head, body;
};

/* `receive_bytes`: size of the socket's receive buffer, small for a slow reader; 0: the system's. */
static inline struct client client_open(int port, int receive_bytes)
{
    struct client client = {.fd = socket(AF_INET, SOCK_STREAM, 0)};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct timeval patience = {.tv_sec = 30};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (receive_bytes > 0) setsockopt(client.fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    setsockopt(client.fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    assert_int_equal(connect(client.fd, (struct sockaddr *)&address, sizeof address), 0);
    return client;
}

static inline void client_close(struct client *client)
{
    close(client->fd);
    buf_release(&client->in);
}

/* Sends raw bytes. */
static inline void client_say(struct client *client, const char *text)
{
    size_t len = strlen(text);
    assert_int_equal(send(client->fd, text, len, MSG_NOSIGNAL), len);
}

/* `headers`: lines with their line ends, or "". `body`: NULL for none. */
static inline void client_send(struct client *client, const char *method, const char *path, const char *headers,
                               const char *body)
{
    struct buf out = {0};
    buf_printf(&out, "%s %s HTTP/1.1\r\nHost: localhost\r\n%s", method, path, headers);
    if (body != NULL) buf_printf(&out, "Content-Type: application/json\r\nContent-Length: %zu\r\n", strlen(body));
    buf_printf(&out, "\r\n%s", body != NULL ? body : "");
    client_say(client, out.v);
    buf_release(&out);
}

/* Receives more; false at the end of the connection. */
static inline bool client_receive(struct client *client)
{
    char bytes[4096];
    ssize_t n;
    do n = recv(client->fd, bytes, sizeof bytes, 0);
    while (n < 0 && errno == EINTR); /* a fuzzer's alarm */
    if (n <= 0) return false;
    buf_append(&client->in, bytes, (size_t)n);
    return true;
}

/* Waits until `text` has been received; consumes nothing. */
static inline void client_await(struct client *client, const char *text)
{
    while (client->in.v == NULL || memmem(client->in.v, client->in.len, text, strlen(text)) == NULL)
        if (!client_receive(client)) fail_msg("the connection ended before '%s' came: %s", text, client->in.v);
}

static inline void move(struct client *client, size_t len, struct buf *to)
{
    while (client->in.len < len)
        if (!client_receive(client)) fail_msg("the connection ended within an answer");
    if (to != NULL) buf_append(to, client->in.v, len);
    buf_drop_front(&client->in, len);
}

static inline const char *response_header(const struct response *response, const char *name)
{
    static char value[512];
    size_t len = strlen(name);
    for (const char *line = strstr(response->head.v, "\r\n"); line != NULL; line = strstr(line + 2, "\r\n")) {
        if (strncasecmp(line + 2, name, len) != 0 || line[2 + len] != ':') continue;
        const char *start = line + 3 + len + strspn(line + 3 + len, " ");
        snprintf(value, sizeof value, "%.*s", (int)strcspn(start, "\r"), start);
        return value;
    }
    return NULL;
}

static inline void read_chunks(struct client *client, struct response *response)
{
    for (;;) {
        while (client->in.len == 0 || strstr(client->in.v, "\r\n") == NULL)
            if (!client_receive(client)) fail_msg("the connection ended between chunks");
        size_t size = strtoul(client->in.v, NULL, 16);
        buf_drop_front(&client->in, (size_t)(strstr(client->in.v, "\r\n") - client->in.v) + 2);
        move(client, size, &response->body);
        move(client, 2, NULL);
        if (size == 0) return;
    }
}

/* Reads one whole answer. */
static inline struct response client_read(struct client *client, bool has_body)
{
    struct response response = {0};
    client_await(client, "\r\n\r\n");
    move(client, (size_t)(strstr(client->in.v, "\r\n\r\n") - client->in.v) + 4, &response.head);
    response.status = (int)strtol(response.head.v + strlen("HTTP/1.1 "), NULL, 10);
    const char *length = response_header(&response, "Content-Length");
    if (!has_body) return response;
    if (length != NULL)
        move(client, strtoul(length, NULL, 10), &response.body);
    else if (response_header(&response, "Transfer-Encoding") != NULL)
        read_chunks(client, &response);
    if (response.body.v == NULL) buf_puts(&response.body, "");
    return response;
}

static inline void response_release(struct response *response)
{
    buf_release(&response->head);
    buf_release(&response->body);
}

#endif
