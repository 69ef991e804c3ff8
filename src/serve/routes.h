/* The table of routes. HTTP thread only. */
#ifndef SERVE_ROUTES_H
#define SERVE_ROUTES_H

#include "serve/server.h"

/* Answers a request, now or later; an http_handler of a struct server. */
void routes_request(void *server, struct http_request *http);

/* What a path has in the place of its route's "{id}". */
const char *routes_rest(const struct call *call);

#endif
