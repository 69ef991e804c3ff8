/* HTTP requests that are being served: ids, access log, request metrics. HTTP thread only; the handler that answers
 * a call owns it. */
#include "serve/core/call.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/os.h"
#include "serve/core/errors.h"
#include "serve/core/keys.h"
#include "serve/core/server.h"
#include "serve/tracing/tracer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A client that disconnected before its answer: nginx's status for it, in the log and the metrics only. */
#define STATUS_CLIENT_GONE 499

void call_random_name(char *out, size_t size)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz012345"; /* 32: no letter is likelier */
    os_random(out, size - 1);
    for (size_t i = 0; i + 1 < size; i++) out[i] = letters[(unsigned char)out[i] % 32];
    out[size - 1] = '\0';
}

void call_set_id(const struct server *server, struct http_request *http, char id[CALL_ID_SIZE])
{
    /* The client's own id, if it can be written into a header, a log line and a fixed-size field. */
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:";
    const char *given = http_header(http, "X-Request-Id");
    size_t len = given == NULL ? 0 : strlen(given);
    if (len > 0 && len < CALL_ID_SIZE && strspn(given, allowed) == len) {
        snprintf(id, CALL_ID_SIZE, "%s", given);
    } else {
        char name[25];
        call_random_name(name, sizeof name);
        snprintf(id, CALL_ID_SIZE, "req-%s", name);
    }
    http_set_header(http, "X-Request-Id", id);
    cors_put_headers(server->cors, http);
}

struct call *call_open(struct server *server, struct http_request *http)
{
    struct call *call = mem_alloc(sizeof *call);
    call->server = server;
    call->http = http;
    call->route = "other";
    call->method = mem_strdup(http_method(http));
    call->path = mem_strdup(http_path(http));
    call->start = clock_now(clock_monotonic());
    call_set_id(server, http, call->id);
    return call;
}

/* Bytes at the beginning of `path` that match the parameter in braces at the beginning of `pattern`. */
static size_t part_len(const char *pattern, const char *path)
{
    bool is_last = strchr(pattern, '}')[1] == '\0';
    return is_last ? strlen(path) : strcspn(path, "/");
}

bool call_path_matches(const char *pattern, const char *path)
{
    for (size_t fixed; pattern[fixed = strcspn(pattern, "{")] != '\0';) {
        if (strncmp(pattern, path, fixed) != 0) return false;
        pattern += fixed;
        path += fixed;
        size_t len = part_len(pattern, path);
        if (len == 0) return false;
        pattern = strchr(pattern, '}') + 1;
        path += len;
    }
    return strcmp(pattern, path) == 0;
}

const char *call_path_rest(const struct call *call)
{
    return call->path + strcspn(call->route, "{");
}

char *call_path_part(const struct call *call, size_t n)
{
    const char *pattern = call->route, *path = call->path;
    for (;; n--) {
        size_t fixed = strcspn(pattern, "{");
        pattern += fixed;
        path += fixed;
        size_t len = part_len(pattern, path);
        if (n == 0) return mem_strndup(path, len);
        pattern = strchr(pattern, '}') + 1;
        path += len;
    }
}

void call_set_key(struct call *call, const struct key *key)
{
    if (key == NULL) return;
    call->key = mem_strdup(key->name[0] != '\0' ? key->name : "unnamed");
    call->owner = access_owner(key);
    call->grants = key->grants;
    call->limit = ratelimit_ref(call->server->ratelimits, key);
}

void call_trace(struct call *call, const char *operation)
{
    bool one = http_count_headers(call->http, "traceparent") == 1; /* several are as good as none */
    struct trace *trace = tracer_begin(call->server->tracer, one ? http_header(call->http, "traceparent") : NULL);
    char self[TRACEPARENT_SIZE];
    if (trace == NULL) return;
    trace->operation = operation;
    call->trace = trace;
    traceparent_format(&trace->self, self);
    http_set_header(call->http, "traceparent", self);
}

bool call_may(const struct call *call, int grant)
{
    return call->server->keys == NULL || (call->grants & grant) != 0;
}

char *call_salt(const struct call *call, const char *own)
{
    if (!call->server->isolate_keys || call->owner == NULL) return mem_strdup(own);
    return mem_format("%s\n%s", call->owner, own == NULL ? "" : own);
}

const char *call_own_salt(const char *salt)
{
    const char *owner_end = salt == NULL ? NULL : strchr(salt, '\n'), *own = owner_end == NULL ? salt : owner_end + 1;
    return own == NULL || own[0] == '\0' ? NULL : own;
}

const char *call_model(const struct call *call, const char *named)
{
    const hearth *instance = call->server->instance;
    hearth_model_info info;
    hearth_error none;
    if (named != NULL) return named;
    int32_t i = hearth_find_model(instance, NULL, &none);
    return i >= 0 && hearth_model(instance, (size_t)i, &info) ? info.name : "";
}

void call_set_model(struct call *call, const char *model)
{
    free(call->model);
    call->model = mem_strdup(model);
    if (call->trace != NULL) trace_set_text(call->trace->model, model);
}

static void finish_call(struct call *call, int status)
{
    struct server *server = call->server;
    int64_t ended_at = clock_now(clock_monotonic());
    char trace_id[2 * TRACE_ID_BYTES + 1] = "";
    if (call->trace != NULL) trace_put_hex(call->trace->self.trace, TRACE_ID_BYTES, trace_id);
    log_event(LOG_INFO, "http", "request", log_str("method", call->method), log_str("path", call->path),
              log_int("status", status), log_num("took_ms", clock_to_ms(ended_at - call->start)),
              log_str("request_id", call->id), call->key != NULL ? log_str("key", call->key) : log_nothing(),
              call->trace != NULL ? log_str("trace_id", trace_id) : log_nothing());
    size_t i = 0;
    while (i < server->n_counts &&
           (server->counts[i].status != status || strcmp(server->counts[i].route, call->route) != 0))
        i++;
    if (i == server->n_counts) {
        server->counts = mem_grow(server->counts, server->n_counts + 1, sizeof *server->counts);
        server->counts[server->n_counts++] = (struct server_count){.route = call->route, .status = status};
    }
    server->counts[i].n++;
    /* Names the request in its trace, which it takes from the call. */
    if (call->trace != NULL) {
        struct trace *trace = call->trace;
        trace->method = "POST"; /* others compute nothing, and are not traced */
        trace->route = call->route;
        trace->began_at = call->start;
        trace->ended_at = ended_at;
        trace->status = status;
        trace_set_text(trace->path, call->path);
        snprintf(trace->request_id, sizeof trace->request_id, "%s", call->id);
        tracer_end(server->tracer, trace);
    }
    ratelimit_unref(call->limit);
    if (call->counted > 0) http_recount(server->http, call->counted, 0);
    free(call->method);
    free(call->path);
    free(call->key);
    free(call->owner);
    free(call->model);
    json_decref(call->places);
    free(call);
}

/* ---- Calls that are answered on an answering thread ---- */

struct call_away {
    struct work work;
    struct call *call;
    call_handler *handler;
    void *ud;
    /* The response. */
    int status;
    const char *content_type;
    struct buf body;
};

static void reply_away(void *ud)
{
    struct call_away *away = ud;
    struct call *call = away->call;
    http_name(call->server->http, call->route);
    call->away = NULL;
    call_reply(call, away->status, away->content_type, &away->body);
    free(away);
}

/* The handler has ended with call_reply(). */
static void run_away(void *ud)
{
    struct call_away *away = ud;
    struct http_server *http = away->call->server->http;
    away->handler(away->call, away->ud);
    http_post(http, reply_away, away);
}

void call_away(struct call *call, call_handler *handler, void *ud)
{
    struct call_away *away = mem_alloc(sizeof *away);
    *away = (struct call_away){.call = call, .handler = handler, .ud = ud};
    away->work = (struct work){.lane = WORK_ROUTE, .run = run_away, .ud = away};
    call->away = away;
    workers_do(call->server->workers, &away->work);
}

/* ---- Responses ---- */

static void report_lists(struct call *call)
{
    char value[HEADER_LIST_VALUE];
    if (header_list_value(&call->left_out, value)) {
        http_set_header(call->http, "X-Hearth-Left-Out", value);
        log_event(LOG_INFO, "serve", "left out what the model cannot be shown", log_str("request_id", call->id),
                  call->model == NULL ? log_nothing() : log_str("model", call->model), log_str("paths", value),
                  log_int("count", (int64_t)(call->left_out.named + call->left_out.more)));
    }
    if (header_list_value(&call->unenforced, value)) http_set_header(call->http, "X-Hearth-Not-Enforced", value);
}

void call_reply(struct call *call, int status, const char *content_type, struct buf *body)
{
    if (call->away != NULL) {
        call->away->status = status;
        call->away->content_type = content_type;
        call->away->body = *body;
        *body = (struct buf){0};
        return;
    }
    struct http_request *http = call->http;
    report_lists(call);
    finish_call(call, status);
    http_reply_buf(http, status, content_type, body);
}

void call_reply_success(struct call *call)
{
    struct buf body = {0};
    buf_puts(&body, "{\"success\":true}");
    call_reply(call, 200, "application/json", &body);
}

void call_set_retry(struct http_request *http, const struct errors_kind *kind)
{
    char seconds[16];
    if (kind->retry_after_s == 0) return;
    snprintf(seconds, sizeof seconds, "%d", kind->retry_after_s);
    http_set_header(http, "Retry-After", seconds);
}

void call_fail(struct call *call, const hearth_error *error, call_error_form *form)
{
    const struct errors_kind *kind = errors_kind(error->code);
    call_set_retry(call->http, kind);
    struct buf body = {0};
    hearth_error renamed = places_rename(call->places, error);
    form(&body, &renamed, call->id);
    call_reply(call, kind->status, "application/json", &body);
}

void call_refuse(struct call *call, call_error_form *form, int code, const char *param, const char *format, ...)
{
    hearth_error error;
    char message[sizeof error.message];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    error_at(&error, code, param, "%s", message);
    call_fail(call, &error, form);
}

void call_begin_whole(struct call *call, const char *content_type)
{
    report_lists(call);
    http_begin(call->http, 200, content_type);
}

void call_begin(struct call *call, const char *content_type)
{
    http_set_header(call->http, "Cache-Control", "no-cache");
    http_set_header(call->http, "X-Accel-Buffering", "no"); /* else nginx as a reverse proxy buffers the stream */
    call_begin_whole(call, content_type);
}

void call_end(struct call *call)
{
    struct http_request *http = call->http;
    finish_call(call, 200);
    http_end(http);
}

void call_gone(struct call *call)
{
    finish_call(call, STATUS_CLIENT_GONE);
}
