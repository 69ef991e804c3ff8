/* Checks across keys: keys that exclude or need each other, and the files and disks that they name. Reads the
 * configuration and the file system, and changes nothing. */
#include "base/buf.h"
#include "base/host.h"
#include "base/memory.h"
#include "base/os.h"
#include "base/thread.h"
#include "config/edit.h"
#include "config/text.h"

#include <errno.h>
#include <float.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

struct check {
    bool read_cleanly; /* no fault was found before */
    const struct hearth_config *config;
    const struct config_model *model; /* NULL outside models.* */
    struct config_faults *faults;
};

/* ---- Reporting ---- */

static const struct config_note *note_of(const struct check *c, const char *pattern)
{
    const struct config_note *notes = c->model != NULL ? c->model->notes : c->config->notes;
    return &notes[config_row_index(config_row_find(pattern))];
}

/* Reports a fault of the key with that pattern, at the line where it was set. */
__attribute__((format(printf, 3, 4))) static void complain(struct check *c, const char *of, const char *format, ...)
{
    const struct config_note *note = note_of(c, of);
    const char *star = c->model != NULL ? strchr(of, '*') : NULL;
    char *key = star == NULL ? mem_strdup(of) : mem_format("%.*s%s%s", (int)(star - of), of, c->model->name, star + 1);
    char message[512];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    const char *file = note->file > 0 ? c->config->files.v[note->file - 1] : "";
    config_fault(c->faults, HEARTH_INVALID, (struct config_location){file, note->line, key}, "%s", message);
    free(key);
}

static void check_file(struct check *c, const char *pattern, const char *path)
{
    struct stat info;
    if (path == NULL) return;
    if (stat(path, &info) != 0 || access(path, R_OK) != 0)
        complain(c, pattern, "cannot read %s: %s", path, strerror(errno));
    else if (S_ISDIR(info.st_mode))
        complain(c, pattern, "cannot read %s: it is a folder, name a file", path);
}

/* ---- The server ---- */

/* The fault of an address to listen on, or NULL. */
static const char *address_fault(const char *address)
{
    if (!strncmp(address, "unix:", 5)) {
        size_t len = strlen(address + 5);
        if (len == 0) return "names no path after unix:";
        return len < sizeof((struct sockaddr_un *)0)->sun_path ? NULL : "has a path too long for a socket";
    }
    const char *colon = strrchr(address, ':'), *port = colon == NULL ? "" : colon + 1;
    size_t digits = strspn(port, "0123456789");
    if (digits == 0 || digits > 5 || port[digits] != '\0' || strtol(port, NULL, 10) > 65535)
        return "does not end in :PORT, from 0 to 65535";
    size_t host = (size_t)(colon - address);
    if (host == 0) return "names no host before the port";
    if (address[0] == '[' && address[host - 1] == ']')
        return host > 2 && strspn(address + 1, "0123456789abcdefABCDEF:.%") >= host - 2 ? NULL : "is no IPv6 address";
    if (memchr(address, ':', host) != NULL) return "needs brackets around its IPv6 address: [ADDRESS]:PORT";
    return strcspn(address, " /[]") < host ? "has a host name with a character that none has" : NULL;
}

/* An endpoint of ZeroMQ to listen on, or NULL. */
static void check_endpoint(struct check *c, const char *pattern, const char *endpoint)
{
    static const char scheme[] = "tcp://", of_unix[] = "tcp://unix:";
    if (endpoint == NULL) return;
    const char *fault = strncmp(endpoint, scheme, strlen(scheme)) != 0     ? "does not begin with tcp://"
                        : strncmp(endpoint, of_unix, strlen(of_unix)) == 0 ? "names a socket of another kind"
                                                                           : address_fault(endpoint + strlen(scheme));
    if (fault != NULL) complain(c, pattern, "%s %s: write it as tcp://HOST:PORT, or tcp://*:PORT", endpoint, fault);
}

/* Whether another machine may use it as it is written. */
static bool is_an_address(const char *address)
{
    struct host host;
    return host_parse(address, strlen(address), &host) && !host_is_unspecified(&host);
}

/* A topic is "kv@ADDRESS@MODEL". */
static void check_events(struct check *c)
{
    const struct config_server *server = &c->config->server;
    const char *address = server->kv_events_address;
    check_endpoint(c, "server.kv_events", server->kv_events);
    check_endpoint(c, "server.kv_events_replay", server->kv_events_replay);
    if (server->kv_events_replay != NULL && server->kv_events == NULL)
        complain(c, "server.kv_events_replay", "needs server.kv_events, the events that are to be had again");
    if (address != NULL && (address_fault(address) != NULL || !is_an_address(address)))
        complain(c, "server.kv_events_address", "%s is no HOST:PORT that another machine could use", address);
    if (server->kv_events != NULL && server->handover != NULL)
        complain(c, "server.handover",
                 "excludes server.kv_events, whose addresses two processes cannot have at once: unset one of them");
    bool listens = server->listen.len > 0 && is_an_address(server->listen.v[0]);
    if (server->kv_events != NULL && address == NULL && !listens)
        complain(c, "server.kv_events",
                 "needs server.kv_events_address, the HOST:PORT by which routers know this server: the first address "
                 "of server.listen is none that they could use");
}

/* The fault of the URL of a collector, or NULL. */
static const char *collector_fault(const char *url)
{
    const char *rest = !strncmp(url, "http://", 7) ? url + 7 : !strncmp(url, "https://", 8) ? url + 8 : NULL;
    if (rest == NULL) return "begins with neither http:// nor https://";
    if (strcspn(rest, "/") == 0) return "names no host";
    return strpbrk(rest, "?#@ ") != NULL ? "has more than host, port and path" : NULL;
}

/* The fault of the origin of a web page, or NULL. */
static const char *origin_fault(const char *origin)
{
    const char *colon = strstr(origin, "://"), *star = strchr(origin, '*');
    if (!strcmp(origin, "*") || !strcmp(origin, "null")) return NULL;
    if (colon == NULL || colon == origin) return "is no origin: write it as scheme://host or scheme://host:port";
    if (strpbrk(colon + 3, "/?#@, ") != NULL) return "has more than scheme, host and port: leave out all else";
    return star != NULL && strchr(star + 1, '*') != NULL ? "has more than one *" : NULL;
}

static void check_server(struct check *c)
{
    const struct config_server *server = &c->config->server;
    const struct config_strings *listen = &server->listen;
    const char *ollama = server->ollama_listen, *wrong = address_fault(ollama);
    if (wrong != NULL) complain(c, "server.ollama_listen", "%s %s", ollama, wrong);
    if (listen->len == 0) complain(c, "server.listen", "needs at least one address");
    for (size_t i = 0; i < listen->len; i++) {
        const char *fault = address_fault(listen->v[i]);
        if (fault != NULL) complain(c, "server.listen", "%s %s", listen->v[i], fault);
    }
    check_events(c);
    const char *fault = server->otlp_endpoint == NULL ? NULL : collector_fault(server->otlp_endpoint);
    if (fault != NULL)
        complain(c, "server.otlp_endpoint", "%s %s: write it as http://HOST:PORT, without /v1/traces",
                 server->otlp_endpoint, fault);
    if (server->default_model != NULL && config_resolve_model(c->config, server->default_model) == NULL)
        complain(c, "server.default_model", "there is no model '%s'", server->default_model);
    check_file(c, "server.api_keys_file", server->api_keys_file);
    /* Origins whose pages may send requests, and host names that requests may ask for. */
    for (size_t i = 0; i < server->allowed_origins.len; i++) {
        const char *origin = server->allowed_origins.v[i], *why = origin_fault(origin);
        if (why != NULL) complain(c, "server.allowed_origins", "%s %s", origin, why);
    }
    struct host host;
    for (size_t i = 0; i < server->allowed_hosts.len; i++)
        if (strcmp(server->allowed_hosts.v[i], "*") != 0 && !host_parse_listed(server->allowed_hosts.v[i], &host))
            complain(c, "server.allowed_hosts", "%s is no host name or address: write it without scheme and path",
                     server->allowed_hosts.v[i]);
    if (server->isolate_keys == CONFIG_TRUE && server->api_keys_file == NULL)
        complain(c, "server.isolate_keys", "needs server.api_keys_file, the keys whose owners are kept apart");
    check_file(c, "server.tls_cert", server->tls_cert);
    check_file(c, "server.tls_key", server->tls_key);
    if (server->tls_cert != NULL && server->tls_key == NULL)
        complain(c, "server.tls_cert", "needs server.tls_key, the private key that belongs to it");
    if (server->tls_key != NULL && server->tls_cert == NULL)
        complain(c, "server.tls_key", "needs server.tls_cert, the certificate that belongs to it");
}

/* ---- The store ---- */

/* Bytes of what all names on a server begin with. */
#define SERVER_PREFIX_MOST 256

/* Bytes of the file system that the folder is on, or will be once it is created; 0 if unknown. */
static uint64_t disk_bytes(const char *folder)
{
    struct statvfs disk;
    char *path = mem_format("%s", folder);
    int failed = statvfs(path, &disk);
    while (failed != 0 && errno == ENOENT && strcmp(path, "/") && strcmp(path, ".")) {
        char *slash = strrchr(path, '/');
        if (slash == NULL)
            memcpy(path, ".", 2);
        else
            slash[slash == path ? 1 : 0] = '\0';
        failed = statvfs(path, &disk);
    }
    free(path);
    return failed != 0 ? 0 : (uint64_t)disk.f_blocks * disk.f_frsize;
}

#define QUOTA_KEY(ID, name, ...) [STORE_##ID] = "cache.tiers." #name ".quota_mb",

/* The keys of a tier on a server. */
struct server_keys {
    const char *url, *prefix, *password_file, *ca_file, *certificate_file, *certificate_key_file, *key_file, *encrypt;
};

/* A file that says something about TLS. */
static void check_tls_file(struct check *c, const char *key, const char *path, const struct config_server_tier *server)
{
    struct redis_address address;
    check_file(c, key, path);
    if (path != NULL && redis_address_parse(server->url, &address) == NULL && !address.tls)
        complain(c, key, "is for rediss://, and %s is without TLS", server->url);
}

static void check_server_tier(struct check *c, const struct server_keys *keys, const struct config_server_tier *server)
{
    struct redis_address address;
    if (server->url == NULL) return;
    const char *fault = redis_address_parse(server->url, &address);
    if (fault != NULL) complain(c, keys->url, "%s %s", server->url, fault);
    check_file(c, keys->password_file, server->password_file);
    check_tls_file(c, keys->ca_file, server->ca_file, server);
    check_tls_file(c, keys->certificate_file, server->certificate_file, server);
    check_tls_file(c, keys->certificate_key_file, server->certificate_key_file, server);
    check_file(c, keys->key_file, server->key_file);
    if (server->certificate_key_file != NULL && server->certificate_file == NULL)
        complain(c, keys->certificate_key_file, "is the key of certificate_file, which is missing");
    if (fault == NULL && server->key_file == NULL && !redis_address_is_local(&address))
        complain(c, keys->key_file,
                 "is missing: %s is on another machine, and whoever can write there could make up what is reused; "
                 "openssl rand -hex 32 makes a key",
                 server->url);
    if (server->encrypt && server->key_file == NULL)
        complain(c, keys->encrypt, "needs key_file, the secret that entries are encrypted with");
    if (strlen(server->prefix) > SERVER_PREFIX_MOST)
        complain(c, keys->prefix, "is longer than %d bytes", SERVER_PREFIX_MOST);
}

#define NO_SERVER(...)
#define SERVER_KEYS(ID, name, ...)                                                                                     \
    {STORE_##ID,                                                                                                       \
     {"cache.tiers." #name ".url", "cache.tiers." #name ".prefix", "cache.tiers." #name ".password_file",              \
      "cache.tiers." #name ".ca_file", "cache.tiers." #name ".certificate_file",                                       \
      "cache.tiers." #name ".certificate_key_file", "cache.tiers." #name ".key_file",                                  \
      "cache.tiers." #name ".encrypt"}},

/* ---- A model ---- */

static void check_model_files(struct check *c)
{
    const struct config_model *m = c->model;
    if (m->deterministic && m->kv_unified == CONFIG_TRUE)
        complain(c, "models.*.kv_unified",
                 "must not be true with deterministic, which needs a stream of cells for each slot");
    /* A file with other faults may contain a path that could not be read. */
    if (m->path == NULL && c->read_cleanly)
        complain(c, "models.*.path", "is missing: name the GGUF file of this model");
    check_file(c, "models.*.path", m->path);
    check_file(c, "models.*.mmproj", m->mmproj);
    check_file(c, "models.*.draft.path", m->draft.path);
    if (m->image_max_tokens > 0 && m->image_min_tokens > m->image_max_tokens)
        complain(c, "models.*.image_min_tokens", "is more than image_max_tokens, which is %lld",
                 (long long)m->image_max_tokens);
    struct stat info;
    if (m->media_path != NULL) {
        if (stat(m->media_path, &info) != 0)
            complain(c, "models.*.media_path", "cannot read %s: %s", m->media_path, strerror(errno));
        else if (!S_ISDIR(info.st_mode))
            complain(c, "models.*.media_path", "%s is no folder", m->media_path);
    }
    check_file(c, "models.*.jinja_file", m->jinja_file);
    for (size_t i = 0; i < m->lora.len; i++) check_file(c, "models.*.lora", m->lora.v[i].path);
}

static void check_split(struct check *c)
{
    const struct config_strings *parts = &c->model->tensor_split;
    double sum = 0, part;
    for (size_t i = 0; i < parts->len; i++) {
        if (text_to_number(parts->v[i], &part) && part >= 0 && part <= FLT_MAX) {
            sum += part;
            continue;
        }
        complain(c, "models.*.tensor_split", "%s is no part: write a number from 0 for each device, such as [3, 1]",
                 parts->v[i]);
        return;
    }
    if (parts->len > 0 && sum == 0) complain(c, "models.*.tensor_split", "gives no device a part");
    if (parts->len > 0 && !strcmp(c->model->split_mode, "none"))
        complain(c, "models.*.tensor_split", "needs the split_mode layer or row: with none one device takes all");
}

static void check_model(struct check *c)
{
    const struct config_model *m = c->model;
    for (size_t i = 0; i < m->aliases.len; i++) {
        const struct config_model *means = config_resolve_model(c->config, m->aliases.v[i]);
        if (means != m) complain(c, "models.*.aliases", "%s is the model %s already", m->aliases.v[i], means->name);
    }
    check_model_files(c);
    if (m->system_prompt_cache && m->incremental_cache) /* people search for this text: it stays word for word */
        complain(c, "models.*.system_prompt_cache",
                 "cannot enable both SystemPromptCache and IncrementalCache; use IncrementalCache alone (it includes "
                 "the system prompt)");
    if (m->system_prompt_assumed && !m->system_prompt_cache)
        complain(c, "models.*.system_prompt_assumed", "needs system_prompt_cache");
    check_split(c);
    bool cpus[OS_CPUS];
    if (m->cpus != NULL && !thread_read_cpus(m->cpus, cpus))
        complain(c, "models.*.cpus", "'%s' is no list of CPUs: write numbers below %d and ranges, as in 0-7,16",
                 m->cpus, OS_CPUS);
    if (m->cpus != NULL && strcmp(c->config->server.numa, "none") != 0)
        complain(c, "models.*.cpus", "server.numa is %s, which chooses the CPUs itself: set one of them",
                 c->config->server.numa);
    if (m->cpu_strict && strcmp(c->config->server.numa, "none") != 0)
        complain(c, "models.*.cpu_strict", "server.numa is %s, which chooses the CPUs itself: set one of them",
                 c->config->server.numa);
    if (m->n_ubatch > m->n_batch)
        complain(c, "models.*.n_ubatch", "%lld is more than n_batch, %lld", (long long)m->n_ubatch,
                 (long long)m->n_batch);
    bool quantised = m->cache_type_v[0] == 'q' || !strncmp(m->cache_type_v, "iq", 2);
    if (quantised && !strcmp(m->flash_attention, "off"))
        complain(c, "models.*.cache_type_v", "%s needs flash attention, and flash_attention is off", m->cache_type_v);
    if (m->context_window * m->n_seq_max > INT_MAX)
        complain(c, "models.*.context_window", "%lld tokens x %lld slots are more cells than a context can have, %d",
                 (long long)m->context_window, (long long)m->n_seq_max, INT_MAX);
}

void config_check_all(const struct hearth_config *config, struct config_faults *faults)
{
    struct check c = {.config = config, .faults = faults, .read_cleanly = faults->code == 0};
    check_server(&c);
    /* A quota that was not set is no fault on a small disk. */
    static const char *const keys[STORE_TIERS] = {STORE_TIER_TABLE(QUOTA_KEY, QUOTA_KEY, QUOTA_KEY)};
    for (size_t i = 0; i < STORE_TIERS; i++) {
        const struct config_tier *tier = &c.config->cache.tiers[i];
        if (tier->path == NULL || tier->quota_mb == 0 || !note_of(&c, keys[i])->set) continue;
        uint64_t bytes = disk_bytes(tier->path);
        if (bytes > 0 && (uint64_t)tier->quota_mb > bytes >> 20)
            complain(&c, keys[i], "%lld MiB are more than the %llu MiB of the disk that %s is on",
                     (long long)tier->quota_mb, (unsigned long long)(bytes >> 20), tier->path);
    }
    static const struct {
        enum store_tier tier;
        struct server_keys keys;
    } servers[] = {STORE_TIER_TABLE(NO_SERVER, NO_SERVER, SERVER_KEYS)};
    for (size_t i = 0; i < sizeof servers / sizeof *servers; i++)
        check_server_tier(&c, &servers[i].keys, &c.config->cache.tiers[servers[i].tier].server);
    for (size_t i = 0; i < config->n_models; i++) {
        c.model = &config->models[i];
        check_model(&c);
    }
}

int hearth_config_check(const hearth_config *config, hearth_config_report report, void *ud, hearth_error *error)
{
    struct config_faults faults = {.report = report, .ud = ud, .error = error};
    config_check_all(config, &faults);
    return faults.code;
}
