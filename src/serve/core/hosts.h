/* The host names that a server without API keys answers to, against DNS rebinding: a page whose own host name was
 * made to point at this machine is same-origin in a browser, so that its Origin header cannot be told from an
 * allowed one; its Host header can. HTTP thread only. */
#ifndef SERVE_CORE_HOSTS_H
#define SERVE_CORE_HOSTS_H

#include "http/http.h"

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
