/* The table of routes. HTTP thread only. */
#ifndef SERVE_ROUTES_H
#define SERVE_ROUTES_H

#include "serve/core/server.h"

/* Answers a request, now or later; an http_handler of a struct server. */
void routes_request(void *server, struct http_request *http);

/* Refuses what may not come in, for its web page, its host, its key or that key's limits, before its body is read. */
void routes_head(void *server, struct http_request *http);

/* Whether the request is answered even where every connection is taken: how the server is, and nothing else. */
bool routes_is_urgent(void *server, const struct http_request *http);

/* What src/http says of a request that it could not take, in the form of the route's API, and the headers of that
 * answer. */
void routes_fault(void *server, struct http_request *http, int status, const char *message, struct buf *out);

#endif
