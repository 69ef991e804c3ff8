/* CORS: which web pages may use the server. A browser lets any page send requests to this machine and names the
 * page's origin in the Origin header. Requests of foreign origins are refused, and only allowed origins get the
 * headers that let a page read the answer. HTTP thread only. */
#ifndef SERVE_CORE_CORS_H
#define SERVE_CORE_CORS_H

#include "http/http.h"

struct cors;

/* Allows pages of this machine, pages of desktop apps, and the comma-separated origins of server.allowed_origins
 * (NULL: none). */
struct cors *cors_open(const char *allowed);
void cors_close(struct cors *cors);

/* What a route's bodies are: JSON, which browsers send after a preflight only, or forms, which they send at once. */
enum cors_body { CORS_JSON, CORS_FORM };

/* HEARTH_OK if the request has no Origin, or an allowed one and a body of the route's type. */
int cors_check(const struct cors *cors, const struct http_request *http, enum cors_body body, hearth_error *error);

/* Sets the headers that let an allowed page read the answer; and those of the answer to a preflight, which let it
 * send its request. */
void cors_put_headers(const struct cors *cors, struct http_request *http);
void cors_put_preflight_headers(struct http_request *http);

#endif
