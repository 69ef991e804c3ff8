/* TLS: one OpenSSL context for each certificate, and libevent's bufferevents over it.
 *
 * Event loop's thread only. OpenSSL counts references to a context, so that connections outlive its replacement.
 * Callbacks of a TLS bufferevent are deferred to the loop: OpenSSL may detect a connection's end within any call,
 * while the caller still uses the connection. */
#include "http/connection.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"

#include <event2/bufferevent_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdlib.h>
#include <string.h>

struct http_tls {
    SSL_CTX *context;
};

/* ---- The context ---- */

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

static SSL_CTX *make_context(void)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    if (context == NULL) return NULL;
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    /* An end without close_notify is accepted: Content-Length and chunks show whether a body is complete. */
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_COMPRESSION |
                                     SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);         /* many connections are idle */
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF); /* clients keep their sessions in tickets */
    SSL_CTX_set_alpn_select_cb(context, choose_protocol, NULL);
    SSL_CTX_set_default_passwd_cb(context, no_passphrase);
    return context;
}

/* Fails with OpenSSL's text for the first error in its queue. */
static int tls_error(hearth_error *error, const char *param, const char *deed, const char *path)
{
    unsigned long first = ERR_peek_error();
    const char *reason =
        ERR_SYSTEM_ERROR(first) ? strerrordesc_np(ERR_GET_REASON(first)) : ERR_reason_error_string(first);
    error_at(error, HEARTH_INVALID, param, "%s %s: %s", deed, path, reason != NULL ? reason : "it is not in PEM form");
    ERR_clear_error();
    return HEARTH_INVALID;
}

static int load(SSL_CTX *context, const char *cert, const char *key, hearth_error *error)
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
    struct http_tls *tls = mem_alloc(sizeof *tls);
    tls->context = make_context();
    if (tls->context == NULL) error_at(error, HEARTH_INTERNAL, "tls_cert", "OpenSSL cannot make a TLS context");
    if (tls->context != NULL && load(tls->context, cert_path, key_path, error) == HEARTH_OK) return tls;
    http_tls_close(tls);
    return NULL;
}

void http_tls_close(struct http_tls *tls)
{
    if (tls == NULL) return;
    SSL_CTX_free(tls->context);
    free(tls);
}

/* ---- A connection ---- */

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
