/* The server from start to end: open, listen, load the models, serve, drain, close. Where the sockets are also another
 * process's (handover.h), it neither accepts nor refuses connections before it serves and while it drains.
 *
 * Threads, beside those of pulls (pulls/pulls.h): the calling thread becomes the HTTP thread; the reading thread parses
 * bodies (reading.h); the answering threads make answers (workers.h). The loading thread loads the models and, at the
 * end, drains, while the HTTP thread still sends the last responses. They are started first: a shutdown must not fail
 * because no thread can be created. struct run belongs to the calling thread, which outlives the others. */
#include "serve/serve.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "serve/core/server.h"
#include "serve/events/publisher.h"
#include "serve/fields/unknown.h"
#include "serve/handover.h"
#include "serve/ollama/ollama.h"
#include "serve/pulls/pulls.h"
#include "serve/responses/response_store.h"
#include "serve/routes.h"
#include "serve/secrets.h"
#include "serve/status/status.h"
#include "serve/tracing/tracer.h"

#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* The choices of all requests beyond one of each may be so many times as many as connections. */
#define CHOICES_A_CONNECTION 4

/* After a drain, in ms: the time that clients get to receive the rest of their answers, and the time that connections
 * stay open after the last answer has ended. Idle keep-alive connections never close by themselves. */
#define FLUSH_MS 2000
#define QUIET_MS 200

/* Where another process takes over, in ms: the time that clients of open connections have for one more request before
 * these are closed. And the time that the cache has to be read again. */
#define IDLE_MS   1000
#define REOPEN_MS 10000

#define CHECK_MS  10 /* the interval of checks, at both */

/* ms that a second signal waits for the log to be written: that is immediate unless the log's disk or pipe blocks. */
#define LAST_LINES_MS 100

enum { SIGNAL_TERM, SIGNAL_INT, SIGNAL_HUP, N_SIGNALS };

struct run {
    struct server server;
    const hearth_config *config;
    const struct serve_options *options;
    struct event *signals[N_SIGNALS];
    struct event *flush_timer, *retire_timer;
    int64_t flush_deadline, quiet_deadline;
    long passed;               /* sockets of a parent */
    struct handover *handover; /* NULL: the configuration has none */
    bool shares_sockets;       /* another process has them, too, or may get them */
    bool signalled, stopping;  /* a signal to stop has come; the server stops, whatever the reason */
    int64_t drain_by;          /* running requests may go on until then: CLOCK_MONOTONIC ns */
    pthread_cond_t changed;    /* the server's stage, or `http_ended`; with the server's mutex */
    bool http_ended;           /* http_run() has returned */
    char *address;             /* the first that is listened on */
    struct secrets *secrets;
    struct publisher *publisher; /* of cache events; NULL: off */
    int load_rc;                 /* written by the loading thread before it posts note_load_failed() */
    hearth_error load_error;
    bool load_failed;
};

enum server_stage server_stage(struct server *server)
{
    pthread_mutex_lock(&server->mutex);
    enum server_stage stage = server->stage;
    pthread_mutex_unlock(&server->mutex);
    return stage;
}

const char *server_setting(const hearth_config *config, const char *key)
{
    const char *value = hearth_config_get(config, key);
    return value == NULL || value[0] == '\0' || strcmp(value, "null") == 0 ? NULL : value;
}

static const char *setting(const struct run *run, const char *key)
{
    return server_setting(run->config, key);
}

static double setting_number(const struct run *run, const char *key, double otherwise)
{
    const char *value = setting(run, key);
    return value == NULL ? otherwise : strtod(value, NULL);
}

/* ---- Loading ---- */

static void on_next_ready(void *ud);

static bool on_progress(void *ud, const char *model, float fraction)
{
    struct run *run = ud;
    struct server *server = &run->server;
    pthread_mutex_lock(&server->mutex);
    snprintf(server->loading_model, sizeof server->loading_model, "%s", model);
    server->loading_progress = (double)fraction;
    bool go_on = server->stage == SERVER_LOADING;
    pthread_mutex_unlock(&server->mutex);
    const struct serve_options *options = run->options;
    return (options->on_progress == NULL || options->on_progress(options->ud, model, fraction)) && go_on;
}

static void note_load_failed(void *ud)
{
    struct run *run = ud;
    /* A load that a signal cancelled is no failure: the drain is under way. */
    if (server_stage(&run->server) == SERVER_STOPPING) return;
    run->load_failed = true;
    http_stop(run->server.http);
}

/* Connections wait in the kernel until then. */
static void begin_accepting(void *ud)
{
    struct run *run = ud;
    hearth_error error;
    if (run->stopping) return;
    http_accept(run->server.http, true);
    if (!handover_has_former(run->handover)) return;
    http_keep_socket_files(run->server.http, false);
    if (handover_listen(run->handover, on_next_ready, run, &error) != HEARTH_OK)
        log_event(LOG_ERROR, "http", "no other process can take over from this one", log_str("error", error.message));
}

static void load(struct run *run)
{
    struct server *server = &run->server;
    const char *first = hearth_config_model(run->config, 0);
    if (first != NULL) on_progress(run, first, 0);
    run->load_rc = hearth_load(server->instance, on_progress, run, &run->load_error);
    if (run->load_rc != HEARTH_OK) {
        http_post(server->http, note_load_failed, run);
        return;
    }
    /* The former process has ended once this returns, and its last saves are found, unless this one is to end, too. */
    if (handover_has_former(run->handover)) {
        handover_take(run->handover);
        if (server_stage(&run->server) == SERVER_LOADING) hearth_reopen_cache(run->server.instance, REOPEN_MS);
    }
    pthread_mutex_lock(&server->mutex);
    bool ready = server->stage == SERVER_LOADING;
    if (ready) server->stage = SERVER_READY;
    pthread_mutex_unlock(&server->mutex);
    http_post(server->http, begin_accepting, run);
    if (ready && run->options->on_ready != NULL) run->options->on_ready(run->options->ud, server->instance);
}

/* ---- Sockets ---- */

static int read_socket_access(const hearth_config *config, struct http_socket_access *access, hearth_error *error)
{
    const char *mode = server_setting(config, "server.socket_mode"),
               *name = server_setting(config, "server.socket_group");
    struct group group, *found = NULL;
    char members[16384];
    *access = (struct http_socket_access){.mode = 0600, .group = (gid_t)-1};
    if (mode != NULL) access->mode = (mode_t)strtoul(mode, NULL, 8);
    if (name == NULL) return HEARTH_OK;
    getgrnam_r(name, &group, members, sizeof members, &found);
    if (found == NULL)
        return error_at(error, HEARTH_INVALID, "server.socket_group",
                        "server.socket_group: there is no group '%s': name one of /etc/group", name);
    access->group = found->gr_gid;
    return HEARTH_OK;
}

int serve_check(const hearth_config *config, hearth_error *error)
{
    struct http_socket_access access;
    int rc = secrets_check(config, error);
    return rc == HEARTH_OK ? read_socket_access(config, &access, error) : rc;
}

/* ---- Stopping ---- */

static void check_flushed(evutil_socket_t fd, short what, void *ud)
{
    (void)fd, (void)what;
    struct run *run = ud;
    struct http_server *http = run->server.http;
    int64_t now = clock_now(clock_monotonic());
    if (http_active(http) > 0) run->quiet_deadline = now + clock_from_ms(QUIET_MS);
    if (http_connections(http) == 0 || now >= run->flush_deadline || now >= run->quiet_deadline) http_stop(http);
}

static void note_drained(void *ud)
{
    struct run *run = ud;
    struct timeval often = {.tv_usec = CHECK_MS * 1000};
    live_end_all(run->server.live); /* these would never end */
    int64_t now = clock_now(clock_monotonic());
    run->flush_deadline = now + clock_from_ms(FLUSH_MS);
    run->quiet_deadline = now + clock_from_ms(QUIET_MS);
    event_add(run->flush_timer, &often);
}

/* One thread loads and then drains, so that a drain never runs while a load has not noticed the stop yet. */
static void *load_and_drain(void *ud)
{
    struct run *run = ud;
    struct server *server = &run->server;
    load(run);
    pthread_mutex_lock(&server->mutex);
    while (server->stage != SERVER_STOPPING && !run->http_ended) pthread_cond_wait(&run->changed, &server->mutex);
    bool stopping = server->stage == SERVER_STOPPING;
    pthread_mutex_unlock(&server->mutex);
    if (!stopping) return NULL; /* there is nothing to drain, since the load has failed */
    int64_t left = run->drain_by - clock_now(clock_monotonic());
    hearth_drain(server->instance, left > 0 ? (int64_t)clock_to_ms(left) : 0);
    http_post(server->http, note_drained, run);
    return NULL;
}

/* Requests that come now are refused, and running ones drain. */
static void refuse_requests(struct run *run)
{
    struct server *server = &run->server;
    pthread_mutex_lock(&server->mutex);
    server->stage = SERVER_STOPPING;
    pthread_cond_signal(&run->changed);
    pthread_mutex_unlock(&server->mutex);
}

static void check_retired(evutil_socket_t fd, short what, void *ud)
{
    (void)fd, (void)what;
    struct run *run = ud;
    if (!http_is_retired(run->server.http) && clock_now(clock_monotonic()) < run->drain_by) return;
    event_del(run->retire_timer);
    refuse_requests(run);
}

/* The process that takes over answers the clients that connect from now on. Those that are connected already are
 * answered here, once more. */
static void retire(struct run *run)
{
    struct server *server = &run->server;
    struct timeval often = {.tv_usec = CHECK_MS * 1000};
    http_accept(server->http, false);
    if (handover_has_former(run->handover)) handover_give_up(run->handover);
    if (server_stage(server) == SERVER_LOADING) {
        refuse_requests(run);
        return;
    }
    live_stop(server->live);
    http_retire(server->http, IDLE_MS);
    event_add(run->retire_timer, &often);
}

static void stop(struct run *run)
{
    if (run->stopping) return;
    run->stopping = true;
    run->drain_by = clock_now(clock_monotonic()) + (int64_t)(setting_number(run, "server.drain_timeout", 10) * 1e9);
    pulls_stop(run->server.pulls);
    if (run->shares_sockets) {
        retire(run);
    } else {
        refuse_requests(run);
        http_stop_listening(run->server.http);
    }
}

static void on_next_ready(void *ud)
{
    log_event(LOG_INFO, "http", "stopping: the next process is ready");
    stop(ud);
}

static void on_stop_signal(evutil_socket_t number, short what, void *ud)
{
    (void)what;
    struct run *run = ud;
    if (run->signalled) {
        log_flush(LAST_LINES_MS);
        _exit(128 + (int)number);
    }
    run->signalled = true;
    log_event(LOG_INFO, "http", "stopping", log_int("signal", (int64_t)number));
    stop(run);
}

/* Requests that were admitted under the former keys continue, but for those that would never end: their clients come
 * again, with a key that is checked anew. */
static void on_reloaded(void *live)
{
    live_end_all(live);
}

static void on_reload_signal(evutil_socket_t number, short what, void *ud)
{
    (void)number, (void)what;
    struct run *run = ud;
    hearth_log_reopen();
    secrets_reload(run->secrets, on_reloaded, run->server.live);
}

/* ---- Opening ---- */

/* A connection that is being answered has two descriptors, one of which watches for its end. Raises the limit of open
 * files (RLIMIT_NOFILE) as far as possible if it is too low for `wanted` connections, and returns how many it allows. A
 * server without descriptors could not even answer GET /health. */
static int limit_connections(int wanted)
{
    enum { EACH = 2, OTHERS = 256 };
    struct rlimit limit;
    rlim_t needed = (rlim_t)wanted * EACH + OTHERS;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return wanted;
    limit.rlim_cur = needed < limit.rlim_max ? needed : limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur == needed) return wanted;
    rlim_t others = limit.rlim_cur / 2 < OTHERS ? limit.rlim_cur / 2 : OTHERS;
    int fewer = (int)((limit.rlim_cur - others) / EACH);
    log_event(LOG_WARN, "http", "fewer connections than server.max_connections: raise the limit of open files",
              log_int("max_connections", wanted), log_int("connections", fewer),
              log_int("open_files", (int64_t)limit.rlim_cur));
    return fewer;
}

static int open_http(struct run *run, hearth_error *error)
{
    struct server *server = &run->server;
    struct http_limits limits = http_limits_default();
    struct http_handler handler = {.on_request = routes_request,
                                   .on_head = routes_head,
                                   .is_urgent = routes_is_urgent,
                                   .put_fault = routes_fault,
                                   .ud = server};
    struct http_socket_access access;
    if (read_socket_access(run->config, &access, error) != HEARTH_OK) return (int)error->code;
    limits.max_body = (size_t)setting_number(run, "server.max_body_bytes", (double)limits.max_body);
    limits.max_connections =
        limit_connections((int)setting_number(run, "server.max_connections", limits.max_connections));
    double first_s = setting_number(run, "server.first_request_timeout", limits.first_request_timeout_ms / 1e3);
    limits.first_request_timeout_ms = (int)(first_s * 1e3);
    if (limits.max_bodies < 2 * limits.max_body) limits.max_bodies = 2 * limits.max_body;
    server->max_body = limits.max_body;
    server->max_further_choices = CHOICES_A_CONNECTION * (size_t)limits.max_connections;
    server->http = http_open(&limits, &handler, error);
    if (server->http == NULL) return (int)error->code;
    http_set_socket_access(server->http, access);
    const struct pulls_place place = {.instance = server->instance,
                                      .config = run->config,
                                      .is_pulled = run->options->is_pulled,
                                      .ud = run->options->ud};
    server->pulls = pulls_open(&place, server->http);
    ollama_load_presets(server);
    server->reading = reading_open(server->http, error);
    if (server->reading != NULL) server->workers = workers_open(error);
    if (server->workers == NULL) return (int)error->code;
    server->live = live_open(server->instance, server->http, server->workers);
    return HEARTH_OK;
}

/* Sockets that other processes have opened already. */
static int adopt_sockets(struct run *run, hearth_error *error)
{
    struct http_server *http = run->server.http;
    const char *path = setting(run, "server.handover");
    int rc = handover_from_parent(run->passed, http, error);
    if (rc != HEARTH_OK) return rc;
    if (path != NULL) run->handover = handover_open(path, http, error);
    if (path != NULL && run->handover == NULL) return (int)error->code;
    run->shares_sockets = run->passed > 0 || path != NULL;
    http_accept(http, run->passed == 0 && !handover_has_former(run->handover));
    return HEARTH_OK;
}

/* `port` (may be NULL) gets the TCP port that is listened on; 0 for a unix socket. */
static int listen_one(struct run *run, const char *address, int *port, hearth_error *error)
{
    char *bound;
    int rc = http_listen(run->server.http, address, &bound, error);
    if (rc != HEARTH_OK) return rc;
    if (run->server.hosts != NULL) hosts_add(run->server.hosts, bound);
    log_event(LOG_INFO, "http", "listening", log_str("address", bound));
    if (run->options->on_listening != NULL) run->options->on_listening(run->options->ud, bound);
    if (run->address == NULL) run->address = mem_strdup(bound);
    if (port != NULL) *port = strncmp(bound, "unix:", 5) == 0 ? 0 : (int)strtol(strrchr(bound, ':') + 1, NULL, 10);
    free(bound);
    return HEARTH_OK;
}

/* The address for Ollama's clients; NULL: none of their own. */
static const char *ollama_address(const struct run *run)
{
    const char *wanted = setting(run, "server.ollama");
    return wanted != NULL && strcmp(wanted, "true") == 0 ? setting(run, "server.ollama_listen") : NULL;
}

static int listen_all(struct run *run, hearth_error *error)
{
    const char *setting_text = setting(run, "server.listen");
    if (setting_text == NULL)
        return error_at(error, HEARTH_INVALID, "server.listen", "server.listen is empty: name at least one address");
    char *list = mem_strdup(setting_text), *rest = list, *address;
    int rc = HEARTH_OK;
    while (rc == HEARTH_OK && (address = strsep(&rest, ",")) != NULL) {
        address += strspn(address, " ");
        if (address[0] != '\0') rc = listen_one(run, address, NULL, error);
    }
    free(list);
    if (rc != HEARTH_OK) return rc;
    /* The address for Ollama's clients. The error names Ollama itself, which most likely has the port. */
    const char *ollama = ollama_address(run);
    if (ollama == NULL || listen_one(run, ollama, &run->server.ollama_port, error) == HEARTH_OK) return HEARTH_OK;
    hearth_error heard = *error;
    return error_at(error, heard.code, "server.ollama_listen",
                    "server.ollama: %.300s: end the server that has the address, perhaps Ollama, or set "
                    "server.ollama_listen to another",
                    heard.message);
}

/* Whether other machines may reach an address. A host name is taken to be reachable. */
static bool is_reachable(const char *address)
{
    struct host host;
    if (strncmp(address, "unix:", 5) == 0) return false;
    return !host_parse(address, strlen(address), &host) || !host_is_loopback(&host) || host_is_unspecified(&host);
}

/* Cache events go to whoever asks for them. */
static int open_publisher(struct run *run, hearth_error *error)
{
    const char *named = setting(run, "server.kv_events_address");
    struct publisher_params params = {.events = setting(run, "server.kv_events"),
                                      .replay = setting(run, "server.kv_events_replay"),
                                      .address = named != NULL ? named : run->address};
    if (params.events == NULL) return HEARTH_OK;
    const char *const addresses[] = {params.events, params.replay};
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++)
        if (addresses[i] != NULL && is_reachable(addresses[i] + strlen("tcp://")))
            log_event(LOG_WARN, "events", "whoever reaches this address reads the tokens of all prompts",
                      log_str("address", addresses[i]));
    run->publisher = publisher_open(run->server.instance, &params, error);
    return run->publisher == NULL ? (int)error->code : HEARTH_OK;
}

static int open_tracer(struct run *run, hearth_error *error)
{
    char host[256] = "";
    struct tracer_params params = {.endpoint = setting(run, "server.otlp_endpoint"),
                                   .resource = {hearth_version(), host, run->address}};
    if (params.endpoint == NULL) return HEARTH_OK;
    gethostname(host, sizeof host - 1);
    run->server.tracer = tracer_open(&params, error);
    return run->server.tracer == NULL ? (int)error->code : HEARTH_OK;
}

static void warn_if_reachable(const char *listen)
{
    char *list = mem_strdup(listen), *rest = list, *address;
    while ((address = strsep(&rest, ",")) != NULL && !is_reachable(address)) continue;
    if (address != NULL)
        log_event(LOG_WARN, "http", "whoever reaches this server may use all of it: set server.api_keys_file",
                  log_str("listen", listen));
    free(list);
}

/* Without API keys only the addresses that are listened on and the Host check keep others out. */
static int listen_without_keys(struct run *run, hearth_error *error)
{
    struct server *server = &run->server;
    const char *listen = setting(run, "server.listen"), *ollama = ollama_address(run);
    server->hosts = hosts_open(setting(run, "server.allowed_hosts"));
    if (listen != NULL) warn_if_reachable(listen);
    if (ollama != NULL) warn_if_reachable(ollama);
    int rc = listen_all(run, error);
    hosts_add_sockets(server->hosts, server->http);
    return rc;
}

static int serve(struct run *run, hearth_error *error)
{
    pthread_t thread;
    int rc = thread_start(&thread, load_and_drain, run, "loads the models", error);
    if (rc != HEARTH_OK) return rc;
    http_run(run->server.http);
    http_stop_listening(run->server.http); /* nobody would be answered, and whoever starts now may have the addresses */
    handover_stop(run->handover);
    pthread_mutex_lock(&run->server.mutex);
    run->http_ended = true;
    pthread_cond_signal(&run->changed);
    pthread_mutex_unlock(&run->server.mutex);
    pthread_join(thread, NULL);
    return HEARTH_OK;
}

/* Signal handlers are installed first: a program that learns the address may send a signal at once. */
static int listen_and_serve(struct run *run, hearth_error *error)
{
    static const struct {
        int number;
        event_callback_fn handler;
    } wanted[N_SIGNALS] = {[SIGNAL_TERM] = {SIGTERM, on_stop_signal},
                           [SIGNAL_INT] = {SIGINT, on_stop_signal},
                           [SIGNAL_HUP] = {SIGHUP, on_reload_signal}};
    struct event_base *base = http_base(run->server.http);
    signal(SIGPIPE, SIG_IGN); /* a client that disconnects is an error of write(), not a reason to exit */
    signal(SIGXFSZ, SIG_IGN); /* so is a file beyond RLIMIT_FSIZE */
    for (int i = 0; i < N_SIGNALS; i++) {
        run->signals[i] = evsignal_new(base, wanted[i].number, wanted[i].handler, run);
        event_add(run->signals[i], NULL);
    }
    run->flush_timer = event_new(base, -1, EV_PERSIST, check_flushed, run);
    run->retire_timer = event_new(base, -1, EV_PERSIST, check_retired, run);
    int rc = run->server.keys != NULL ? listen_all(run, error) : listen_without_keys(run, error);
    char *unused = rc == HEARTH_OK ? http_close_unused(run->server.http) : NULL;
    if (unused != NULL)
        rc = error_at(error, HEARTH_INVALID, "server.listen",
                      "server.listen does not name %s, which a socket that was passed (LISTEN_FDS) listens on: make "
                      "them the same",
                      unused);
    free(unused);
    if (rc == HEARTH_OK && !handover_has_former(run->handover))
        rc = handover_listen(run->handover, on_next_ready, run, error);
    if (rc == HEARTH_OK) rc = open_publisher(run, error);
    if (rc == HEARTH_OK) rc = open_tracer(run, error);
    if (rc == HEARTH_OK) rc = serve(run, error);
    for (int i = 0; i < N_SIGNALS; i++) event_free(run->signals[i]);
    event_free(run->flush_timer);
    event_free(run->retire_timer);
    return rc;
}

int serve_run(const hearth_config *config, const struct serve_options *options, hearth_error *error)
{
    hearth_error unread;
    if (error == NULL) error = &unread;
    struct serve_options none = {0};
    struct run run = {.config = config, .options = options != NULL ? options : &none, .passed = handover_passed()};
    struct server *server = &run.server;
    server->limits = run.options->limits != NULL ? *run.options->limits : exchange_limits_default;
    server->limits.stream_tokens =
        (size_t)setting_number(&run, "server.stream_tokens", (double)server->limits.stream_tokens);
    server->ratelimits = ratelimits_open(clock_monotonic());
    server->stored =
        stored_open((struct stored_bounds){.entries = (size_t)setting_number(&run, "server.responses_max", 1000),
                                           .bytes = (size_t)setting_number(&run, "server.responses_max_mb", 64) << 20});
    server->unknown = unknown_log_open();
    server->cors = cors_open(setting(&run, "server.allowed_origins"));
    pthread_mutex_init(&server->mutex, NULL);
    pthread_cond_init(&run.changed, NULL);
    run.secrets = secrets_open(config, server, error);
    int rc = run.secrets == NULL ? (int)error->code : HEARTH_OK;
    if (rc == HEARTH_OK) server->instance = hearth_open(config, error);
    if (rc == HEARTH_OK) rc = server->instance == NULL ? (int)error->code : open_http(&run, error);
    if (rc == HEARTH_OK) rc = secrets_use_tls(run.secrets, error);
    if (rc == HEARTH_OK) rc = adopt_sockets(&run, error);
    if (rc == HEARTH_OK) rc = listen_and_serve(&run, error);
    if (run.load_failed) {
        rc = run.load_rc;
        *error = run.load_error;
    }
    reading_close(server->reading);
    workers_stop(server->workers);
    pulls_join(server->pulls);
    live_close(server->live);
    handover_stop(run.handover);
    secrets_close(run.secrets);
    if (server->http != NULL) http_close(server->http);
    workers_close(server->workers);
    pulls_close(server->pulls);
    publisher_close(run.publisher);
    tracer_close(server->tracer);
    free(run.address);
    hearth_close(server->instance);
    handover_close(run.handover);
    keys_close(server->keys);
    ratelimits_close(server->ratelimits);
    cors_close(server->cors);
    stored_close(server->stored);
    hosts_close(server->hosts);
    free(server->counts);
    exemplars_release(&server->exemplars);
    unknown_log_close(server->unknown);
    pthread_cond_destroy(&run.changed);
    pthread_mutex_destroy(&server->mutex);
    return rc;
}
