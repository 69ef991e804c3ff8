/* Addresses of Redis or Valkey servers, as the configuration writes them. Pure functions; any thread. */
#ifndef BASE_REDIS_ADDRESS_H
#define BASE_REDIS_ADDRESS_H

#include "base/host.h"

#include <stdint.h>

#define REDIS_PATH_BYTES 108 /* of a unix socket, with the terminating zero: sizeof sockaddr_un.sun_path */

struct redis_address {
    char name[HOST_NAME_MAX_BYTES + 1]; /* host name or address; "": a unix socket */
    char path[REDIS_PATH_BYTES];        /* of the socket */
    uint16_t port;
    int32_t database;
    bool tls;
};

/* Parses redis://HOST[:PORT][/DATABASE], rediss:// likewise, with TLS, or unix:PATH. Returns what is wrong with the
 * text, to follow it in a message; NULL: nothing. */
const char *redis_address_parse(const char *text, struct redis_address *address);

/* Whether it is on this machine: a unix socket, localhost, or a loopback address. */
bool redis_address_is_local(const struct redis_address *address);

#endif
