/* CORS: the list of allowed origins and the headers. Origins are compared as texts, since browsers write each in one
 * way. The check is the same with and without API keys: a page that has a key has its origin listed too. */
#include "serve/core/cors.h"

#include "base/error.h"
#include "base/host.h"
#include "base/log.h"
#include "base/memory.h"
#include "http/multipart.h"
#include "serve/core/errors.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

struct cors {
    char **v; /* origins; one may have a "*" for any characters but slashes */
    size_t len;
    bool any;
};

static bool starts_with(const char *text, const char *start)
{
    return strncasecmp(text, start, strlen(start)) == 0;
}

/* ---- The list ---- */

struct cors *cors_open(const char *allowed)
{
    struct cors *cors = mem_alloc(sizeof *cors);
    char *list = mem_strdup(allowed), *rest = list, *origin;
    while ((origin = strsep(&rest, ",")) != NULL) {
        /* Browsers leave out the port that the scheme implies. */
        const char *port = starts_with(origin, "http://") ? ":80" : starts_with(origin, "https://") ? ":443" : "";
        size_t len = strlen(origin), tail = strlen(port);
        bool is_implied = len > tail && strcmp(origin + len - tail, port) == 0;
        cors->v = mem_grow(cors->v, cors->len + 1, sizeof *cors->v);
        cors->v[cors->len++] = mem_strndup(origin, is_implied ? len - tail : len);
        if (strcmp(origin, "*") == 0) cors->any = true;
    }
    free(list);
    return cors;
}

void cors_close(struct cors *cors)
{
    if (cors == NULL) return;
    for (size_t i = 0; i < cors->len; i++) free(cors->v[i]);
    free(cors->v);
    free(cors);
}

/* ---- Origins ---- */

static bool matches(const char *pattern, const char *origin)
{
    const char *star = strchr(pattern, '*');
    if (star == NULL) return strcasecmp(pattern, origin) == 0;
    size_t before = (size_t)(star - pattern), after = strlen(star + 1), len = strlen(origin);
    if (len < before + after || strncasecmp(pattern, origin, before) != 0) return false;
    const char *end = origin + len - after;
    return strcasecmp(star + 1, end) == 0 && memchr(origin + before, '/', (size_t)(end - origin) - before) == NULL;
}

static bool is_allowed(const struct cors *cors, const char *origin, const char *host)
{
    static const char *const apps[] = {"app://", "file://", "tauri://", "vscode-webview://"};
    if (cors->any) return true;
    /* Pages embedded in desktop programs, in the same list as Ollama's. */
    for (size_t i = 0; i < sizeof apps / sizeof *apps; i++)
        if (starts_with(origin, apps[i])) return true;
    struct host own;
    const char *its = starts_with(origin, "http://") ? origin + 7 : starts_with(origin, "https://") ? origin + 8 : NULL;
    /* Pages that this machine serves. */
    if (its != NULL && host_parse(its, strlen(its), &own) && host_is_loopback(&own)) return true;
    /* A page that was loaded from this very server. hosts_check() sees whether the server has that name; the scheme is
     * the reverse proxy's, if there is one. */
    if (its != NULL && host != NULL && *host != '\0' && strcasecmp(its, host) == 0) return true;
    for (size_t i = 0; i < cors->len; i++)
        if (matches(cors->v[i], origin)) return true;
    return false;
}

/* ---- The check of a request ---- */

int cors_check(const struct cors *cors, const struct http_request *http, enum cors_body body, hearth_error *error)
{
    const char *origin = http_header(http, "Origin");
    if (origin == NULL) return HEARTH_OK;
    if (!is_allowed(cors, origin, http_header(http, "Host"))) {
        /* The log names it, since the browser hides the answer from the page and mostly from the user too. */
        log_event(LOG_WARN, "http", "a web page was refused: server.allowed_origins lacks its origin",
                  log_str("origin", origin));
        return error_set(error, ERRORS_ORIGIN,
                         "web pages of this origin may not use this server: add it to server.allowed_origins");
    }
    if (strcmp(http_method(http), "POST") != 0) return HEARTH_OK;
    /* Browsers send forms and plain text of any page without a preflight. But for files, which are sent in forms, no
     * route reads those, so only JSON, which needs a preflight, is accepted. A form comes from any page, but browsers
     * name the page's origin with it: that alone keeps foreign ones out. */
    static const char json[] = "application/json", suffix[] = "+json";
    const char *type = http_header(http, "Content-Type");
    size_t len = type == NULL ? 0 : strcspn(type, "; \t"), tail = strlen(suffix);
    bool has_suffix =
        len > tail && starts_with(type, "application/") && strncasecmp(type + len - tail, suffix, tail) == 0;
    bool is_json = has_suffix || (len == strlen(json) && starts_with(type, json));
    if (body == CORS_FORM ? multipart_is_form(type) : is_json) return HEARTH_OK;
    return error_set(error, ERRORS_MEDIA_TYPE, "a web page must send its body with the header 'Content-Type: %s'",
                     body == CORS_FORM ? "multipart/form-data" : "application/json");
}

/* ---- Headers ---- */

void cors_put_headers(const struct cors *cors, struct http_request *http)
{
    const char *origin = http_header(http, "Origin");
    http_set_header(http, "Vary", "Origin");
    if (origin == NULL || !is_allowed(cors, origin, http_header(http, "Host"))) return;
    http_set_header(http, "Access-Control-Allow-Origin", origin);
    http_set_header(http, "Access-Control-Expose-Headers",
                    "X-Request-Id, Request-Id, Retry-After, X-RateLimit-Limit-Requests, X-RateLimit-Limit-Tokens, "
                    "X-RateLimit-Remaining-Requests, X-RateLimit-Remaining-Tokens, X-RateLimit-Reset-Requests, "
                    "X-RateLimit-Reset-Tokens, X-Hearth-Unknown-Fields, X-Hearth-Left-Out, X-Hearth-Not-Enforced, "
                    "X-Hearth-Context-Window, traceparent");
}

void cors_put_preflight_headers(struct http_request *http)
{
    http_set_header(http, "Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE, OPTIONS");
    http_set_header(http, "Access-Control-Max-Age", "86400");
    /* The headers of the official clients, and those that the preflight asks for. Authorization has to be listed: the
     * asterisk does not cover it, and older browsers do not know the asterisk. */
    static const char usual[] =
        "Authorization, Content-Type, X-Api-Key, Api-Key, OpenAI-Organization, OpenAI-Project, OpenAI-Beta, "
        "Anthropic-Version, Anthropic-Beta, Anthropic-Dangerous-Direct-Browser-Access, X-Request-Id, Idempotency-Key, "
        "X-Stainless-Arch, X-Stainless-Helper, X-Stainless-Helper-Method, X-Stainless-Lang, X-Stainless-OS, "
        "X-Stainless-Package-Version, "
        "X-Stainless-Retry-Count, X-Stainless-Runtime, X-Stainless-Runtime-Version, X-Stainless-Timeout";
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_, ";
    const char *asked = http_header(http, "Access-Control-Request-Headers");
    bool repeats = asked != NULL && asked[0] != '\0' && strlen(asked) < 2048 && asked[strspn(asked, letters)] == '\0';
    char *list = mem_format("%s%s%s, *", usual, repeats ? ", " : "", repeats ? asked : "");
    http_set_header(http, "Access-Control-Allow-Headers", list);
    free(list);
    /* Chromium's private network access: a preflight before a public page may reach an address of this machine or
     * network. */
    const char *private = http_header(http, "Access-Control-Request-Private-Network");
    if (private != NULL && strcmp(private, "true") == 0)
        http_set_header(http, "Access-Control-Allow-Private-Network", "true");
}

/* ---- Host names ---- */

struct hosts {
    struct host *v;
    size_t len;
    bool any;         /* "*" is allowed */
    bool any_address; /* a socket listens on all addresses of the machine: these change, and NAT may give others. A
                         numeric address needs no DNS, so that rebinding cannot forge it */
};

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

struct hosts *hosts_open(const char *allowed)
{
    struct hosts *hosts = mem_alloc(sizeof *hosts);
    char *list = mem_strdup(allowed), *rest = list, *host;
    char name[HOST_NAME_MAX_BYTES + 1] = "";
    /* "box.example.org": also "box", and "box.local", by which a network without a DNS server of its own knows it. */
    if (gethostname(name, sizeof name - 1) == 0 && name[0] != '\0') {
        hosts_add(hosts, name);
        name[strcspn(name, ".")] = '\0';
        hosts_add(hosts, name);
        char *local = mem_format("%s.local", name);
        hosts_add(hosts, local);
        free(local);
    }
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
