/* Status of the instance and of the server, as JSON and as Prometheus text, and loading and unloading of models by
 * request: see status.h. Threads: likewise; no state.
 *
 * From Prometheus' text format to OpenMetrics: there a counter's family has no "_total", which its sample has; buckets
 * may have an exemplar; the text has an end. All else is the same, names and labels included, so that a server's series
 * go on when the form changes. */
#include "serve/status/status.h"

#include "base/memory.h"
#include "base/metrics.h"
#include "base/os.h"
#include "base/utf8.h"
#include "serve/core/errors.h"
#include "serve/core/models.h"
#include "serve/core/reading.h"
#include "serve/core/server.h"
#include "serve/fields/body.h"
#include "serve/tracing/tracer.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

/* ---- OpenMetrics: pure functions ---- */

/* Whether a media range has the weight zero: not wanted at all. */
static bool is_refused(const char *range, size_t len)
{
    for (const char *at = memchr(range, ';', len); at != NULL;
         at = memchr(at + 1, ';', len - (size_t)(at + 1 - range))) {
        const char *name = at + 1 + strspn(at + 1, " \t");
        if (name + 2 <= range + len && strncasecmp(name, "q=", 2) == 0) return strtod(name + 2, NULL) <= 0;
    }
    return false;
}

bool openmetrics_is_wanted(const char *accept)
{
    static const char type[] = "application/openmetrics-text";
    for (const char *at = accept; at != NULL && *at != '\0';) {
        at += strspn(at, " \t,");
        size_t len = strcspn(at, ","), name = strcspn(at, ";, \t");
        if (name == strlen(type) && strncasecmp(at, type, name) == 0 && !is_refused(at, len)) return true;
        at += len;
    }
    return false;
}

void openmetrics_put(struct buf *out, const char *text, const struct exemplars *exemplars)
{
    while (*text != '\0') {
        size_t len = strcspn(text, "\n");
        if (text[0] == '#') {
            /* "# TYPE hearth_x_total counter": the family without the end of its name. */
            static const char total[] = "_total";
            const char *name = memchr(text + 2, ' ', len - 2), *line_end = text + len;
            const char *end = memchr(name + 1, ' ', (size_t)(line_end - (name + 1)));
            bool is_counter = memcmp(end - strlen(total), total, strlen(total)) == 0;
            buf_append(out, text, (size_t)(end - text) - (is_counter ? strlen(total) : 0));
            buf_append(out, end, (size_t)(line_end - end));
        } else {
            const char *value = os_find_last(text, ' ', len);
            const struct exemplar *one = exemplars_find(exemplars, text, (size_t)(value - text));
            buf_append(out, text, len);
            if (one != NULL) buf_printf(out, " # {trace_id=\"%s\"} %.17g %.3f", one->trace_id, one->value, one->unix_s);
        }
        buf_puts(out, "\n");
        text += len + (text[len] == '\n');
    }
    buf_puts(out, "# EOF\n");
}

/* Takes `json` over. */
static void put_json(struct buf *out, json_t *json)
{
    char *text = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(3));
    buf_puts(out, text);
    free(text);
    json_decref(json);
}

/* Answers with JSON; takes `json` over. */
static void reply_json(struct call *call, int status, json_t *json)
{
    struct buf body = {0};
    put_json(&body, json);
    call_reply(call, status, "application/json", &body);
}

/* A name as valid UTF-8: names come from model files, which may hold any bytes. */
static json_t *clean(const char *name)
{
    struct buf text = {0};
    utf8_put_clean(&text, name, strlen(name));
    json_t *json = json_stringn(text.v == NULL ? "" : text.v, text.len);
    buf_release(&text);
    return json;
}

/* ---- Health ---- */

/* GET /: clients look here whether a server runs, and Ollama's clients for its name. */
void status_root(struct call *call)
{
    struct buf body = {0};
    bool asks_for_ollama = call->server->ollama_port != 0 && http_port(call->http) == call->server->ollama_port;
    buf_puts(&body, asks_for_ollama ? "Ollama is running" : "hearth is running\n");
    call_reply(call, 200, "text/plain", &body);
}

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

static json_t *list_of(const char *const *texts, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(list, clean(texts[i]));
    return list;
}

static json_t *describe(const hearth_model_info *m)
{
    static const char *const outputs[] = {
        [HEARTH_MODEL_CHAT] = "text", [HEARTH_MODEL_EMBEDDING] = "embedding", [HEARTH_MODEL_RERANK] = "score"};
    json_t *inputs = json_pack("[s]", "text");
    if (m->images) json_array_append_new(inputs, json_string("image"));
    if (m->sounds) json_array_append_new(inputs, json_string("audio"));
    if (m->videos) json_array_append_new(inputs, json_string("video"));
    json_t *meta =
        json_pack("{s:o, s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:I, s:I, s:i, s:i, s:i, s:i, s:i}", "architecture",
                  clean(m->architecture), "type", hearth_model_type_name(m->type), "kind",
                  hearth_model_kind_name(m->kind), "pooling", hearth_pooling_name(m->pooling), "ftype", m->weights_type,
                  "vocab_type", m->vocab_type, "n_ctx", m->context_window, "n_ctx_train", m->n_ctx_train, "n_params",
                  (json_int_t)m->n_params, "size", (json_int_t)m->size_bytes, "n_vocab", m->n_vocab, "n_embd",
                  m->n_embd, "n_embd_out", m->n_embd_out, "n_swa", m->n_swa, "slots", m->n_slots);
    return json_pack("{s:o, s:o, s:o, s:s, s:I, s:s, s:{s:s}, s:s, s:i, s:{s:o, s:[s]}, s:o}", "id", clean(m->name),
                     "aliases", list_of(m->aliases, m->n_aliases), "tags", list_of(m->tags, m->n_tags), "object",
                     "model", "created", (json_int_t)m->created, "owned_by", "hearth", "status", "value",
                     hearth_model_state_name(m->state), "type", hearth_model_type_name(m->type), "context_window",
                     m->context_window, "modalities", "input", inputs, "output", outputs[m->type], "meta", meta);
}

/* The list "models" in Ollama's form, which llama-server has too, with the members that llama-server leaves empty. */
static json_t *describe_briefly(const hearth_model_info *m)
{
    const char *capability = m->type == HEARTH_MODEL_CHAT ? "completion" : hearth_model_type_name(m->type);
    json_t *details = json_pack("{s:s, s:s, s:o, s:[o], s:s, s:s}", "parent_model", "", "format", "gguf", "family",
                                clean(m->architecture), "families", clean(m->architecture), "parameter_size", "",
                                "quantization_level", "");
    json_t *capabilities = json_pack("[s]", capability);
    if (m->images || m->sounds) json_array_append_new(capabilities, json_string("multimodal"));
    return json_pack("{s:o, s:o, s:s, s:s, s:s, s:s, s:o, s:[s], s:o, s:s, s:o}", "name", clean(m->name), "model",
                     clean(m->name), "modified_at", "", "size", "", "digest", "", "type", "model", "description",
                     clean(m->description), "tags", "", "capabilities", capabilities, "parameters", "", "details",
                     details);
}

/* Anthropic's clients send the version of its API. */
static bool is_anthropics(const struct call *call)
{
    return http_header(call->http, "anthropic-version") != NULL;
}

static json_t *describe_for_anthropics(const hearth_model_info *m)
{
    char created[32];
    time_t when = (time_t)m->created;
    struct tm tm;
    strftime(created, sizeof created, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&when, &tm));
    return json_pack("{s:s, s:o, s:o, s:s}", "type", "model", "id", clean(m->name), "display_name", clean(m->name),
                     "created_at", created);
}

/* The models, then the presets. */
static json_t *list_models(const hearth *instance, json_t *(*describe_one)(const hearth_model_info *m))
{
    json_t *list = json_array();
    hearth_model_info info;
    for (size_t i = 0; models_next(instance, &i, &info); i++) json_array_append_new(list, describe_one(&info));
    const hearth_preset *preset;
    for (size_t i = 0; models_next_preset(instance, &i, &info, &preset); i++) {
        json_array_append_new(list, describe_one(&info));
        hearth_release_preset(preset);
    }
    return list;
}

/* The model that is being loaded when the server starts, of which nothing but its name is known; NULL: none is. */
static json_t *describe_loading(struct server *server)
{
    char name[sizeof server->loading_model] = "";
    pthread_mutex_lock(&server->mutex);
    if (server->stage == SERVER_LOADING) snprintf(name, sizeof name, "%s", server->loading_model);
    pthread_mutex_unlock(&server->mutex);
    hearth_model_info info;
    if (name[0] == '\0' || models_find(server->instance, name, &info)) return NULL;
    return json_pack("{s:o, s:s, s:i, s:s, s:{s:s}}", "id", clean(name), "object", "model", "created", 0, "owned_by",
                     "hearth", "status", "value", hearth_model_state_name(HEARTH_MODEL_LOADING));
}

void status_models(struct call *call)
{
    if (is_anthropics(call)) {
        json_t *list = list_models(call->server->instance, describe_for_anthropics);
        size_t n = json_array_size(list);
        json_t *first = json_object_get(json_array_get(list, 0), "id"),
               *last = n == 0 ? NULL : json_object_get(json_array_get(list, n - 1), "id");
        reply_json(
            call, 200,
            json_pack("{s:o, s:b, s:O?, s:O?}", "data", list, "has_more", 0, "first_id", first, "last_id", last));
        return;
    }
    json_t *data = list_models(call->server->instance, describe);
    json_t *models = list_models(call->server->instance, describe_briefly);
    json_t *loading = describe_loading(call->server);
    if (loading != NULL) json_array_append_new(data, loading);
    reply_json(call, 200, json_pack("{s:s, s:o, s:o}", "object", "list", "data", data, "models", models));
}

bool status_find_model(struct call *call, const char *name, size_t *index, hearth_model_info *info)
{
    for (*index = 0; models_next(call->server->instance, index, info); ++*index)
        if (name == NULL || models_is_called(info, name)) return true;
    hearth_error error;
    const hearth_preset *preset = name == NULL ? NULL : hearth_find_preset(call->server->instance, name);
    int32_t of_preset = preset == NULL ? -1 : hearth_find_model(call->server->instance, name, &error);
    hearth_release_preset(preset);
    if (of_preset >= 0) {
        *index = (size_t)of_preset;
        return hearth_model(call->server->instance, *index, info);
    }
    call_refuse(call, errors_put, HEARTH_NOT_FOUND, "model", "there is no model '%s': GET /v1/models lists them",
                name == NULL ? "" : name);
    return false;
}

void status_model(struct call *call)
{
    hearth_model_info info;
    size_t index;
    const char *name = call_path_rest(call);
    if (!status_find_model(call, name, &index, &info)) return;
    if (!models_is_called(&info, name)) { /* a preset */
        info.name = name;
        info.n_aliases = 0;
    }
    reply_json(call, 200, is_anthropics(call) ? describe_for_anthropics(&info) : describe(&info));
}

/* ---- Slots ---- */

static bool is_idle(const hearth_slot *s)
{
    return s->state == HEARTH_SLOT_IDLE;
}

/* hearth's own members, then llama-server's. */
static json_t *describe_slot(const hearth *instance, const hearth_slot *s)
{
    json_t *slot =
        json_pack("{s:i, s:i, s:o, s:s, s:s, s:i, s:i, s:i, s:s, s:I, s:f, s:f}", "id", s->id, "seq_id", s->seq_id,
                  "model", clean(s->model), "state", hearth_slot_state_name(s->state), "request_id", s->request_id,
                  "cached_messages", s->cached_messages, "cached_tokens", s->cached_tokens, "n_past", s->n_past, "hash",
                  s->hash, "last_used", (json_int_t)s->last_used, "cost_ms", s->cost_ms, "return_ms", s->return_ms);
    hearth_model_info info;
    bool busy = !is_idle(s);
    int32_t window = models_find(instance, s->model, &info) ? info.context_window : 0;
    /* Tokens of the running request's prompt that were computed so far. */
    int32_t there = s->n_past < s->n_prompt ? s->n_past : s->n_prompt;
    int32_t computed = !busy || there < s->cached_tokens ? 0 : there - s->cached_tokens;
    json_t *theirs =
        json_pack("{s:i, s:b, s:b, s:i, s:i, s:i, s:[{s:b, s:i, s:i}]}", "n_ctx", window, "speculative", s->drafts,
                  "is_processing", busy, "n_prompt_tokens", s->n_prompt, "n_prompt_tokens_cache",
                  busy ? s->cached_tokens : 0, "n_prompt_tokens_processed", computed, "next_token", "has_next_token",
                  busy, "n_remain", s->n_remaining, "n_decoded", s->n_predicted);
    json_object_update(slot, theirs);
    json_decref(theirs);
    return slot;
}

/* The slots of a model (NULL: of all), and how many of them are idle. */
static json_t *list_slots(const hearth *instance, const char *model, size_t *n_idle)
{
    size_t max = hearth_slots(instance, NULL, 0);
    hearth_slot *slots = mem_alloc((max + 1) * sizeof *slots);
    size_t n = hearth_slots(instance, slots, max);
    json_t *list = json_array();
    *n_idle = 0;
    for (size_t i = 0; i < n && i < max; i++) {
        if (model != NULL && strcmp(slots[i].model, model) != 0) continue;
        *n_idle += is_idle(&slots[i]);
        json_array_append_new(list, describe_slot(instance, &slots[i]));
    }
    free(slots);
    return list;
}

void status_put_slots(struct buf *out, const hearth *instance)
{
    size_t n_idle;
    put_json(out, list_slots(instance, NULL, &n_idle));
}

void status_slots(struct call *call)
{
    const char *model = http_query(call->http, "model"), *must_be_idle = http_query(call->http, "fail_on_no_slot");
    size_t n_idle;
    json_t *list = list_slots(call->server->instance, model, &n_idle);
    if (must_be_idle == NULL || must_be_idle[0] == '\0' || n_idle > 0) {
        reply_json(call, 200, list);
        return;
    }
    json_decref(list);
    call_refuse(call, errors_put, HEARTH_UNAVAILABLE, "",
                "no slot is idle: requests wait for one, up to models.*.admission_timeout");
}

void status_slot_action(struct call *call)
{
    call_refuse(
        call, errors_put, HEARTH_UNSUPPORTED, "",
        "slots are not saved to files by hand: hearth stores every conversation by itself and finds it again by "
        "its tokens, also after a restart. 'hearth kv' lists and removes what is stored, and a request with "
        "cache_prompt false uses none of it");
}

/* ---- Metrics ---- */

static void put_metric(struct buf *out, const char *name, const char *kind, const char *help, double value)
{
    metrics_put_head(out, name, kind, help);
    metrics_put_value(out, name, "", value);
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
    put_metric(&body, "hearth_http_connections", "gauge", "Open HTTP connections",
               (double)http_connections(server->http));
    put_metric(&body, "hearth_http_active_requests", "gauge", "HTTP requests not answered yet",
               (double)http_active(server->http));
    put_metric(&body, "hearth_http_stalls_total", "counter",
               "Times when answering one request held up all connections for more than 5 ms",
               (double)http_stalls(server->http));
    put_metric(&body, "hearth_http_limited_keys", "gauge", "API keys that have lately used some of their limits",
               (double)ratelimits_kept(server->ratelimits));
    put_metric(&body, "hearth_spans_sent_total", "counter", "Spans that the collector of traces took.",
               (double)tracer_sent(server->tracer));
    put_metric(&body, "hearth_spans_dropped_total", "counter",
               "Spans that the collector did not take, or that the queue had no room for.",
               (double)tracer_dropped(server->tracer));
    if (server->tracer == NULL || !openmetrics_is_wanted(http_header(call->http, "Accept"))) {
        call_reply(call, 200, "text/plain; version=0.0.4", &body);
        return;
    }
    struct buf open = {0};
    openmetrics_put(&open, body.v, &server->exemplars);
    buf_release(&body);
    call_reply(call, 200, OPENMETRICS_TYPE, &open);
}

/* ---- Loading and unloading ---- */

static void *read_name(struct buf *body, hearth_error *error)
{
    return body_read_name(body, "model", error);
}

static void act_on(struct call *call, int (*act)(hearth *instance, const char *model, hearth_error *error), char *name)
{
    hearth_error error;
    int rc = act(call->server->instance, name, &error);
    free(name);
    if (rc == HEARTH_OK)
        call_reply_success(call);
    else
        call_fail(call, &error, errors_put);
}

static void load_model(struct call *call, void *name)
{
    act_on(call, hearth_load_model, name);
}

static void unload_model(struct call *call, void *name)
{
    act_on(call, hearth_unload_model, name);
}

const struct reading_form lifecycle_load = READING_FORM(read_name, body_name_size, load_model, free, errors_put);

const struct reading_form lifecycle_unload = READING_FORM(read_name, body_name_size, unload_model, free, errors_put);
