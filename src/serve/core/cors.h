/* Which web pages may ask. A browser lets any page send requests to this machine, and says in the Origin header whose
 * page it is: that of a foreign one is refused, and only the others get leave to read answers (CORS). HTTP thread
 * only. */
#ifndef SERVE_CORE_CORS_H
#define SERVE_CORE_CORS_H

#include "http/http.h"

struct cors;

/* Allows the pages of this machine, those of desktop apps, and the origins of server.allowed_origins, with commas
 * between (NULL: none). */
struct cors *cors_open(const char *allowed);
void cors_close(struct cors *cors);

/* HEARTH_OK where no page asks, or one that may, and it sends nothing that a browser would have sent without asking
 * first (a preflight). */
int cors_check(const struct cors *cors, const struct http_request *http, hearth_error *error);

/* The headers that let a page which may ask read the answer, and, of a preflight's answer, send its request. */
void cors_put_headers(const struct cors *cors, struct http_request *http);
void cors_put_preflight_headers(struct http_request *http);

#endif
