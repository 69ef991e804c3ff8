/* Hosts as Host headers, origins and addresses write them: a name or an address, with or without a port. Which
 * addresses are public, and those of Redis or Valkey servers. Pure functions; any thread. */
#ifndef BASE_HOST_H
#define BASE_HOST_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define HOST_NAME_MAX_BYTES 253 /* of a name in the DNS */

struct host {
    char name[HOST_NAME_MAX_BYTES + 1]; /* in small letters, without a dot at its end; "": an address */
    struct in6_addr address;            /* IPv4 as ::ffff:a.b.c.d */
};

/* Parses "name", "a.b.c.d" or "[v6]", with or without ":port". False for anything else, such as a user before an @. */
bool host_parse(const char *text, size_t len, struct host *host);

/* The same as written in a list: an IPv6 address may lack its brackets. */
bool host_parse_listed(const char *text, struct host *host);

/* The address of a socket; false where it has none (unix sockets). */
bool host_of_socket(const struct sockaddr *address, struct host *host);

bool host_equal(const struct host *a, const struct host *b);

/* 0.0.0.0 and [::]: to a listener all addresses of the machine, to a client the machine itself. */
bool host_is_unspecified(const struct host *host);

/* Addresses of this machine alone: localhost and the names below it, 127.0.0.0/8, [::1], and the unspecified ones. */
bool host_is_loopback(const struct host *host);

/* Whether this is an address of the public Internet: a request may make this machine connect to these, and to no
 * others. Loopback, private, link-local, shared by a carrier, multicast, reserved and for documentation are not, nor is
 * IPv6 in which such an IPv4 address is written. */
bool address_is_public(const struct sockaddr *address);

/* ---- Redis or Valkey servers, as the configuration writes them ---- */

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
