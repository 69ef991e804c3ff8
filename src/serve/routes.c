/* The table of routes, access checks and dispatch. HTTP thread only; no state of its own. */
#include "serve/routes.h"

#include "base/error.h"
#include "serve/anthropic/anthropic.h"
#include "serve/core/call.h"
#include "serve/core/errors.h"
#include "serve/core/keys.h"
#include "serve/embeddings/embeddings.h"
#include "serve/native/native.h"
#include "serve/ollama/ollama.h"
#include "serve/openai/openai.h"
#include "serve/page/page.h"
#include "serve/pulls/fits.h"
#include "serve/responses/responses.h"
#include "serve/status/status.h"

#include <string.h>

/* How a route is answered: MODELS: with 503 while they load; AWAY: on an answering thread, since much is walked or
 * copied. */
enum { MODELS = 1, AWAY = 2 };

/* Routes that answer at once, or begin to, and routes whose bodies are read first. */
#define RUNS(handler) handler, NULL
#define READS(form)   NULL, &(form)

/* A parameter at the end of a path matches any rest, slashes included; elsewhere it matches none (see call.h). */
static const struct route {
    const char *method, *path;
    void (*handler)(struct call *call); /* NULL: the body is read first: */
    const struct reading_form *form;
    int how;                    /* MODELS, AWAY */
    int grant;                  /* what the API key must allow */
    call_error_form *put_error; /* the API's form of routing and access errors */
} routes[] = {
    {"POST", "/v1/chat/completions", READS(openai_chat), MODELS, KEYS_CHAT, errors_put},
    {"POST", "/v1/completions", READS(openai_completion), MODELS, KEYS_COMPLETIONS, errors_put},
    {"POST", "/v1/responses", READS(responses_create), MODELS, KEYS_CHAT, responses_put_error},
    {"POST", "/responses", READS(responses_create), MODELS, KEYS_CHAT, responses_put_error},
    {"POST", "/v1/responses/compact", READS(responses_compact), MODELS, KEYS_CHAT, responses_put_error},
    {"POST", "/responses/compact", READS(responses_compact), MODELS, KEYS_CHAT, responses_put_error},
    {"POST", "/v1/responses/{id}/cancel", RUNS(responses_cancel), AWAY, KEYS_CHAT, responses_put_error},
    {"GET", "/v1/responses/{id}/input_items", RUNS(responses_list_items), AWAY, KEYS_CHAT, responses_put_error},
    {"GET", "/v1/responses/{id}", RUNS(responses_retrieve), AWAY, KEYS_CHAT, responses_put_error},
    {"DELETE", "/v1/responses/{id}", RUNS(responses_delete), AWAY, KEYS_CHAT, responses_put_error},
    {"POST", "/responses/{id}/cancel", RUNS(responses_cancel), AWAY, KEYS_CHAT, responses_put_error},
    {"GET", "/responses/{id}/input_items", RUNS(responses_list_items), AWAY, KEYS_CHAT, responses_put_error},
    {"GET", "/responses/{id}", RUNS(responses_retrieve), AWAY, KEYS_CHAT, responses_put_error},
    {"DELETE", "/responses/{id}", RUNS(responses_delete), AWAY, KEYS_CHAT, responses_put_error},
    {"POST", "/v1/conversations", READS(conversations_create), 0, KEYS_CHAT, errors_put},
    {"GET", "/v1/conversations/{id}/items/{item}", RUNS(conversations_show_item), AWAY, KEYS_CHAT, errors_put},
    {"DELETE", "/v1/conversations/{id}/items/{item}", RUNS(conversations_delete_item), AWAY, KEYS_CHAT, errors_put},
    {"GET", "/v1/conversations/{id}/items", RUNS(conversations_list_items), AWAY, KEYS_CHAT, errors_put},
    {"POST", "/v1/conversations/{id}/items", READS(conversations_add_items), 0, KEYS_CHAT, errors_put},
    {"GET", "/v1/conversations/{id}", RUNS(conversations_retrieve), AWAY, KEYS_CHAT, errors_put},
    {"POST", "/v1/conversations/{id}", READS(conversations_update), 0, KEYS_CHAT, errors_put},
    {"DELETE", "/v1/conversations/{id}", RUNS(conversations_delete), AWAY, KEYS_CHAT, errors_put},
    {"POST", "/v1/messages", READS(anthropic_messages), MODELS, KEYS_CHAT, anthropic_put_error},
    {"POST", "/v1/messages/count_tokens", READS(anthropic_count_tokens), MODELS, KEYS_CHAT, anthropic_put_error},
    {"POST", "/v1/audio/transcriptions", READS(transcription_create), MODELS, KEYS_CHAT, errors_put},
    {"POST", "/audio/transcriptions", READS(transcription_create), MODELS, KEYS_CHAT, errors_put},
    {"POST", "/v1/embeddings", READS(embeddings_openai), MODELS, KEYS_EMBEDDINGS, errors_put},
    {"POST", "/embeddings", READS(embeddings_native), MODELS, KEYS_EMBEDDINGS, errors_put},
    {"POST", "/embedding", READS(embeddings_native), MODELS, KEYS_EMBEDDINGS, errors_put},
    {"POST", "/v1/rerank", READS(rerank_answer), MODELS, KEYS_RERANK, errors_put},
    {"POST", "/v1/reranking", READS(rerank_answer), MODELS, KEYS_RERANK, errors_put},
    {"POST", "/v2/rerank", READS(rerank_answer), MODELS, KEYS_RERANK, errors_put},
    {"POST", "/rerank", READS(rerank_answer), MODELS, KEYS_RERANK, errors_put},
    {"POST", "/reranking", READS(rerank_answer), MODELS, KEYS_RERANK, errors_put},
    {"POST", "/v1/chat/completions/input_tokens", READS(prompt_count), MODELS, KEYS_CHAT, errors_put},
    {"POST", "/v1/chat/completions/render", READS(prompt_render_chat), MODELS, KEYS_CHAT, errors_put},
    {"POST", "/v1/completions/render", READS(prompt_render_completion), MODELS, KEYS_COMPLETIONS, errors_put},
    {"POST", "/v1/responses/input_tokens", READS(prompt_count_response), MODELS, KEYS_CHAT, responses_put_error},
    {"POST", "/responses/input_tokens", READS(prompt_count_response), MODELS, KEYS_CHAT, responses_put_error},
    {"POST", "/v1/tokenize", READS(prompt_tokenize), MODELS, KEYS_ALL, errors_put},
    {"POST", "/v1/detokenize", READS(prompt_detokenize), MODELS, KEYS_ALL, errors_put},
    {"POST", "/v1/apply-template", RUNS(prompt_apply_template), MODELS, KEYS_ALL, errors_put},
    {"GET", "/v1/models", RUNS(status_models), AWAY, KEYS_MODELS, errors_put},
    {"GET", "/v1/models/{id}", RUNS(status_model), AWAY, KEYS_MODELS, errors_put},
    /* llama-server's. Completions without /v1 have llama-server's own form. */
    {"POST", "/chat/completions", READS(openai_chat), MODELS, KEYS_CHAT, errors_put},
    {"POST", "/chat/completions/input_tokens", READS(prompt_count), MODELS, KEYS_CHAT, errors_put},
    {"POST", "/completion", READS(native_completion), MODELS, KEYS_COMPLETIONS, errors_put},
    {"POST", "/completions", READS(native_completion), MODELS, KEYS_COMPLETIONS, errors_put},
    {"POST", "/infill", READS(native_infill), MODELS, KEYS_COMPLETIONS, errors_put},
    {"POST", "/tokenize", READS(prompt_tokenize), MODELS, KEYS_ALL, errors_put},
    {"POST", "/detokenize", READS(prompt_detokenize), MODELS, KEYS_ALL, errors_put},
    {"POST", "/apply-template", RUNS(prompt_apply_template), MODELS, KEYS_ALL, errors_put},
    {"GET", "/models", RUNS(status_models), AWAY, KEYS_MODELS, errors_put},
    {"GET", "/models/{id}", RUNS(status_model), AWAY, KEYS_MODELS, errors_put},
    {"GET", "/props", RUNS(props_show), MODELS | AWAY, KEYS_MODELS, errors_put},
    {"GET", "/tokenizer_info", RUNS(props_tokenizer), MODELS | AWAY, KEYS_MODELS, errors_put},
    {"POST", "/props", RUNS(props_refuse), 0, KEYS_ADMIN, errors_put},
    {"POST", "/slots/{id}", RUNS(status_slot_action), 0, KEYS_CACHE, errors_put},
    /* Ollama's. */
    {"POST", "/api/chat", READS(ollama_chat), MODELS, KEYS_CHAT, ollama_put_error},
    {"POST", "/api/generate", READS(ollama_generate), MODELS, KEYS_COMPLETIONS, ollama_put_error},
    {"POST", "/api/embed", READS(ollama_embed), MODELS, KEYS_EMBEDDINGS, ollama_put_error},
    {"POST", "/api/embeddings", READS(ollama_embeddings), MODELS, KEYS_EMBEDDINGS, ollama_put_error},
    {"GET", "/api/version", RUNS(ollama_version), 0, KEYS_PUBLIC, ollama_put_error},
    {"GET", "/api/tags", RUNS(ollama_tags), AWAY, KEYS_MODELS, ollama_put_error},
    {"GET", "/api/ps", RUNS(ollama_ps), AWAY, KEYS_MODELS, ollama_put_error},
    {"POST", "/api/show", READS(ollama_show), 0, KEYS_MODELS, ollama_put_error},
    {"POST", "/api/pull", READS(ollama_pull), MODELS, KEYS_ADMIN, ollama_put_error},
    {"POST", "/api/push", RUNS(ollama_refuse), 0, KEYS_MODELS, ollama_put_error},
    {"POST", "/api/create", READS(ollama_create), MODELS, KEYS_ADMIN, ollama_put_error},
    {"POST", "/api/copy", READS(ollama_copy), MODELS, KEYS_ADMIN, ollama_put_error},
    {"DELETE", "/api/delete", READS(ollama_delete), MODELS, KEYS_ADMIN, ollama_put_error},
    {"HEAD", "/api/blobs/{id}", RUNS(ollama_refuse), 0, KEYS_MODELS, ollama_put_error},
    {"POST", "/api/blobs/{id}", RUNS(ollama_refuse), 0, KEYS_MODELS, ollama_put_error},
    {"POST", "/models/fit", READS(fit_asked), MODELS, KEYS_ADMIN, errors_put},
    {"POST", "/models/load", READS(lifecycle_load), MODELS, KEYS_ADMIN, errors_put},
    {"POST", "/models/unload", READS(lifecycle_unload), MODELS, KEYS_ADMIN, errors_put},
    {"GET", "/", RUNS(page_root), 0, KEYS_PUBLIC, errors_put},
    {"GET", "/page/{name}", RUNS(page_file), 0, KEYS_PUBLIC, errors_put},
    {"GET", "/health", RUNS(status_health), 0, KEYS_PUBLIC, errors_put},
    {"GET", "/v1/health", RUNS(status_health), 0, KEYS_PUBLIC, errors_put},
    {"GET", "/v1/liveness", RUNS(status_liveness), 0, KEYS_PUBLIC, errors_put},
    {"GET", "/v1/readiness", RUNS(status_health), 0, KEYS_PUBLIC, errors_put},
    {"GET", "/slots", RUNS(status_slots), AWAY, KEYS_STATUS, errors_put},
    {"GET", "/live", RUNS(live_stream), MODELS, KEYS_STATUS, errors_put},
    {"GET", "/lora-adapters", RUNS(adapters_list), MODELS | AWAY, KEYS_STATUS, errors_put},
    {"POST", "/lora-adapters", READS(adapters_set), MODELS, KEYS_ADMIN, errors_put},
    {"GET", "/cache", RUNS(cache_status), AWAY, KEYS_CACHE, errors_put},
    {"POST", "/cache/lookup", RUNS(cache_lookup), MODELS, KEYS_CACHE, errors_put},
    {"GET", "/cache/stored", RUNS(stored_list), AWAY, KEYS_CACHE, errors_put},
    {"POST", "/cache/stored", READS(stored_order), MODELS, KEYS_ADMIN, errors_put},
    {"POST", "/cache/resident", READS(resident_orders_give), MODELS, KEYS_ADMIN, errors_put},
    {"GET", "/metrics", RUNS(status_metrics), 0, KEYS_STATUS, errors_put},
};

#define N_ROUTES (sizeof routes / sizeof *routes)

/* ---- Finding the route ---- */

struct found {
    const struct route *route;     /* NULL: none has this path and method */
    const struct route *same_path; /* NULL: none has this path */
    call_error_form *put_error;    /* of the API that the path belongs to */
};

static struct found find_route(const char *path, const char *method)
{
    struct found found = {0};
    for (const struct route *r = routes; r < routes + N_ROUTES && found.route == NULL; r++) {
        if (!call_path_matches(r->path, path)) continue;
        found.same_path = r;
        /* HEAD matches GET routes: src/http leaves the body out. */
        if (strcmp(r->method, method) == 0 || (strcmp(method, "HEAD") == 0 && strcmp(r->method, "GET") == 0))
            found.route = r;
    }
    /* Paths that no route has belong to the API that has the others below it: its clients read its form of error. */
    if (found.same_path != NULL)
        found.put_error = found.same_path->put_error;
    else if (strncmp(path, "/api/", strlen("/api/")) == 0)
        found.put_error = ollama_put_error;
    else
        found.put_error =
            strncmp(path, "/v1/messages/", strlen("/v1/messages/")) == 0 ? anthropic_put_error : errors_put;
    return found;
}

static bool is_preflight(const struct found *found, const struct http_request *http)
{
    return found->same_path != NULL && found->route == NULL && strcmp(http_method(http), "OPTIONS") == 0;
}

/* An unknown route needs a key too, any one, so that clients without a key cannot probe for routes. */
static int grant_of(const struct found *found, const struct http_request *http)
{
    if (found->route != NULL) return found->route->grant;
    return is_preflight(found, http) ? KEYS_PUBLIC : KEYS_ALL;
}

/* Anthropic's clients read the request id from this header. */
static void repeat_id(struct http_request *http, const struct found *found, const char *id)
{
    if (found->put_error == anthropic_put_error) http_set_header(http, "request-id", id);
}

static struct call *open_call(struct server *server, struct http_request *http, const struct found *found)
{
    struct call *call = call_open(server, http);
    repeat_id(http, found, call->id);
    if (found->same_path != NULL) call->route = found->same_path->path;
    http_name(server->http, call->route);
    return call;
}

/* ---- Refusing ---- */

static void refuse_access(struct call *call, const struct found *found, const hearth_error *error)
{
    if ((int)error->code == ERRORS_NO_KEY) http_set_header(call->http, "WWW-Authenticate", "Bearer");
    if ((int)error->code == ERRORS_RATE_LIMIT) {
        ratelimit_put_headers(call->limit, call->http);
        ratelimit_put_retry(call->limit, call->http);
    }
    call_fail(call, error, found->put_error);
}

/* ---- Access ---- */

/* Rate limits of API keys count POST requests only, and only these are traced: the others compute nothing. */
static bool is_limited(const struct found *found)
{
    return found->route != NULL && strcmp(found->route->method, "POST") == 0;
}

/* Checks the request's origin, host, API key, and the key's rate limit. */
static int check_access(const struct server *server, const struct http_request *http, const struct found *found,
                        const struct key **key, hearth_error *error)
{
    *key = NULL;
    /* Files come in forms. */
    int rc =
        cors_check(server->cors, http,
                   found->route != NULL && found->route->form == &transcription_create ? CORS_FORM : CORS_JSON, error);
    if (rc == HEARTH_OK && server->hosts != NULL) rc = hosts_check(server->hosts, http, error);
    if (rc == HEARTH_OK) rc = access_check(server, http, grant_of(found, http), key, error);
    if (rc == HEARTH_OK && is_limited(found))
        rc = ratelimit_check(server->ratelimits, *key, http_has_client(http), error);
    return rc;
}

/* ---- Answering ---- */

/* The names that OpenTelemetry's conventions give to routes' uses of a model, by their grants. */
static const struct {
    int grant;
    const char *name;
} operations[] = {{KEYS_CHAT, "chat"}, {KEYS_COMPLETIONS, "text_completion"}, {KEYS_EMBEDDINGS, "embeddings"}};

static void run_handler(struct call *call, void *ud)
{
    const struct route *route = ud;
    route->handler(call);
}

static void dispatch(struct call *call, const struct found *found)
{
    /* A body that came with a GET request is freed at once: it holds no memory, however long the answer takes. */
    if (strcmp(found->route->method, "GET") == 0) {
        struct buf body = http_take_body(call->http);
        http_recount(call->server->http, body.len, 0);
        buf_release(&body);
    }
    const bool needs_models = (found->route->how & MODELS) != 0;
    if (is_limited(found)) {
        const char *operation = NULL;
        for (size_t i = 0; needs_models && i < sizeof operations / sizeof *operations; i++)
            if (operations[i].grant == found->route->grant) operation = operations[i].name;
        call_trace(call, operation);
        if (!http_has_client(call->http)) ratelimit_count_request(call->limit);
        ratelimit_put_headers(call->limit, call->http);
    }
    enum server_stage stage = server_stage(call->server);
    if (needs_models && stage == SERVER_LOADING)
        call_refuse(call, found->put_error, HEARTH_UNAVAILABLE, "", "the models are loading: try again soon");
    else if (needs_models && stage == SERVER_STOPPING)
        call_refuse(call, found->put_error, HEARTH_UNAVAILABLE, "", "the server is stopping");
    else if ((found->route->how & AWAY) != 0)
        call_away(call, run_handler, (void *)found->route);
    else if (found->route->form != NULL)
        reading_start(call, found->route->form);
    else
        found->route->handler(call);
}

/* A route that needs no key has no use for a body: it is answered before the body has arrived. */
void routes_head(void *ud, struct http_request *http)
{
    struct server *server = ud;
    struct found found = find_route(http_path(http), http_method(http));
    const struct key *key;
    hearth_error error;
    int rc = check_access(server, http, &found, &key, &error);
    if (rc == HEARTH_OK && grant_of(&found, http) == KEYS_PUBLIC) {
        routes_request(server, http);
    } else if (rc == HEARTH_OK && key != NULL) { /* a body is to arrive: it counts, even if it never does */
        struct ratelimit *limit = ratelimit_ref(server->ratelimits, key);
        if (is_limited(&found)) ratelimit_count_request(limit);
        ratelimit_unref(limit);
        http_set_client(http, key->digest, sizeof key->digest);
    }
    if (rc == HEARTH_OK) return;
    struct call *call = open_call(server, http, &found);
    call_set_key(call, key);
    refuse_access(call, &found, &error);
}

/* The routes that need no key are answered from the HTTP thread's own state. */
bool routes_is_urgent(void *server, const struct http_request *http)
{
    (void)server;
    struct found found = find_route(http_path(http), http_method(http));
    return found.route != NULL && found.route->grant == KEYS_PUBLIC;
}

/* Checks access of a request without a body, and again of one with a body. While the body arrived, the keys may have
 * been reloaded and the rate limit may have been used up. */
void routes_request(void *server, struct http_request *http)
{
    struct found found = find_route(http_path(http), http_method(http));
    struct call *call = open_call(server, http, &found);
    const struct key *key;
    hearth_error error;
    int rc = check_access(server, http, &found, &key, &error);
    call_set_key(call, key);
    if (rc != HEARTH_OK) {
        refuse_access(call, &found, &error);
    } else if (found.route != NULL) {
        dispatch(call, &found);
    } else if (found.same_path == NULL) {
        call_refuse(call, found.put_error, ERRORS_NO_ROUTE, "", "there is no such route");
    } else if (is_preflight(&found, http)) {
        struct buf none = {0};
        cors_put_preflight_headers(http);
        call_reply(call, 204, NULL, &none);
    } else {
        struct buf allow = {0};
        for (const struct route *r = routes; r < routes + N_ROUTES; r++)
            if (strcmp(r->path, found.same_path->path) == 0)
                buf_printf(&allow, "%s, ", strcmp(r->method, "GET") == 0 ? "GET, HEAD" : r->method);
        buf_puts(&allow, "OPTIONS");
        http_set_header(http, "Allow", allow.v);
        buf_release(&allow);
        call_refuse(call, found.put_error, ERRORS_NO_METHOD, "",
                    "this route does not answer that method: see the Allow header");
    }
}

void routes_fault(void *ud, struct http_request *http, int status, const char *message, struct buf *out)
{
    const struct server *server = ud;
    const char *path = http_path(http);
    struct found found = find_route(path == NULL ? "" : path, "");
    hearth_error error;
    /* The error of a request that src/http refused; 413 names the configuration key of its limit. */
    if (status == 413)
        error_set(&error, errors_code_of_status(status), "%s: server.max_body_bytes allows %zu bytes", message,
                  server->max_body);
    else
        error_set(&error, errors_code_of_status(status), "%s", message);
    char id[CALL_ID_SIZE];
    call_set_id(server, http, id);
    call_set_retry(http, errors_kind(errors_code_of_status(status)));
    repeat_id(http, &found, id);
    found.put_error(out, &error, id);
}
