/* Which function answers which request. HTTP thread only; no state of its own. */
#include "serve/routes.h"

#include "base/error.h"
#include "serve/cache.h"
#include "serve/call.h"
#include "serve/errors.h"
#include "serve/openai.h"
#include "serve/status.h"

#include <string.h>

/* A path that ends in "{id}" takes any rest there, slashes included. */
static const struct route {
    const char *method, *path;
    void (*handler)(struct call *call);
    bool needs_models; /* 503 while they load */
} routes[] = {
    {"POST", "/v1/chat/completions", openai_chat, true},
    {"POST", "/v1/completions", openai_completion, true},
    {"GET", "/v1/models", status_models, false},
    {"GET", "/v1/models/{id}", status_model, false},
    {"GET", "/health", status_health, false},
    {"GET", "/v1/liveness", status_liveness, false},
    {"GET", "/v1/readiness", status_health, false},
    {"GET", "/slots", status_slots, false},
    {"GET", "/cache", cache_status, false},
    {"POST", "/cache/lookup", cache_lookup, true},
    {"GET", "/metrics", status_metrics, false},
};

#define N_ROUTES (sizeof routes / sizeof *routes)

const char *routes_rest(const struct call *call)
{
    return call->path + strcspn(call->route, "{");
}

static bool matches(const char *pattern, const char *path)
{
    size_t fixed = strcspn(pattern, "{");
    if (pattern[fixed] == '\0') return strcmp(pattern, path) == 0;
    return strncmp(pattern, path, fixed) == 0 && path[fixed] != '\0';
}

/* A HEAD is a GET whose body stays here; src/http sees to that. */
static bool answers(const struct route *route, const char *method)
{
    return strcmp(route->method, method) == 0 || (strcmp(method, "HEAD") == 0 && strcmp(route->method, "GET") == 0);
}

/* Browsers ask first. Authorization has to be named: the asterisk does not cover it. */
static void answer_preflight(struct call *call)
{
    struct buf none = {0};
    http_set_header(call->http, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    http_set_header(call->http, "Access-Control-Allow-Headers", "Authorization, Content-Type, *");
    http_set_header(call->http, "Access-Control-Max-Age", "86400");
    call_reply(call, 204, NULL, &none);
}

static void refuse(struct call *call, int code, const char *message)
{
    hearth_error error;
    error_set(&error, (hearth_code)code, "%s", message);
    call_fail(call, &error, errors_put);
}

static void refuse_method(struct call *call, const struct route *route)
{
    struct buf allow = {0};
    for (const struct route *r = routes; r < routes + N_ROUTES; r++)
        if (strcmp(r->path, route->path) == 0)
            buf_printf(&allow, "%s, ", strcmp(r->method, "GET") == 0 ? "GET, HEAD" : r->method);
    buf_puts(&allow, "OPTIONS");
    http_set_header(call->http, "Allow", allow.v);
    buf_release(&allow);
    refuse(call, ERRORS_NO_METHOD, "this route does not answer that method: see the Allow header");
}

static void dispatch(struct call *call, const struct route *route)
{
    enum server_stage stage = server_stage(call->server);
    if (route->needs_models && stage == SERVER_LOADING)
        refuse(call, HEARTH_UNAVAILABLE, "the models are loading: try again soon");
    else if (route->needs_models && stage == SERVER_STOPPING)
        refuse(call, HEARTH_UNAVAILABLE, "the server is stopping");
    else
        route->handler(call);
}

void routes_request(void *server, struct http_request *http)
{
    struct call *call = call_open(server, http);
    const struct route *same_path = NULL;
    for (const struct route *r = routes; r < routes + N_ROUTES; r++) {
        if (!matches(r->path, call->path)) continue;
        same_path = r;
        call->route = r->path;
        if (answers(r, call->method)) {
            dispatch(call, r);
            return;
        }
    }
    if (same_path == NULL)
        refuse(call, ERRORS_NO_ROUTE, "there is no such route");
    else if (strcmp(call->method, "OPTIONS") == 0)
        answer_preflight(call);
    else
        refuse_method(call, same_path);
}
