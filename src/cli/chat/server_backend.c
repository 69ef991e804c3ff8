/* A backend over HTTP: a running hearth, or another server of OpenAI's API. Everything is the main thread's. */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "cli/args.h"
#include "cli/chat/chat_backend.h"
#include "cli/chat/reply_stream.h"
#include "cli/remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define COMPLETIONS "/v1/chat/completions"

/* Bytes of a refusal that are read. */
#define REFUSAL_MOST 65536

struct server_backend {
    struct backend base;
    struct remote remote;
    long silence_s;
    json_t *models;    /* chat models, as the server describes them: at least one */
    bool has_progress; /* it is one of the servers that have prompt_progress; others may refuse to be asked */
    /* The reply under way. */
    struct remote_stream *stream; /* NULL: there is none */
    struct buf body;              /* of the request */
    struct buf refusal;           /* the response, where it is no stream */
    struct sse sse;
    struct chunks chunks;
    int64_t asked, first; /* monotonic, ns; first: when text came first, 0: none has */
};

static struct server_backend *server_of(struct backend *backend)
{
    return (struct server_backend *)backend;
}

/* ---- Models ---- */

static const char *name_of(const json_t *model)
{
    return json_string_value(json_object_get(model, "id"));
}

static bool has_word(const json_t *list, const char *word)
{
    size_t i;
    const json_t *item;
    json_array_foreach(list, i, item)
    {
        if (json_is_string(item) && strcmp(json_string_value(item), word) == 0) return true;
    }
    return false;
}

/* Only hearth's list says it. Other servers refuse for themselves what they do not take. */
static bool takes_media(const json_t *model)
{
    const json_t *inputs = json_object_get(json_object_get(model, "modalities"), "input");
    return !json_is_array(inputs) || has_word(inputs, "image") || has_word(inputs, "audio");
}

static bool server_model(struct backend *backend, size_t index, struct backend_model *out)
{
    const json_t *model = json_array_get(server_of(backend)->models, index);
    if (model == NULL) return false;
    *out = (struct backend_model){.name = name_of(model), .takes_media = takes_media(model)};
    return true;
}

static int server_find(struct backend *backend, const char *name, hearth_error *error)
{
    const struct server_backend *server = server_of(backend);
    size_t i;
    const json_t *model;
    if (name == NULL) return 0;
    json_array_foreach(server->models, i, model)
    {
        if (strcmp(name_of(model), name) == 0 || has_word(json_object_get(model, "aliases"), name)) return (int)i;
    }
    char *what = mem_format("%s has no chat model", server->remote.url);
    const int code = remote_refuse_model(server->models, what, name, error);
    free(what);
    return code;
}

/* Reads the server's list. One without such a list has the model that was named. */
static int list_models(struct server_backend *server, const char *wanted, hearth_error *error)
{
    json_t *list = remote_ask_json(&server->remote, "/v1/models", NULL, error), *model;
    size_t i;
    if (list == NULL && (error->code != HEARTH_NOT_FOUND || wanted == NULL)) return error->code;
    if (list == NULL) json_array_append_new(server->models, json_pack("{s:s}", "id", wanted));
    json_array_foreach(json_object_get(list, "data"), i, model)
    {
        const char *type = json_string_value(json_object_get(model, "type"));
        const char *owner = json_string_value(json_object_get(model, "owned_by"));
        /* Only hearth lists the type of a model; models of other servers count as chat models. */
        const bool is_other = type != NULL && (strcmp(type, "embedding") == 0 || strcmp(type, "rerank") == 0);
        if (name_of(model) == NULL || is_other) continue;
        json_array_append(server->models, model);
        server->has_progress =
            server->has_progress || (owner != NULL && (strcmp(owner, "hearth") == 0 || strcmp(owner, "llamacpp") == 0));
    }
    json_decref(list);
    if (json_array_size(server->models) > 0) return HEARTH_OK;
    return error_at(error, HEARTH_NOT_FOUND, "model",
                    "%s has no chat model: one that is still loading is listed a little later", server->remote.url);
}

/* ---- Asking ---- */

static const char *model_for(const struct server_backend *server, const struct conversation *chat)
{
    return chat->model != NULL ? chat->model : name_of(json_array_get(server->models, 0));
}

/* Closes the connection, which ends a reply under way at the server. */
static void server_stop(struct backend *backend)
{
    struct server_backend *server = server_of(backend);
    remote_stream_close(server->stream);
    server->stream = NULL;
    buf_release(&server->body);
    buf_release(&server->refusal);
    sse_release(&server->sse);
}

static int server_ask(struct backend *backend, const struct conversation *chat, hearth_error *error)
{
    (void)error;
    struct server_backend *server = server_of(backend);
    json_t *body = json_pack("{s:s, s:o, s:b, s:{s:b}}", "model", model_for(server, chat), "messages",
                             conversation_export(chat), "stream", 1, "stream_options", "include_usage", 1);
    if (server->has_progress) json_object_set_new(body, "return_progress", json_true());
    char *text = json_dumps(body, JSON_COMPACT);
    buf_puts(&server->body, text);
    free(text);
    json_decref(body);
    server->chunks = (struct chunks){0};
    server->first = 0;
    server->asked = clock_now(clock_monotonic());
    server->stream = remote_stream_open(
        &server->remote,
        &(struct remote_request){.path = COMPLETIONS, .body = &server->body, .silence_s = server->silence_s});
    return HEARTH_OK;
}

/* ---- What arrives ---- */

struct emitter {
    struct server_backend *server;
    reply_event_fn each;
    void *ud;
};

static void on_text(void *ud, const struct reply_event *event)
{
    const struct emitter *to = ud;
    if (event->type != REPLY_PROGRESS && to->server->first == 0) to->server->first = clock_now(clock_monotonic());
    to->each(to->ud, event);
}

static bool is_stream(const struct remote_stream *stream)
{
    static const char type[] = "text/event-stream";
    return remote_stream_status(stream) == 200 && strncasecmp(remote_stream_type(stream), type, strlen(type)) == 0;
}

/* ---- The end of a reply ---- */

/* Fills in why there is no reply, or no whole one. */
static void explain(const struct server_backend *server, hearth_error *error)
{
    const char *fault = remote_stream_fault(server->stream);
    const long status = remote_stream_status(server->stream);
    if (server->chunks.error.code != HEARTH_OK)
        *error = server->chunks.error;
    else if (is_stream(server->stream) || (status != 0 && fault[0] != '\0'))
        error_set(error, HEARTH_UNAVAILABLE, "the reply broke off: %s",
                  fault[0] != '\0' ? fault : "the server closed the connection before the end");
    else if (status == 200)
        error_set(error, HEARTH_UNSUPPORTED,
                  "%s answers with '%.100s', not with a stream of events: is it a server of "
                  "OpenAI's API?",
                  server->remote.url, remote_stream_type(server->stream));
    else
        remote_refuse(&server->remote, &(struct remote_reply){COMPLETIONS, status, &server->refusal, fault}, error);
}

static void finish(struct server_backend *server, const struct emitter *to)
{
    hearth_error error = {0};
    const struct chunks *chunks = &server->chunks;
    struct reply_event last = {.type = REPLY_DONE};
    if (chunks->error.code != HEARTH_OK || (!chunks->done && !chunks->finished)) {
        explain(server, &error);
        last = (struct reply_event){.type = REPLY_FAILED, .error = &error};
    } else if (chunks->has_usage) {
        /* Where the server sends no times, they are those measured here. */
        hearth_result *r = &server->chunks.result;
        const int64_t now = clock_now(clock_monotonic()), first = server->first != 0 ? server->first : now;
        if (!server->chunks.has_timings) {
            r->prompt_ms = clock_to_ms(first - server->asked);
            r->predicted_ms = clock_to_ms(now - first);
        }
        r->n_prompt = r->cache_n + r->prompt_n;
        last.result = &chunks->result;
    }
    to->each(to->ud, &last);
    server_stop(&server->base);
}

static enum signal_kind server_wait(struct backend *backend, int signals, reply_event_fn each, void *ud)
{
    struct server_backend *server = server_of(backend);
    struct emitter to = {server, each, ud};
    if (server->stream == NULL) {
        hearth_error error;
        error_set(&error, HEARTH_CANCELLED, "the reply was stopped");
        to.each(to.ud, &(struct reply_event){.type = REPLY_FAILED, .error = &error});
        return SIGNAL_NONE;
    }
    const bool goes_on = remote_stream_wait(server->stream, signals);
    struct buf bytes = {0};
    struct chunks *chunks = &server->chunks;
    hearth_error error = {0};
    remote_stream_take(server->stream, &bytes);
    chunks->to = (struct chunks_to){on_text, &to};
    if (!is_stream(server->stream)) {
        if (server->refusal.len < REFUSAL_MOST) buf_append(&server->refusal, buf_text(&bytes), bytes.len);
    } else if (sse_add(&server->sse, &bytes, chunks_read, chunks, &error) < 0) {
        chunks->error = error;
    }
    buf_release(&bytes);
    if (!goes_on) sse_end(&server->sse, chunks_read, &server->chunks);
    if (!goes_on || server->chunks.done || server->chunks.error.code != HEARTH_OK) finish(server, &to);
    return signals_take(signals);
}

/* ---- The cache ---- */

static uint64_t size_of(const json_t *object, const char *name)
{
    const json_int_t value = json_integer_value(json_object_get(object, name));
    return value > 0 ? (uint64_t)value : 0;
}

static int server_cache(struct backend *backend, const struct conversation *chat, struct backend_cache *out,
                        hearth_error *error)
{
    struct server_backend *server = server_of(backend);
    const bool has_words = json_array_size(chat->messages) > 0;
    if (has_words) {
        json_t *body = json_pack("{s:s, s:o, s:b, s:b}", "model", model_for(server, chat), "messages",
                                 conversation_export(chat), "add_generation_prompt", 0, "continue_final_message", 0);
        json_t *found = remote_ask_json(&server->remote, "/cache/lookup", body, error);
        json_decref(body);
        if (found == NULL) return error->code;
        hearth_cache_lookup *lookup = &out->lookup;
        *lookup = (hearth_cache_lookup){.prompt = chunks_count(found, "prompt_tokens"),
                                        .resident = chunks_count(found, "resident")};
        lookup->reusable = lookup->prompt - chunks_count(found, "computed");
        for (size_t i = 0; hearth_tier_name(i) != NULL; i++)
            lookup->tiers[i] = chunks_count(found, hearth_tier_name(i));
        json_decref(found);
    }
    out->has_lookup = has_words;
    json_t *status = remote_ask_json(&server->remote, "/cache", NULL, error);
    if (status == NULL) return error->code;
    for (size_t i = 0; hearth_tier_name(i) != NULL; i++) {
        const json_t *from = json_object_get(json_object_get(status, "tiers"), hearth_tier_name(i));
        const char *trouble = json_string_value(json_object_get(from, "trouble"));
        hearth_tier *tier = &out->status.tiers[i];
        *tier = (hearth_tier){.name = hearth_tier_name(i),
                              .on = json_is_true(json_object_get(from, "on")),
                              .entries = size_of(from, "entries"),
                              .bytes = size_of(from, "bytes"),
                              .quota_bytes = size_of(from, "quota_bytes")};
        if (trouble != NULL) snprintf(tier->trouble, sizeof tier->trouble, "%s", trouble);
    }
    json_decref(status);
    return HEARTH_OK;
}

/* ---- Opening and closing ---- */

static void server_end(struct backend *backend)
{
    struct server_backend *server = server_of(backend);
    server_stop(backend);
    json_decref(server->models);
    remote_close(&server->remote);
    free(server);
}

struct backend *server_open(const char *command, const struct server_options *options, int *status)
{
    static const struct backend_ops ops = {server_model, server_find,  server_ask, server_wait,
                                           server_stop,  server_cache, server_end};
    struct server_backend *server = mem_alloc(sizeof *server);
    hearth_error error;
    *server = (struct server_backend){
        .base.ops = &ops, .remote = remote_open(options->url), .silence_s = options->silence_s, .models = json_array()};
    server->remote.wakes = options->signals;
    server->remote.is_stopped = signals_are_waiting;
    if (list_models(server, options->model, &error) == HEARTH_OK &&
        server_find(&server->base, options->model, &error) >= 0)
        return &server->base;
    *status = args_fail(command, &error, error.code == HEARTH_CANCELLED ? EXIT_INTERRUPTED : EXIT_FAILED);
    server_end(&server->base);
    return NULL;
}
