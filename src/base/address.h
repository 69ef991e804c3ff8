/* Which addresses are public: a request may make this machine connect to these, and to no others. Pure
 * functions; any thread. */
#ifndef BASE_ADDRESS_H
#define BASE_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>

/* Whether this is an address of the public Internet. Loopback, private, link-local, shared by a carrier, multicast,
 * reserved and for documentation are not, nor is IPv6 in which such an IPv4 address is written. */
bool address_is_public(const struct sockaddr *address);

#endif
