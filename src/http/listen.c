/* Opens listening sockets for addresses such as "host:port", "[v6]:port" and "unix:PATH", or uses those for them that
 * another process opened. Also the TLS of their connections: one OpenSSL context for each certificate, and libevent's
 * bufferevents over it. Event loop's thread only, or before it runs.
 *
 * OpenSSL counts references to a context, so that connections outlive its replacement. Callbacks of a TLS bufferevent
 * are deferred to the loop: OpenSSL may detect a connection's end within any call, while the caller still uses the
 * connection. */
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/os.h"
#include "http/connection.h"

#include <ctype.h>
#include <errno.h>
#include <event2/bufferevent_ssl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 1024 };

static int listen_failed(hearth_error *error, const char *address, int number)
{
    const char *reason = os_error_text(number);
    return error_at(error, HEARTH_IO, address, "cannot listen on %s: %c%s", address, tolower((unsigned char)*reason),
                    *reason == '\0' ? "" : reason + 1);
}

static int listen_refused(hearth_error *error, const char *address, const char *reason)
{
    return error_at(error, HEARTH_INVALID, address, "cannot listen on %s: %s", address, reason);
}

static void add_listener(struct http_server *server, int fd, const char *unix_path)
{
    struct http_listener *listener = mem_alloc(sizeof *listener);
    unsigned flags = LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC;
    if (server->holds_accepts) flags |= LEV_OPT_DISABLED;
    listener->listener = evconnlistener_new(server->base, server_accept, server, flags, 0, fd);
    evconnlistener_set_error_cb(listener->listener, server_accept_error);
    struct stat file;
    if (unix_path != NULL && stat(unix_path, &file) == 0) {
        listener->unix_path = mem_strdup(unix_path);
        listener->node = file.st_ino;
    }
    listener->next = server->listeners;
    server->listeners = listener;
}

/* ---- Sockets of other processes ---- */

union socket_address socket_address(int fd)
{
    union socket_address address = {.path = {0}};
    socklen_t len = sizeof address;
    if (getsockname(fd, &address.any, &len) != 0) address = (union socket_address){.path = {0}};
    return address;
}

static bool same_address(const union socket_address *a, const union socket_address *b)
{
    if (a->any.sa_family != b->any.sa_family) return false;
    switch (a->any.sa_family) {
    case AF_INET:
        return a->v4.sin_port == b->v4.sin_port && a->v4.sin_addr.s_addr == b->v4.sin_addr.s_addr;
    case AF_INET6:
        return a->v6.sin6_port == b->v6.sin6_port && IN6_ARE_ADDR_EQUAL(&a->v6.sin6_addr, &b->v6.sin6_addr);
    case AF_UNIX:
        return strcmp(a->path.sun_path, b->path.sun_path) == 0;
    default:
        return false;
    }
}

void http_adopt(struct http_server *server, int fd, bool lent)
{
    struct http_adopted *adopted = mem_alloc(sizeof *adopted);
    evutil_make_socket_nonblocking(fd);
    evutil_make_socket_closeonexec(fd);
    *adopted = (struct http_adopted){.next = server->adopted, .fd = fd, .lent = lent};
    server->adopted = adopted;
}

/* The adopted socket of the address; -1: there is none. One that was lent is chosen before others. */
static int take_adopted(struct http_server *server, const union socket_address *address, bool *lent)
{
    struct http_adopted **found = NULL;
    for (struct http_adopted **at = &server->adopted; *at != NULL; at = &(*at)->next) {
        union socket_address bound = socket_address((*at)->fd);
        if (same_address(&bound, address) && (found == NULL || (*at)->lent)) found = at;
    }
    if (found == NULL) return -1;
    struct http_adopted *taken = *found;
    int fd = taken->fd;
    *lent = taken->lent;
    *found = taken->next;
    free(taken);
    return fd;
}

static char *address_text(int fd)
{
    union socket_address bound = socket_address(fd);
    char host[64], port[16];
    if (bound.any.sa_family == AF_UNIX) return mem_format("unix:%s", bound.path.sun_path);
    int rc =
        getnameinfo(&bound.any, sizeof bound, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
    if (rc != 0) return mem_strdup("an unknown address");
    return mem_format(bound.any.sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

char *http_close_unused(struct http_server *server)
{
    char *lent = NULL;
    while (server->adopted != NULL) {
        struct http_adopted *adopted = server->adopted;
        server->adopted = adopted->next;
        if (adopted->lent && lent == NULL) lent = address_text(adopted->fd);
        close(adopted->fd);
        free(adopted);
    }
    return lent;
}

size_t http_sockets(const struct http_server *server, int *fds, size_t most)
{
    size_t n = 0;
    for (const struct http_listener *l = server->listeners; l != NULL; l = l->next, n++)
        if (n < most) fds[n] = evconnlistener_get_fd(l->listener);
    return n;
}

void http_keep_socket_files(struct http_server *server, bool keep)
{
    server->keeps_files = keep;
}

void http_stop_listening(struct http_server *server)
{
    while (server->listeners != NULL) {
        struct http_listener *listener = server->listeners;
        server->listeners = listener->next;
        struct stat file;
        if (!server->keeps_files && listener->unix_path != NULL && stat(listener->unix_path, &file) == 0 &&
            file.st_ino == listener->node)
            unlink(listener->unix_path);
        evconnlistener_free(listener->listener);
        free(listener->unix_path);
        free(listener);
    }
}

/* ---- host:port ---- */

/* A socket that listens, or a negated errno. */
static int open_tcp(const struct addrinfo *info)
{
    int fd = os_socket_nonblocking(info->ai_family, info->ai_socktype, info->ai_protocol);
    if (fd < 0) return -errno;
    int one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    /* so that 0.0.0.0 and [::] can both be listened on */
    if (info->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    if (bind(fd, info->ai_addr, info->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) return fd;
    int number = errno;
    close(fd);
    return -number;
}

static in_port_t *port_of(struct sockaddr *address)
{
    if (address->sa_family == AF_INET6) return &((struct sockaddr_in6 *)address)->sin6_port;
    return &((struct sockaddr_in *)address)->sin_port;
}

void http_each_address(const struct http_server *server, void (*visit)(void *ud, const struct sockaddr *address),
                       void *ud)
{
    for (const struct http_listener *l = server->listeners; l != NULL; l = l->next) {
        union socket_address address = socket_address(evconnlistener_get_fd(l->listener));
        if (address.any.sa_family != AF_UNIX) visit(ud, &address.any);
    }
}

/* Splits "host:port" or "[v6]:port" at its last colon; `host` is cut off in place and returned without brackets. */
static char *split_port(char *text, const char **port)
{
    char *colon = strrchr(text, ':');
    if (colon == NULL || colon == text) return NULL;
    *colon = '\0';
    *port = colon + 1;
    char *end;
    unsigned long number = strtoul(*port, &end, 10);
    if (!isdigit((unsigned char)**port) || *end != '\0' || number > 65535) return NULL;
    if (text[0] != '[') return strchr(text, ':') == NULL ? text : NULL;
    if (colon[-1] != ']') return NULL;
    colon[-1] = '\0';
    return text + 1;
}

/* Listens on all addresses of a name, such as localhost's two, with one port; address families that this machine
 * lacks are skipped as long as one is left. */
static int listen_all(struct http_server *server, const char *address, struct addrinfo *infos, in_port_t *port,
                      hearth_error *error)
{
    int last = EADDRNOTAVAIL;
    bool any = false;
    for (struct addrinfo *info = infos; info != NULL; info = info->ai_next) {
        if (any) *port_of(info->ai_addr) = *port;
        bool lent;
        union socket_address wanted = {.path = {0}};
        memcpy(&wanted, info->ai_addr, info->ai_addrlen);
        int fd = take_adopted(server, &wanted, &lent);
        if (fd < 0) fd = open_tcp(info);
        if (fd < 0) {
            last = -fd;
            if (last == EADDRNOTAVAIL || last == EAFNOSUPPORT) continue;
            return listen_failed(error, address, last);
        }
        union socket_address bound = socket_address(fd);
        *port = *port_of(&bound.any);
        any = true;
        add_listener(server, fd, NULL);
    }
    return any ? 0 : listen_failed(error, address, last);
}

/* ---- unix:PATH ---- */

static int unix_socket(void)
{
    return os_socket_nonblocking(AF_UNIX, SOCK_STREAM, 0);
}

/* Removes a stale socket file: one that refuses connections, since its server died. */
static int remove_stale(const struct sockaddr_un *name)
{
    struct stat file;
    if (lstat(name->sun_path, &file) != 0) return errno == ENOENT ? 0 : errno;
    if (!S_ISSOCK(file.st_mode)) return EEXIST;
    int fd = unix_socket();
    if (fd < 0) return errno;
    int refused = connect(fd, (const struct sockaddr *)name, sizeof *name) != 0 && errno == ECONNREFUSED;
    close(fd);
    if (!refused) return EADDRINUSE;
    return unlink(name->sun_path) == 0 ? 0 : errno;
}

int http_unix_socket(const char *path, const struct http_socket_access *access)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    if (*path == '\0' || strlen(path) >= sizeof name.sun_path) return -ENAMETOOLONG;
    memcpy(name.sun_path, path, strlen(path) + 1);
    /* Linux gives the file the mode of the socket, so that the permissions are never wider than configured: no client
     * can connect before listen(). */
    int number = remove_stale(&name);
    if (number != 0) return -number;
    int fd = unix_socket();
    if (fd < 0) return -errno;
    bool bound = fchmod(fd, 0600) == 0 && bind(fd, (const struct sockaddr *)&name, sizeof name) == 0;
    bool granted = bound && (access->group == (gid_t)-1 || chown(path, (uid_t)-1, access->group) == 0) &&
                   (access->mode == 0600 || chmod(path, access->mode) == 0);
    if (granted && listen(fd, BACKLOG) == 0) return fd;
    number = errno;
    if (bound) unlink(name.sun_path);
    close(fd);
    return -number;
}

static int listen_unix(struct http_server *server, const char *address, const char *path, char **bound,
                       hearth_error *error)
{
    union socket_address wanted = {.path = {.sun_family = AF_UNIX}};
    bool lent = false;
    snprintf(wanted.path.sun_path, sizeof wanted.path.sun_path, "%s", path);
    int fd = take_adopted(server, &wanted, &lent);
    if (fd < 0) fd = http_unix_socket(path, &server->socket_access);
    if (fd == -ENAMETOOLONG) return listen_refused(error, address, "the path of a socket has 1 to 107 bytes");
    if (fd == -EEXIST) return listen_refused(error, address, "there is a file of this name that is not a socket");
    if (fd < 0) return listen_failed(error, address, -fd);
    add_listener(server, fd, lent ? NULL : path);
    if (bound != NULL) *bound = mem_strdup(address);
    return 0;
}

int http_listen(struct http_server *server, const char *address, char **bound, hearth_error *error)
{
    static const char prefix[] = "unix:";
    size_t len = sizeof prefix - 1;
    if (strncmp(address, prefix, len) == 0) return listen_unix(server, address, address + len, bound, error);
    char *text = mem_strdup(address);
    const char *port = NULL;
    char *host = split_port(text, &port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *infos = NULL;
    int rc;
    if (host == NULL) {
        rc = listen_refused(error, address, "write it as host:port, [v6]:port or unix:PATH");
    } else if ((rc = getaddrinfo(host, port, &hints, &infos)) != 0) {
        rc = listen_refused(error, address, gai_strerror(rc));
    } else {
        in_port_t number = 0;
        rc = listen_all(server, address, infos, &number, error);
        freeaddrinfo(infos);
        if (rc == 0 && bound != NULL) {
            int host_len = (int)(strrchr(address, ':') - address);
            *bound = mem_format("%.*s:%d", host_len, address, ntohs(number));
        }
    }
    free(text);
    return rc;
}

struct http_tls {
    SSL_CTX *context;
};

/* ---- TLS: the context ---- */

/* ALPN: HTTP/1.1 only. A client that offers other protocols only is refused, as RFC 7301 requires. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len, const unsigned char *in,
                           unsigned in_len, void *ud)
{
    (void)ssl, (void)ud;
    static const unsigned char ours[] = "\x08http/1.1";
    for (unsigned at = 0; at < in_len; at += in[at] + 1u) {
        if (in[at] != ours[0] || in_len - at < sizeof ours - 1 || memcmp(in + at, ours, sizeof ours - 1) != 0) continue;
        *out = in + at + 1;
        *out_len = in[at];
        return SSL_TLSEXT_ERR_OK;
    }
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

/* A daemon has no terminal to ask for a passphrase. */
static int no_passphrase(char *out, int size, int writing, void *ud)
{
    (void)out, (void)size, (void)writing, (void)ud;
    return -1;
}

/* Fails with OpenSSL's text for the first error in its queue. */
static int tls_error(hearth_error *error, const char *param, const char *deed, const char *path)
{
    unsigned long first = ERR_peek_error();
    const char *reason =
        ERR_SYSTEM_ERROR(first) ? os_error_text(ERR_GET_REASON(first)) : ERR_reason_error_string(first);
    error_at(error, HEARTH_INVALID, param, "%s %s: %s", deed, path, reason != NULL ? reason : "it is not in PEM form");
    ERR_clear_error();
    return HEARTH_INVALID;
}

static int load_certificate(SSL_CTX *context, const char *cert, const char *key, hearth_error *error)
{
    ERR_clear_error();
    if (SSL_CTX_use_certificate_chain_file(context, cert) != 1)
        return tls_error(error, "tls_cert", "cannot use the certificate", cert);
    if (SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) == 1 && SSL_CTX_check_private_key(context) == 1)
        return HEARTH_OK;
    if (ERR_GET_REASON(ERR_peek_last_error()) != X509_R_KEY_VALUES_MISMATCH &&
        ERR_GET_REASON(ERR_peek_last_error()) != X509_R_KEY_TYPE_MISMATCH)
        return tls_error(error, "tls_key", "cannot use the private key", key);
    ERR_clear_error();
    return error_at(error, HEARTH_INVALID, "tls_key", "the private key %s does not belong to the certificate %s", key,
                    cert);
}

struct http_tls *http_tls_open(const char *cert_path, const char *key_path, hearth_error *error)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    if (context == NULL) {
        error_at(error, HEARTH_INTERNAL, "tls_cert", "OpenSSL cannot make a TLS context");
        return NULL;
    }
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    /* An end without close_notify is accepted: Content-Length and chunks show whether a body is complete. */
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_COMPRESSION |
                                     SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);         /* many connections are idle */
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF); /* clients keep their sessions in tickets */
    SSL_CTX_set_alpn_select_cb(context, choose_protocol, NULL);
    SSL_CTX_set_default_passwd_cb(context, no_passphrase);
    struct http_tls *tls = mem_alloc(sizeof *tls);
    tls->context = context;
    if (load_certificate(context, cert_path, key_path, error) == HEARTH_OK) return tls;
    http_tls_close(tls);
    return NULL;
}

void http_tls_close(struct http_tls *tls)
{
    if (tls == NULL) return;
    SSL_CTX_free(tls->context);
    free(tls);
}

/* ---- TLS: a connection ---- */

/* Both calls fail only for want of memory, which ends the process for control data, as in base/memory.h. */
struct bufferevent *tls_bufferevent(const struct http_tls *tls, struct event_base *base, evutil_socket_t fd)
{
    SSL *ssl = SSL_new(tls->context);
    if (ssl == NULL) abort();
    struct bufferevent *bev = bufferevent_openssl_socket_new(base, fd, ssl, BUFFEREVENT_SSL_ACCEPTING,
                                                             BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS);
    if (bev == NULL) abort();
    return bev;
}

bool tls_is(struct bufferevent *bev)
{
    return bufferevent_openssl_get_ssl(bev) != NULL;
}

void tls_send_close_notify(struct bufferevent *bev)
{
    SSL *ssl = bufferevent_openssl_get_ssl(bev);
    if (ssl == NULL) return;
    SSL_shutdown(ssl); /* the answer is sent already: no need to wait for the client's */
    ERR_clear_error();
}

void tls_log_failure(struct bufferevent *bev)
{
    const char *reason = ERR_reason_error_string(bufferevent_get_openssl_error(bev));
    log_event(LOG_DEBUG, "http", "TLS handshake failed",
              log_str("reason", reason != NULL ? reason : "the client left"));
}
