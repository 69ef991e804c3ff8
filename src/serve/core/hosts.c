/* The allowed host names and addresses, and the check of a request's Host header. HTTP thread only. */
#include "serve/core/hosts.h"

#include "base/error.h"
#include "base/host.h"
#include "base/memory.h"
#include "serve/core/errors.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct hosts {
    struct host *v;
    size_t len;
    bool any;         /* "*" is allowed */
    bool any_address; /* a socket listens on all addresses of the machine: these change, and NAT may give others. A
                         numeric address needs no DNS, so that rebinding cannot forge it */
};

/* ---- What is allowed ---- */

static void add_host(struct hosts *hosts, const struct host *host)
{
    if (host_is_unspecified(host)) hosts->any_address = true;
    hosts->v = mem_grow(hosts->v, hosts->len + 1, sizeof *hosts->v);
    hosts->v[hosts->len++] = *host;
}

void hosts_add(struct hosts *hosts, const char *text)
{
    struct host host;
    if (host_parse_listed(text, &host)) add_host(hosts, &host);
}

/* "box.example.org": also "box", and "box.local", by which a network without a DNS server of its own knows it. */
static void add_own_names(struct hosts *hosts)
{
    char name[HOST_NAME_MAX_BYTES + 1] = "";
    if (gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return;
    hosts_add(hosts, name);
    name[strcspn(name, ".")] = '\0';
    hosts_add(hosts, name);
    char *local = mem_format("%s.local", name);
    hosts_add(hosts, local);
    free(local);
}

struct hosts *hosts_open(const char *allowed)
{
    struct hosts *hosts = mem_alloc(sizeof *hosts);
    char *list = mem_strdup(allowed), *rest = list, *host;
    add_own_names(hosts);
    while ((host = strsep(&rest, ",")) != NULL) {
        if (strcmp(host, "*") == 0) hosts->any = true;
        hosts_add(hosts, host);
    }
    free(list);
    return hosts;
}

void hosts_close(struct hosts *hosts)
{
    if (hosts == NULL) return;
    free(hosts->v);
    free(hosts);
}

static void add_socket(void *ud, const struct sockaddr *address)
{
    struct host host;
    if (host_of_socket(address, &host)) add_host(ud, &host);
}

void hosts_add_sockets(struct hosts *hosts, const struct http_server *http)
{
    http_each_address(http, add_socket, hosts);
}

/* ---- The check ---- */

bool hosts_allow(const struct hosts *hosts, const char *text)
{
    struct host host;
    if (hosts->any || text == NULL || *text == '\0') return true;
    if (!host_parse(text, strlen(text), &host)) return false;
    if (host_is_loopback(&host) || (hosts->any_address && host.name[0] == '\0')) return true;
    for (size_t i = 0; i < hosts->len; i++)
        if (host_equal(&hosts->v[i], &host)) return true;
    return false;
}

int hosts_check(const struct hosts *hosts, const struct http_request *http, hearth_error *error)
{
    const char *asked[] = {http_header(http, "Host"), http_target_host(http)};
    if (http_is_unix(http)) return HEARTH_OK;
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        if (!hosts_allow(hosts, asked[i]))
            return error_set(error, ERRORS_HOST,
                             "this server does not answer to the name '%.100s': add it to server.allowed_hosts, or set "
                             "server.api_keys_file",
                             asked[i]);
    return HEARTH_OK;
}
