/* Fuzzes Host headers: a parsed host is a name of valid characters or an address, parses again to the same, and is
 * loopback only if it is a loopback name or address. */
#include "base/host.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void require(bool holds)
{
    if (!holds) abort();
}

static void check_name(const struct host *host)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789-_.";
    struct host again;
    size_t len = strlen(host->name);
    require(len <= HOST_NAME_MAX_BYTES && strspn(host->name, allowed) == len);
    if (host->name[len - 1] != '.') require(host_parse(host->name, len, &again) && host_equal(host, &again));
    bool ends_local = len >= 9 && strcmp(host->name + len - 9, "localhost") == 0;
    require(!host_is_loopback(host) || ends_local);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct host host;
    if (!host_parse((const char *)data, size, &host)) return 0;
    require(memchr(data, '@', size) == NULL && memchr(data, '/', size) == NULL && memchr(data, '\0', size) == NULL);
    if (host.name[0] != '\0') check_name(&host);
    return 0;
}
