/* The table of routes: dispatches each HTTP request to its handler, after the checks of origin, host, API key and
 * rate limit. HTTP thread only. */
#ifndef SERVE_ROUTES_H
#define SERVE_ROUTES_H

#include "serve/core/server.h"

/* Answers a request, now or later; an http_handler of a struct server. */
void routes_request(void *server, struct http_request *http);

/* Refuses a request for its origin, host, API key or that key's rate limit once its headers are there, before its
 * body is received. */
void routes_head(void *ud, struct http_request *http);

/* Whether the request is answered even if server.max_connections is reached: routes that need no API key, such as
 * GET /health. */
bool routes_is_urgent(void *server, const struct http_request *http);

/* Writes the error of a request that src/http refused, in the form of the route's API, and sets the headers of that
 * answer. */
void routes_fault(void *ud, struct http_request *http, int status, const char *message, struct buf *out);

#endif
