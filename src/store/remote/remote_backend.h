/* The backend on a Redis or Valkey server, or a cluster of such, that other processes use as well. It keeps the
 * contract of backend.h with these differences, which `probe` marks:
 *
 * - A scan reports nothing: probe() finds the slabs, which may be gone at any time.
 * - Slabs are immutable. put() leaves one that is there as it is: it is another process's copy of the same.
 * - remove() removes nothing, since others may use the slab. The server evicts, and `ttl_s` ends what nobody reads. */
#ifndef STORE_REMOTE_REMOTE_BACKEND_H
#define STORE_REMOTE_REMOTE_BACKEND_H

#include "store/backends/backend.h"

struct remote_params {
    const char *url; /* redis_address_parse() has no fault to find */
    const char *prefix;
    const char *user, *password_file;                    /* NULL: none */
    const char *ca_file;                                 /* with rediss://; NULL: authorities that the system trusts */
    const char *certificate_file, *certificate_key_file; /* with rediss://, what the server is shown; NULL: none */
    const char *key_file;                                /* NULL: no secret, and the server must be on this machine */
    bool encrypts;
    int64_t ttl_s; /* after the last read; 0: for ever */
    int64_t timeout_ns;
    int32_t stride;
};

struct backend *remote_backend_open(const struct remote_params *params); /* the strings are copied */

#endif
