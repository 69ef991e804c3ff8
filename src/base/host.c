/* Parsing and comparing hosts. */
#include "base/host.h"

#include <arpa/inet.h>
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
