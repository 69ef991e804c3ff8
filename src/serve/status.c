/* Reports from the instance and from the server, as JSON and as Prometheus' text. HTTP thread only; no state. */
#include "serve/status.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/metrics.h"
#include "base/utf8.h"
#include "serve/errors.h"
#include "serve/routes.h"
#include "serve/server.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* Takes `json`. */
static void reply_json(struct call *call, int status, json_t *json)
{
    struct buf body = {0};
    char *text = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(3));
    buf_puts(&body, text);
    free(text);
    json_decref(json);
    call_reply(call, status, "application/json", &body);
}

/* Names come from files, and files may hold anything. */
static json_t *clean(const char *name)
{
    struct buf text = {0};
    utf8_put_clean(&text, name, strlen(name));
    json_t *json = json_stringn(text.v == NULL ? "" : text.v, text.len);
    buf_release(&text);
    return json;
}

/* ---- Health ---- */

void status_liveness(struct call *call)
{
    reply_json(call, 200, json_pack("{s:s}", "status", "ok"));
}

void status_health(struct call *call)
{
    struct server *server = call->server;
    pthread_mutex_lock(&server->mutex);
    enum server_stage stage = server->stage;
    json_t *loading = json_pack("{s:s, s:f, s:o}", "status", "loading model", "progress", server->loading_progress,
                                "model", clean(server->loading_model));
    pthread_mutex_unlock(&server->mutex);
    if (stage == SERVER_LOADING) {
        http_set_header(call->http, "Retry-After", "1");
        reply_json(call, 503, loading);
        return;
    }
    json_decref(loading);
    bool ready = stage == SERVER_READY;
    reply_json(call, ready ? 200 : 503, json_pack("{s:s}", "status", ready ? "ok" : "stopping"));
}

/* ---- Models ---- */

static json_t *describe(const hearth_model_info *m)
{
    return json_pack("{s:o, s:s, s:I, s:s, s:{s:o, s:s, s:i, s:i, s:I, s:I, s:i, s:i, s:i, s:i}}", "id", clean(m->name),
                     "object", "model", "created", (json_int_t)m->created, "owned_by", "hearth", "meta", "architecture",
                     clean(m->architecture), "kind", m->kind, "n_ctx", m->context_window, "n_ctx_train", m->n_ctx_train,
                     "n_params", (json_int_t)m->n_params, "size", (json_int_t)m->size_bytes, "n_vocab", m->n_vocab,
                     "n_embd", m->n_embd, "n_swa", m->n_swa, "slots", m->n_slots);
}

void status_models(struct call *call)
{
    json_t *data = json_array();
    hearth_model_info info;
    for (size_t i = 0; hearth_model(call->server->instance, i, &info); i++)
        json_array_append_new(data, describe(&info));
    reply_json(call, 200, json_pack("{s:s, s:o}", "object", "list", "data", data));
}

void status_model(struct call *call)
{
    const char *name = routes_rest(call);
    hearth_model_info info;
    for (size_t i = 0; hearth_model(call->server->instance, i, &info); i++) {
        if (strcmp(info.name, name) != 0) continue;
        reply_json(call, 200, describe(&info));
        return;
    }
    hearth_error error;
    error_at(&error, HEARTH_NOT_FOUND, "model", "there is no model '%s': GET /v1/models lists them", name);
    call_fail(call, &error, errors_put);
}

/* ---- Slots ---- */

void status_slots(struct call *call)
{
    hearth *instance = call->server->instance;
    size_t max = hearth_slots(instance, NULL, 0);
    hearth_slot *slots = mem_alloc((max + 1) * sizeof *slots);
    size_t n = hearth_slots(instance, slots, max);
    json_t *list = json_array();
    for (size_t i = 0; i < n && i < max; i++) {
        const hearth_slot *s = &slots[i];
        json_array_append_new(list, json_pack("{s:i, s:i, s:o, s:s, s:s, s:i, s:i, s:i, s:s, s:I}", "id", s->id,
                                              "seq_id", s->seq_id, "model", clean(s->model), "state", s->state,
                                              "request_id", s->request_id, "cached_messages", s->cached_messages,
                                              "cached_tokens", s->cached_tokens, "n_past", s->n_past, "hash", s->hash,
                                              "last_used", (json_int_t)s->last_used));
    }
    free(slots);
    reply_json(call, 200, list);
}

/* ---- Metrics ---- */

static void put_gauge(struct buf *out, const char *name, const char *help, size_t value)
{
    metrics_put_head(out, name, "gauge", help);
    metrics_put_value(out, name, "", (double)value);
}

void status_metrics(struct call *call)
{
    struct server *server = call->server;
    struct buf body = {0};
    char *library = hearth_metrics(server->instance);
    buf_puts(&body, library);
    hearth_free(library);
    metrics_put_head(&body, "hearth_http_requests_total", "counter", "HTTP requests answered");
    for (size_t i = 0; i < server->n_counts; i++) {
        const struct server_count *c = &server->counts[i];
        char *labels = mem_format("route=\"%s\",status=\"%d\"", c->route, c->status);
        metrics_put_value(&body, "hearth_http_requests_total", labels, (double)c->n);
        free(labels);
    }
    put_gauge(&body, "hearth_http_connections", "Open HTTP connections", http_connections(server->http));
    put_gauge(&body, "hearth_http_active_requests", "HTTP requests not answered yet", http_active(server->http));
    call_reply(call, 200, "text/plain; version=0.0.4", &body);
}
