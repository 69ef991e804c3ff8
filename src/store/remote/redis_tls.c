/* TLS 1.2 and 1.3 by OpenSSL. The server's certificate is always checked, and its name or address with it: there is no
 * way to turn that off, since then the encryption would be with anybody. */
#include "store/remote/redis_tls.h"

#include "base/error.h"
#include "base/log_stderr.h"
#include "base/memory.h"
#include "base/os.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

struct redis_tls_context {
    SSL_CTX *ssl; /* counts the references */
};

struct redis_tls {
    SSL *ssl;
};

static void require(bool done)
{
    if (done) return;
    fputs("hearth: OpenSSL has no memory for a TLS connection\n", log_console());
    abort();
}

/* ---- Contexts ---- */

/* Tells which file cannot be used, and what OpenSSL met first. */
static bool fail_file(const char *path, const char *has, hearth_error *error)
{
    const char *reason = ERR_reason_error_string(ERR_peek_error());
    error_set(error, HEARTH_IO, "%s has no %s that can be read: %s", path, has,
              reason != NULL ? reason : "no such file");
    return false;
}

static bool show(SSL_CTX *ssl, const struct redis_tls_files *files, hearth_error *error)
{
    if (files->own == NULL) return true;
    if (SSL_CTX_use_certificate_chain_file(ssl, files->own) != 1) return fail_file(files->own, "certificate", error);
    const char *key = files->own_key != NULL ? files->own_key : files->own;
    bool fits = SSL_CTX_use_PrivateKey_file(ssl, key, SSL_FILETYPE_PEM) == 1 && SSL_CTX_check_private_key(ssl) == 1;
    return fits || fail_file(key, "private key of that certificate", error);
}

/* A key that is encrypted is refused, as a server has nobody to ask for its password. */
static int no_password(char *out, int size, int writing, void *ud)
{
    (void)out, (void)size, (void)writing, (void)ud;
    return -1;
}

struct redis_tls_context *redis_tls_context_open(const struct redis_tls_files *files, hearth_error *error)
{
    assert(files->own != NULL || files->own_key == NULL);
    SSL_CTX *ssl = SSL_CTX_new(TLS_client_method());
    require(ssl != NULL);
    SSL_CTX_set_min_proto_version(ssl, TLS1_2_VERSION);
    SSL_CTX_set_options(ssl, SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_mode(ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_default_passwd_cb(ssl, no_password);
    ERR_clear_error();
    const char *trusted = files->trusted;
    int trusts = trusted != NULL ? SSL_CTX_load_verify_file(ssl, trusted) : SSL_CTX_set_default_verify_paths(ssl);
    bool usable = trusts == 1 || fail_file(trusted != NULL ? trusted : "the system", "certificates", error);
    if (!usable || !show(ssl, files, error)) {
        SSL_CTX_free(ssl);
        return NULL;
    }
    struct redis_tls_context *context = mem_alloc(sizeof *context);
    context->ssl = ssl;
    return context;
}

struct redis_tls_context *redis_tls_context_ref(struct redis_tls_context *context)
{
    if (context == NULL) return NULL;
    struct redis_tls_context *copy = mem_alloc(sizeof *copy);
    copy->ssl = context->ssl;
    SSL_CTX_up_ref(copy->ssl);
    return copy;
}

void redis_tls_context_unref(struct redis_tls_context *context)
{
    if (context == NULL) return;
    SSL_CTX_free(context->ssl);
    free(context);
}

/* ---- Sockets ----
 *
 * As OpenSSL's own, but that writing to a connection which has ended is an error, and no signal. A signal would end a
 * process that embeds libhearth and does not ignore SIGPIPE. */

static BIO_METHOD *socket_method;

static int outcome_of_socket(BIO *bio, ssize_t n, int retry)
{
    BIO_clear_retry_flags(bio);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_flags(bio, retry | BIO_FLAGS_SHOULD_RETRY);
    return (int)n;
}

static int fd_of(BIO *bio)
{
    return (int)(intptr_t)BIO_get_data(bio);
}

static int write_socket(BIO *bio, const char *bytes, int size)
{
    return outcome_of_socket(bio, os_send(fd_of(bio), bytes, (size_t)size), BIO_FLAGS_WRITE);
}

static int read_socket(BIO *bio, char *bytes, int size)
{
    return outcome_of_socket(bio, recv(fd_of(bio), bytes, (size_t)size, 0), BIO_FLAGS_READ);
}

/* Nothing is kept back that could be flushed. */
static long control_socket(BIO *bio, int command, long number, void *ud)
{
    (void)bio, (void)number, (void)ud;
    return command == BIO_CTRL_FLUSH;
}

static void make_socket_method(void)
{
    socket_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket without signals");
    require(socket_method != NULL && BIO_meth_set_write(socket_method, write_socket) == 1 &&
            BIO_meth_set_read(socket_method, read_socket) == 1 &&
            BIO_meth_set_ctrl(socket_method, control_socket) == 1);
}

/* ---- Streams ---- */

struct redis_tls *redis_tls_open(struct redis_tls_context *context, int fd, const char *name)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    assert(fd >= 0 && name != NULL);
    struct redis_tls *tls = mem_alloc(sizeof *tls);
    tls->ssl = SSL_new(context->ssl);
    require(tls->ssl != NULL);
    pthread_once(&once, make_socket_method);
    BIO *bio = BIO_new(socket_method);
    require(bio != NULL);
    BIO_set_data(bio, (void *)(intptr_t)fd);
    BIO_set_init(bio, 1);
    SSL_set_bio(tls->ssl, bio, bio);
    struct in6_addr address;
    if (inet_pton(AF_INET, name, &address) == 1 || inet_pton(AF_INET6, name, &address) == 1)
        require(X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls->ssl), name) == 1);
    else
        require(SSL_set1_host(tls->ssl, name) == 1 && SSL_set_tlsext_host_name(tls->ssl, name) == 1);
    SSL_set_connect_state(tls->ssl);
    return tls;
}

void redis_tls_close(struct redis_tls *tls)
{
    if (tls == NULL) return;
    SSL_free(tls->ssl);
    free(tls);
}

const char *redis_tls_reason(void)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    return reason != NULL ? reason : "it closed the connection";
}

int redis_tls_shake_hands(struct redis_tls *tls, short *events, hearth_error *error)
{
    ERR_clear_error();
    int result = SSL_do_handshake(tls->ssl);
    if (result == 1) return 0;
    int wants = SSL_get_error(tls->ssl, result);
    *events = wants == SSL_ERROR_WANT_WRITE ? POLLOUT : POLLIN;
    if (wants == SSL_ERROR_WANT_WRITE || wants == SSL_ERROR_WANT_READ) return HEARTH_BUSY;
    long verified = SSL_get_verify_result(tls->ssl);
    return error_set(error, HEARTH_UNAVAILABLE, "TLS with the server failed: %s",
                     verified != X509_V_OK ? X509_verify_cert_error_string(verified) : redis_tls_reason());
}

/* Of a call that moved nothing. */
static ssize_t outcome_of(const struct redis_tls *tls, int result)
{
    int wants = SSL_get_error(tls->ssl, result);
    if (wants == SSL_ERROR_ZERO_RETURN) return 0;
    errno = wants == SSL_ERROR_WANT_READ || wants == SSL_ERROR_WANT_WRITE ? EAGAIN : EPROTO;
    return -1;
}

static int as_int(size_t size)
{
    return size < INT_MAX ? (int)size : INT_MAX;
}

ssize_t redis_tls_send(struct redis_tls *tls, const void *bytes, size_t size)
{
    assert(size > 0);
    ERR_clear_error();
    int n = SSL_write(tls->ssl, bytes, as_int(size));
    return n > 0 ? n : outcome_of(tls, n);
}

ssize_t redis_tls_receive(struct redis_tls *tls, void *bytes, size_t size)
{
    assert(size > 0);
    ERR_clear_error();
    int n = SSL_read(tls->ssl, bytes, as_int(size));
    return n > 0 ? n : outcome_of(tls, n);
}

bool redis_tls_has_more(const struct redis_tls *tls)
{
    return SSL_pending(tls->ssl) > 0;
}
