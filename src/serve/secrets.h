/* The server's API keys and TLS certificate: read at the start, and again at SIGHUP. The disk that they are on may
 * hang, so that they are read again on a thread of their own, one at a time. The HTTP thread puts them to use. A file
 * that has a fault changes nothing. */
#ifndef SERVE_SECRETS_H
#define SERVE_SECRETS_H

#include "hearth.h"

struct secrets;
struct server;

/* HEARTH_OK if keys and certificate of the configuration can be used; else the error names the key. Any thread. */
int secrets_check(const hearth_config *config, hearth_error *error);

/* Reads the keys into server->keys and says by `isolate_keys` whether their owners are kept apart. NULL with the error.
 * `server` outlives the secrets. */
struct secrets *secrets_open(const hearth_config *config, struct server *server, hearth_error *error);

/* Reads the certificate for server->http, which has been opened since. */
int secrets_use_tls(struct secrets *secrets, hearth_error *error);

/* Reads all of it again, logs what has come of it, and calls `reloaded(ud)`. HTTP thread only. */
void secrets_reload(struct secrets *secrets, void (*reloaded)(void *ud), void *ud);

/* After http_run() has returned and before http_close(). Does not wait for a disk that hangs. NULL is fine. */
void secrets_close(struct secrets *secrets);

#endif
