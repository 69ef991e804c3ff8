/* TLS 1.2 and 1.3 by OpenSSL. The server's certificate is always checked, and its name or address with it: there is no
 * way to turn that off, since then the encryption would be with anybody. */
#include "store/redis_tls.h"

#include "base/error.h"
#include "base/memory.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

struct redis_tls_context {
    SSL_CTX *ssl; /* counts the references */
};

struct redis_tls {
    SSL *ssl;
};

static void require(bool done)
{
    if (done) return;
    fputs("hearth: OpenSSL has no memory for a TLS connection\n", stderr);
    abort();
}

/* ---- Contexts ---- */

struct redis_tls_context *redis_tls_context_open(const char *ca_file, hearth_error *error)
{
    SSL_CTX *ssl = SSL_CTX_new(TLS_client_method());
    require(ssl != NULL);
    SSL_CTX_set_min_proto_version(ssl, TLS1_2_VERSION);
    SSL_CTX_set_options(ssl, SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_mode(ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER, NULL);
    ERR_clear_error();
    bool trusts =
        ca_file != NULL ? SSL_CTX_load_verify_file(ssl, ca_file) == 1 : SSL_CTX_set_default_verify_paths(ssl) == 1;
    if (!trusts) {
        error_set(error, HEARTH_IO, "%s has no certificates that can be read: %s",
                  ca_file != NULL ? ca_file : "the system", ERR_reason_error_string(ERR_peek_last_error()));
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

/* ---- Streams ---- */

static bool is_address(const char *name)
{
    struct in6_addr address;
    return inet_pton(AF_INET, name, &address) == 1 || inet_pton(AF_INET6, name, &address) == 1;
}

struct redis_tls *redis_tls_open(struct redis_tls_context *context, int fd, const char *name)
{
    struct redis_tls *tls = mem_alloc(sizeof *tls);
    tls->ssl = SSL_new(context->ssl);
    require(tls->ssl != NULL && SSL_set_fd(tls->ssl, fd) == 1);
    if (is_address(name))
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

static int fail_handshake(const struct redis_tls *tls, hearth_error *error)
{
    long verified = SSL_get_verify_result(tls->ssl);
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    if (verified != X509_V_OK) reason = X509_verify_cert_error_string(verified);
    return error_set(error, HEARTH_UNAVAILABLE, "TLS with the server failed: %s",
                     reason != NULL ? reason : "it closed the connection");
}

int redis_tls_shake_hands(struct redis_tls *tls, short *events, hearth_error *error)
{
    ERR_clear_error();
    int result = SSL_do_handshake(tls->ssl);
    if (result == 1) return 0;
    int wants = SSL_get_error(tls->ssl, result);
    *events = wants == SSL_ERROR_WANT_WRITE ? POLLOUT : POLLIN;
    return wants == SSL_ERROR_WANT_WRITE || wants == SSL_ERROR_WANT_READ ? HEARTH_BUSY : fail_handshake(tls, error);
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
    ERR_clear_error();
    int n = SSL_write(tls->ssl, bytes, as_int(size));
    return n > 0 ? n : outcome_of(tls, n);
}

ssize_t redis_tls_receive(struct redis_tls *tls, void *bytes, size_t size)
{
    ERR_clear_error();
    int n = SSL_read(tls->ssl, bytes, as_int(size));
    return n > 0 ? n : outcome_of(tls, n);
}
