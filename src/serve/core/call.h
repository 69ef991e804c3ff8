/* One HTTP request that is being served: its request id, its API key's owner, grants and rate limit, its access log
 * line and its entry in the request metrics.
 *
 * HTTP thread only, but for the handlers of call_away(). A call ends with exactly one of call_reply(), call_fail(),
 * call_end(), call_gone(), which frees it. */
#ifndef SERVE_CORE_CALL_H
#define SERVE_CORE_CALL_H

#include "base/buf.h"
#include "hearth.h"
#include "http/http.h"
#include "serve/core/errors.h"
#include "serve/core/header_list.h"
#include "serve/core/workers.h"

#include <stdbool.h>
#include <stdint.h>

struct errors_kind;
struct key;
struct ratelimit;
struct server;
struct trace;

#define CALL_ID_SIZE 64

struct call {
    struct server *server;
    struct http_request *http;
    const char *route; /* metrics label: the route's pattern, never the path that a client wrote */
    char *method, *path;
    char id[CALL_ID_SIZE];
    char *key, *owner;       /* the API key's name and owner (see keys.h); NULL: the server has no API keys */
    struct ratelimit *limit; /* of the API key; NULL: it has no limits */
    int grants;              /* of the API key; 0 without one */
    int64_t start;
    struct trace *trace; /* NULL: none is made */
    size_t counted;      /* bytes of the parsed body, counted in the sum of all bodies; an exchange takes them over */
    char *model;         /* what the answer calls it; NULL: not known yet */
    json_t *places;      /* where the chat's fields stand in the body; NULL: where they are in the chat */
    struct header_list left_out, unenforced; /* reported with the headers, and complete when they are sent */
    struct call_away *away;                  /* NULL: the HTTP thread answers it */
};

/* Answers a call: ends with call_reply() or call_fail(). */
typedef void call_handler(struct call *call, void *ud);

/* Writes an error in an API's form. `request_id` is NULL within a stream, whose headers have named the id already. */
typedef void call_error_form(struct buf *out, const hearth_error *error, const char *request_id);

/* Sets the request id: the client's own if it is fit for headers and logs, else a random one. Adds the headers that
 * every response has: the id, and CORS headers for web pages that may read it. */
void call_set_id(const struct server *server, struct http_request *http, char id[CALL_ID_SIZE]);

struct call *call_open(struct server *server, struct http_request *http);

/* Route patterns have parameters in braces that match any text: "/v1/models/{id}". One at the end of the pattern may
 * match slashes, others end at the next slash. */
bool call_path_matches(const char *pattern, const char *path);

/* Of the call's path: the value of the first parameter and all that follows it; the value of the n-th parameter (from
 * 0), free() it. */
const char *call_path_rest(const struct call *call);
char *call_path_part(const struct call *call, size_t n);

/* Sets the API key that the request came with; NULL: none. */
void call_set_key(struct call *call, const struct key *key);

/* Begins the trace of the request, whose `traceparent` it may have, and names it in the response. `operation` is what
 * the conventions call it; NULL: nothing of theirs. */
void call_trace(struct call *call, const char *operation);

/* Sets the model for the log and the trace, if there is one. NULL: the request names none. */
void call_set_model(struct call *call, const char *model);

/* Whether the request has this grant: its API key has it, or the server has no API keys. */
bool call_may(const struct call *call, int grant);

/* The cache salt of the request, which separates cached prefixes: `own`, the request's field, and with
 * server.isolate_keys also the owner of its API key. NULL: none. free() it. */
char *call_salt(const struct call *call, const char *own);

/* The part of such a salt that is the request's own field; NULL: none. */
const char *call_own_salt(const char *salt);

/* The name that an answer gives its model: `named`, as the client wrote it, whichever model it leads to. If that is
 * NULL it is the name of the library's choice (server.default_model, else the first chat model). */
const char *call_model(const struct call *call, const char *named);

/* Has the call answered on an answering thread, since that may take long. The handler may use all that is not the HTTP
 * thread's own; the request stays valid, whether the client does or not. */
void call_away(struct call *call, call_handler *handler, void *ud);

/* Sends a whole response. `body` is released. */
void call_reply(struct call *call, int status, const char *content_type, struct buf *body);

/* {"success":true} */
void call_reply_success(struct call *call);

/* Sets Retry-After if the error is temporary. */
void call_set_retry(struct http_request *http, const struct errors_kind *kind);

/* Sends the error with its HTTP status, and Retry-After if it is temporary. An error about a field of the chat names
 * the client's own field instead. */
void call_fail(struct call *call, const hearth_error *error, call_error_form *form);

/* The same with an error that is made here; `param` as in struct hearth_error. */
void call_refuse(struct call *call, call_error_form *form, int code, const char *param, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* A streamed response, or a whole one that is sent in pieces: call_begin() or call_begin_whole(), http_send()…,
 * call_end(). */
void call_begin(struct call *call, const char *content_type);
void call_begin_whole(struct call *call, const char *content_type);
void call_end(struct call *call);

/* The client disconnected: `call->http` is invalid already. */
void call_gone(struct call *call);

/* Fills `out` (of `size` > 1) with random letters and digits. */
void call_random_name(char *out, size_t size);

#endif
