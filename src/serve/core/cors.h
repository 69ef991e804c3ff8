/* CORS: which web pages may use the server. A browser lets any page send requests to this machine and names the
 * page's origin in the Origin header. Requests of foreign origins are refused, and only allowed origins get the
 * headers that let a page read the answer.
 *
 * Beside that the host names that a server without API keys answers to, against DNS rebinding. A page whose own host
 * name was made to point at this machine is same-origin in a browser. Its Origin header cannot be told from an allowed
 * one, but its Host header can. HTTP thread only. */
#ifndef SERVE_CORE_CORS_H
#define SERVE_CORE_CORS_H

#include "http/http.h"

struct cors;

/* Allows pages of this machine, pages of desktop apps, and the comma-separated origins of server.allowed_origins
 * (NULL: none). */
struct cors *cors_open(const char *allowed);
void cors_close(struct cors *cors);

/* The type of a route's bodies: JSON, which browsers send after a preflight only, or forms, which they send at once. */
enum cors_body { CORS_JSON, CORS_FORM };

/* HEARTH_OK if the request has no Origin, or an allowed one and a body of the route's type. */
int cors_check(const struct cors *cors, const struct http_request *http, enum cors_body body, hearth_error *error);

/* Sets the headers that let an allowed page read the answer; and those of the answer to a preflight, which let it
 * send its request. */
void cors_put_headers(const struct cors *cors, struct http_request *http);
void cors_put_preflight_headers(struct http_request *http);

struct hosts;

/* Allows loopback, the names of this machine, and the comma-separated names of server.allowed_hosts (NULL: none). */
struct hosts *hosts_open(const char *allowed);
void hosts_close(struct hosts *hosts);

/* Allows what the server listens on: an address of server.listen ("box:8080"), and the addresses of its sockets. */
void hosts_add(struct hosts *hosts, const char *host);
void hosts_add_sockets(struct hosts *hosts, const struct http_server *http);

/* Whether a Host header of that text is allowed. A request without one (NULL, "") is not a browser's and is allowed. */
bool hosts_allow(const struct hosts *hosts, const char *text);

/* HEARTH_OK if the request's Host header is allowed, and the host in its target if that names one. Unix sockets
 * answer to any name, since no web page reaches them. */
int hosts_check(const struct hosts *hosts, const struct http_request *http, hearth_error *error);

#endif
