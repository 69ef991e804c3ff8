/* Which addresses are public: what a request may make this machine connect to, where others are not to be reached. Pure
 * functions; any thread. */
#ifndef BASE_ADDRESS_H
#define BASE_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>

/* Whether anybody in the Internet may have this address: not loopback, private, link-local, shared by a carrier,
 * multicast, reserved or for documentation, nor IPv6 in which such an IPv4 address is written. */
bool address_is_public(const struct sockaddr *address);

#endif
