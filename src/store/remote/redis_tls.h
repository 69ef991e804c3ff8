/* TLS below a connection of redis.c: OpenSSL over a socket that does not block. A context may be used by any thread; a
 * stream belongs to one. */
#ifndef STORE_REMOTE_REDIS_TLS_H
#define STORE_REMOTE_REDIS_TLS_H

#include "hearth.h"

#include <stddef.h>
#include <sys/types.h>

struct redis_tls_context;
struct redis_tls;

/* PEM. `trusted`: certificates of authorities; NULL: those that the system trusts. `own`: the certificate for a server
 * that asks for one, with the chain that signed it; NULL: none. `own_key`: its private key; NULL: it is in the same
 * file. */
struct redis_tls_files {
    const char *trusted, *own, *own_key;
};

/* NULL is returned with what is wrong. */
struct redis_tls_context *redis_tls_context_open(const struct redis_tls_files *files, hearth_error *error);
struct redis_tls_context *redis_tls_context_ref(struct redis_tls_context *context); /* NULL stays NULL */
void redis_tls_context_unref(struct redis_tls_context *context);

/* A stream over the socket, which stays the caller's, to the server of that name or address. */
struct redis_tls *redis_tls_open(struct redis_tls_context *context, int fd, const char *name);
void redis_tls_close(struct redis_tls *tls); /* NULL is fine */

/* The next step of the handshake. 0: it is done; HEARTH_BUSY: it waits for the socket, for `events` of poll();
 * HEARTH_UNAVAILABLE: it failed. */
int redis_tls_shake_hands(struct redis_tls *tls, short *events, hearth_error *error);

/* As send() and recv() on the socket; with errno EPROTO where TLS failed. */
ssize_t redis_tls_send(struct redis_tls *tls, const void *bytes, size_t size);
ssize_t redis_tls_receive(struct redis_tls *tls, void *bytes, size_t size);

/* Whether there is more to receive of what was taken from the socket, of which poll() does not know. */
bool redis_tls_has_more(const struct redis_tls *tls);

/* The meaning of EPROTO in this thread's last call. Static. */
const char *redis_tls_reason(void);

#endif
