/* Ranges of addresses that are not public: see address.h. */
#include "base/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>

/* From IANA's registries of special-purpose addresses: those that are not globally reachable, and multicast. */
static const struct range {
    const char *first;
    int bits;
} special[] = {
    {"::ffff:0.0.0.0", 96 + 8},      {"::ffff:10.0.0.0", 96 + 8},     {"::ffff:100.64.0.0", 96 + 10},
    {"::ffff:127.0.0.0", 96 + 8},    {"::ffff:169.254.0.0", 96 + 16}, {"::ffff:172.16.0.0", 96 + 12},
    {"::ffff:192.0.0.0", 96 + 24},   {"::ffff:192.0.2.0", 96 + 24},   {"::ffff:192.88.99.0", 96 + 24},
    {"::ffff:192.168.0.0", 96 + 16}, {"::ffff:198.18.0.0", 96 + 15},  {"::ffff:198.51.100.0", 96 + 24},
    {"::ffff:203.0.113.0", 96 + 24}, {"::ffff:224.0.0.0", 96 + 4},    {"::ffff:240.0.0.0", 96 + 4},
};

/* Of IPv6 only 2000::/3 is given out; within it these are not, or carry an IPv4 address (Teredo, 6to4). */
static const struct range special_v6[] = {
    {"2001::", 23}, {"2001:db8::", 32}, {"2002::", 16}, {"3fff::", 20}, {"3ffe::", 16},
};

static bool is_within(const struct in6_addr *address, const struct range *range)
{
    struct in6_addr first;
    inet_pton(AF_INET6, range->first, &first);
    int bytes = range->bits / 8, rest = range->bits % 8;
    if (memcmp(address, &first, (size_t)bytes) != 0) return false;
    return rest == 0 || (address->s6_addr[bytes] ^ first.s6_addr[bytes]) >> (8 - rest) == 0;
}

static bool is_in_any(const struct in6_addr *address, const struct range *ranges, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (is_within(address, &ranges[i])) return true;
    return false;
}

bool address_is_public(const struct sockaddr *address)
{
    static const struct range given_out = {"2000::", 3};
    struct in6_addr v6 = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
    if (address->sa_family == AF_INET)
        memcpy(&v6.s6_addr[12], &((const struct sockaddr_in *)address)->sin_addr, 4);
    else if (address->sa_family == AF_INET6)
        v6 = ((const struct sockaddr_in6 *)address)->sin6_addr;
    else
        return false;
    if (IN6_IS_ADDR_V4MAPPED(&v6)) return !is_in_any(&v6, special, sizeof special / sizeof *special);
    return is_within(&v6, &given_out) && !is_in_any(&v6, special_v6, sizeof special_v6 / sizeof *special_v6);
}
