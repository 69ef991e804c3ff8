/* Parsing and comparing hosts, and the addresses of Redis servers. */
#include "base/host.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Whether this may follow a host: nothing, or a colon and digits. */
static bool is_port(const char *text, size_t len)
{
    if (len > 0 && *text != ':') return false;
    for (size_t i = 1; i < len; i++)
        if (text[i] < '0' || text[i] > '9') return false;
    return true;
}

static void map_v4(const struct in_addr *from, struct in6_addr *to)
{
    *to = (struct in6_addr){.s6_addr = {[10] = 0xff, [11] = 0xff}};
    memcpy(&to->s6_addr[12], from, sizeof *from);
}

static bool read_v6(const char *text, size_t len, struct host *host)
{
    char address[INET6_ADDRSTRLEN];
    if (len >= sizeof address) return false;
    memcpy(address, text, len);
    address[len] = '\0';
    return inet_pton(AF_INET6, address, &host->address) == 1;
}

/* A trailing dot marks a fully qualified name; it is ignored. */
static bool read_name(const char *text, size_t len, struct host *host)
{
    static const char characters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    struct in_addr v4;
    if (len > 0 && text[len - 1] == '.') len--;
    if (len == 0 || len > HOST_NAME_MAX_BYTES) return false;
    for (size_t i = 0; i < len; i++) {
        if (strchr(characters, text[i]) == NULL) return false;
        host->name[i] = (char)(text[i] >= 'A' && text[i] <= 'Z' ? text[i] | 0x20 : text[i]);
    }
    if (inet_pton(AF_INET, host->name, &v4) != 1) return true;
    host->name[0] = '\0';
    map_v4(&v4, &host->address);
    return true;
}

bool host_parse(const char *text, size_t len, struct host *host)
{
    *host = (struct host){0};
    if (memchr(text, '\0', len) != NULL) return false;
    if (len > 0 && *text == '[') {
        const char *end = memchr(text, ']', len);
        if (end == NULL || !is_port(end + 1, len - (size_t)(end + 1 - text))) return false;
        return read_v6(text + 1, (size_t)(end - text - 1), host);
    }
    const char *colon = memchr(text, ':', len);
    size_t name = colon == NULL ? len : (size_t)(colon - text);
    return is_port(text + name, len - name) && read_name(text, name, host);
}

bool host_parse_listed(const char *text, struct host *host)
{
    *host = (struct host){0};
    return read_v6(text, strlen(text), host) || host_parse(text, strlen(text), host);
}

bool host_of_socket(const struct sockaddr *address, struct host *host)
{
    *host = (struct host){0};
    if (address->sa_family == AF_INET)
        map_v4(&((const struct sockaddr_in *)address)->sin_addr, &host->address);
    else if (address->sa_family == AF_INET6)
        host->address = ((const struct sockaddr_in6 *)address)->sin6_addr;
    else
        return false;
    return true;
}

bool host_equal(const struct host *a, const struct host *b)
{
    return strcmp(a->name, b->name) == 0 && memcmp(&a->address, &b->address, sizeof a->address) == 0;
}

bool host_is_unspecified(const struct host *host)
{
    static const uint8_t v4[16] = {[10] = 0xff, [11] = 0xff};
    if (host->name[0] != '\0') return false;
    return IN6_IS_ADDR_UNSPECIFIED(&host->address) || memcmp(&host->address, v4, sizeof v4) == 0;
}

bool host_is_loopback(const struct host *host)
{
    static const char local[] = ".localhost";
    size_t len = strlen(host->name), tail = sizeof local - 1;
    if (len > 0)
        return strcmp(host->name, local + 1) == 0 || (len > tail && strcmp(host->name + len - tail, local) == 0);
    bool v4 = IN6_IS_ADDR_V4MAPPED(&host->address) && host->address.s6_addr[12] == 127;
    return v4 || IN6_IS_ADDR_LOOPBACK(&host->address) || host_is_unspecified(host);
}

/* ---- Public addresses ---- */

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
    struct host host;
    if (!host_of_socket(address, &host)) return false;
    const struct in6_addr *v6 = &host.address;
    if (IN6_IS_ADDR_V4MAPPED(v6)) return !is_in_any(v6, special, sizeof special / sizeof *special);
    return is_within(v6, &given_out) && !is_in_any(v6, special_v6, sizeof special_v6 / sizeof *special_v6);
}

/* ---- Redis servers ---- */

enum { DEFAULT_PORT = 6379, MOST_DATABASES = 65535 };

/* A decimal number in [0, most] that is all of the text; -1: it is none. */
static int32_t number_of(const char *text, size_t len, int32_t most)
{
    if (len == 0 || len > 5 || strspn(text, "0123456789") < len) return -1;
    long value = strtol(text, NULL, 10);
    return value > most ? -1 : (int32_t)value;
}

/* HOST or HOST:PORT, an IPv6 address in brackets. */
static const char *parse_authority(const char *text, size_t len, struct redis_address *address)
{
    struct host host;
    if (memchr(text, '@', len) != NULL) return "has a user: use the keys user and password_file";
    if (!host_parse(text, len, &host)) return "names no host";
    const char *end = text[0] == '[' ? memchr(text, ']', len) : NULL;
    const char *from = end != NULL ? end + 1 : text, *colon = memchr(from, ':', len - (size_t)(from - text));
    const char *name = end != NULL ? text + 1 : text;
    size_t name_len = (size_t)((end != NULL ? end : colon != NULL ? colon : text + len) - name);
    if (name_len == 0 || name_len >= sizeof address->name) return "names no host";
    memcpy(address->name, name, name_len);
    address->port = DEFAULT_PORT;
    if (colon == NULL) return NULL;
    int32_t port = number_of(colon + 1, len - (size_t)(colon + 1 - text), UINT16_MAX);
    if (port <= 0) return "has no port from 1 to 65535 after the host";
    address->port = (uint16_t)port;
    return NULL;
}

const char *redis_address_parse(const char *text, struct redis_address *address)
{
    static const char schemes[][10] = {"redis://", "rediss://"};
    *address = (struct redis_address){0};
    if (strncmp(text, "unix:", 5) == 0) {
        size_t size = strlen(text + 5) + 1;
        if (size == 1) return "names no path after unix:";
        if (size > sizeof address->path) return "has a path too long for a socket";
        memcpy(address->path, text + 5, size);
        return NULL;
    }
    bool tls = strncmp(text, schemes[1], strlen(schemes[1])) == 0;
    size_t scheme = strlen(schemes[tls]);
    if (strncmp(text, schemes[tls], scheme) != 0) return "begins with none of redis://, rediss:// and unix:";
    address->tls = tls;
    const char *host = text + scheme, *slash = strchr(host, '/');
    size_t len = slash == NULL ? strlen(host) : (size_t)(slash - host);
    const char *fault = parse_authority(host, len, address);
    if (fault != NULL || slash == NULL || slash[1] == '\0') return fault;
    address->database = number_of(slash + 1, strlen(slash + 1), MOST_DATABASES);
    return address->database < 0 ? "has no number of a database after the host" : NULL;
}

bool redis_address_is_local(const struct redis_address *address)
{
    struct host host;
    if (address->name[0] == '\0') return true;
    return host_parse_listed(address->name, &host) && !host_is_unspecified(&host) && host_is_loopback(&host);
}
