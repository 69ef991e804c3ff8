/* The parser of redis_address.h. */
#include "base/redis_address.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

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
