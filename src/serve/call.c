/* Requests as the routes see them. HTTP thread only; a call belongs to who answers it. */
#include "serve/call.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "serve/errors.h"
#include "serve/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* A client that left before its answer: nginx's number for it, in the log and in the counts only. */
#define STATUS_CLIENT_GONE 499

void call_random_name(char *out, size_t size)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz012345"; /* 32: no letter is likelier */
    ssize_t got = getrandom(out, size - 1, 0);
    (void)got; /* requests of up to 256 bytes never fail */
    for (size_t i = 0; i + 1 < size; i++) out[i] = letters[(unsigned char)out[i] % 32];
    out[size - 1] = '\0';
}

/* An id of the client's is used where it can be written into a header, a log line and a fixed-size field. */
static bool is_sane_id(const char *id)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:";
    size_t len = strlen(id);
    return len > 0 && len < sizeof((struct call *)NULL)->id && strspn(id, allowed) == len;
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
    const char *given = http_header(http, "X-Request-Id");
    if (given != NULL && is_sane_id(given)) {
        snprintf(call->id, sizeof call->id, "%s", given);
    } else {
        memcpy(call->id, "req-", 4);
        call_random_name(call->id + 4, 25);
    }
    http_set_header(http, "X-Request-Id", call->id);
    http_set_header(http, "Access-Control-Allow-Origin", "*");
    http_set_header(http, "Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
    return call;
}

bool call_read_fields(struct call *call, int route, call_error_form *form, struct fields *fields)
{
    hearth_error error;
    size_t len;
    const char *body = http_body(call->http, &len);
    int rc = fields_read(fields, route, body, len, &error);
    http_drop_body(call->http);
    if (rc != HEARTH_OK) call_fail(call, &error, form);
    return rc == HEARTH_OK;
}

const char *call_model(const struct call *call, const struct fields *fields)
{
    hearth_model_info first;
    if (fields->params.model != NULL) return fields->params.model;
    return hearth_model(call->server->instance, 0, &first) ? first.name : "";
}

static void count(struct server *server, const char *route, int status)
{
    for (size_t i = 0; i < server->n_counts; i++) {
        struct server_count *c = &server->counts[i];
        if (c->status == status && strcmp(c->route, route) == 0) {
            c->n++;
            return;
        }
    }
    server->counts = mem_grow(server->counts, server->n_counts + 1, sizeof *server->counts);
    server->counts[server->n_counts++] = (struct server_count){.route = route, .status = status, .n = 1};
}

static void finish(struct call *call, int status)
{
    double took_ms = clock_to_ms(clock_now(clock_monotonic()) - call->start);
    log_event(LOG_INFO, "http", "request", log_str("method", call->method), log_str("path", call->path),
              log_int("status", status), log_num("took_ms", took_ms), log_str("request_id", call->id));
    count(call->server, call->route, status);
    free(call->method);
    free(call->path);
    free(call);
}

void call_reply(struct call *call, int status, const char *content_type, struct buf *body)
{
    struct http_request *http = call->http;
    finish(call, status);
    http_reply(http, status, content_type, body->v, body->len);
    buf_release(body);
}

void call_fail(struct call *call, const hearth_error *error, call_error_form *form)
{
    const struct errors_kind *kind = errors_kind(error->code);
    if (kind->retry_after_s > 0) {
        char seconds[16];
        snprintf(seconds, sizeof seconds, "%d", kind->retry_after_s);
        http_set_header(call->http, "Retry-After", seconds);
    }
    struct buf body = {0};
    form(&body, error);
    call_reply(call, kind->status, "application/json", &body);
}

void call_begin(struct call *call)
{
    http_set_header(call->http, "Cache-Control", "no-cache");
    http_set_header(call->http, "X-Accel-Buffering", "no"); /* nginx in front would hold the stream back */
    http_begin(call->http, 200, "text/event-stream");
}

void call_end(struct call *call)
{
    struct http_request *http = call->http;
    finish(call, 200);
    http_end(http);
}

void call_gone(struct call *call)
{
    finish(call, STATUS_CLIENT_GONE);
}
