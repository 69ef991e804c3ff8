/* One HTTP request on its way through the routes: its id, its answer, its line in the log, its place in the counts.
 *
 * HTTP thread only. A call ends with exactly one of call_reply(), call_fail(), call_end(), call_gone(), which
 * frees it. */
#ifndef SERVE_CALL_H
#define SERVE_CALL_H

#include "base/buf.h"
#include "hearth.h"
#include "http/http.h"
#include "serve/fields.h"

struct server;

struct call {
    struct server *server;
    struct http_request *http;
    const char *route; /* for the counts: the pattern, never what a client wrote */
    char *method, *path;
    char id[64]; /* X-Request-Id */
    int64_t start;
};

/* How an API writes an error. */
typedef void call_error_form(struct buf *out, const hearth_error *error);

struct call *call_open(struct server *server, struct http_request *http);

/* Reads the body, and drops it. False: the call has been answered with the error. */
bool call_read_fields(struct call *call, int route, call_error_form *form, struct fields *fields);

/* The name of the model that answers: that of the first where the request names none. */
const char *call_model(const struct call *call, const struct fields *fields);

/* Answers at once. `body` is released. */
void call_reply(struct call *call, int status, const char *content_type, struct buf *body);

/* Answers with the error's status, with Retry-After where the error passes. */
void call_fail(struct call *call, const hearth_error *error, call_error_form *form);

/* A stream of server-sent events: call_begin(), http_send()…, call_end(). */
void call_begin(struct call *call);
void call_end(struct call *call);

/* The client went away: the request is invalid already. */
void call_gone(struct call *call);

/* Fills `out` (of `size` > 1) with random letters and digits. */
void call_random_name(char *out, size_t size);

#endif
