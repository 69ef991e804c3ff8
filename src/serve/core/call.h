/* One HTTP request on its way through the routes: its id, its answer, its line in the log, its place in the counts.
 *
 * HTTP thread only. A call ends with exactly one of call_reply(), call_fail(), call_end(), call_gone(), which
 * frees it. */
#ifndef SERVE_CORE_CALL_H
#define SERVE_CORE_CALL_H

#include "base/buf.h"
#include "hearth.h"
#include "http/http.h"

#include <stdbool.h>
#include <stdint.h>

struct errors_kind;
struct key;
struct ratelimit;
struct server;

#define CALL_ID_SIZE 64

struct call {
    struct server *server;
    struct http_request *http;
    const char *route; /* for the counts: the pattern, never what a client wrote */
    char *method, *path;
    char id[CALL_ID_SIZE];
    char *key, *owner;       /* the name of the API key, and whose it is (see access.h); NULL: no key was asked for */
    struct ratelimit *limit; /* of the key; NULL: none */
    int grants;              /* of the key; none without one */
    int64_t start;
    size_t counted; /* bytes of what its body has become, in the sum of all bodies; an exchange takes them over */
};

/* How an API writes an error, which the request of this id met. NULL: in a stream, whose head told the id. */
typedef void call_error_form(struct buf *out, const hearth_error *error, const char *request_id);

/* Finds the id of a request: the client's own where it will do. Its answer gets what every answer has: the id, and
 * leave for web pages that may ask to read it. */
void call_set_id(const struct server *server, struct http_request *http, char id[CALL_ID_SIZE]);

struct call *call_open(struct server *server, struct http_request *http);

/* Notes with which key the request came; NULL: none. */
void call_set_key(struct call *call, const struct key *key);

/* Whether the request may do what needs this grant: its key says so, or no keys are asked for. */
bool call_may(const struct call *call, int grant);

/* The salt under which what this request computes is kept: its own, and with server.isolate_keys also the owner of its
 * key. NULL: none. free() it. */
char *call_salt(const struct call *call, const char *own);

/* The name of the model that answers: `named`, or where that is NULL that of the first chat model. */
const char *call_model(const struct call *call, const char *named);

/* Answers at once. `body` is released. */
void call_reply(struct call *call, int status, const char *content_type, struct buf *body);

/* Says when to try again, where the error passes. */
void call_set_retry(struct http_request *http, const struct errors_kind *kind);

/* Answers with the error's status, with Retry-After where the error passes. */
void call_fail(struct call *call, const hearth_error *error, call_error_form *form);

/* A stream: call_begin(), http_send()…, call_end(). */
void call_begin(struct call *call, const char *content_type);
void call_end(struct call *call);

/* The client went away: the request is invalid already. */
void call_gone(struct call *call);

/* Fills `out` (of `size` > 1) with random letters and digits. */
void call_random_name(char *out, size_t size);

#endif
