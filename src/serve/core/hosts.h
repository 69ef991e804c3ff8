/* Which names a server without API keys answers to. A page whose own name was made to point at this machine (DNS
 * rebinding) counts as the same site in a browser, so that no origin gives it away; the name it asks for, in the Host
 * header, does. HTTP thread only. */
#ifndef SERVE_CORE_HOSTS_H
#define SERVE_CORE_HOSTS_H

#include "http/http.h"

struct hosts;

/* Loopback, the names of this machine, and those of server.allowed_hosts, with commas between (NULL: none). */
struct hosts *hosts_open(const char *allowed);
void hosts_close(struct hosts *hosts);

/* Adds what a server listens on: an address of server.listen ("box:8080"), and the addresses of its sockets. */
void hosts_add(struct hosts *hosts, const char *host);
void hosts_add_sockets(struct hosts *hosts, const struct http_server *http);

/* Whether a Host header of that text asks for one of them. Whoever names none (NULL, "") is no browser. */
bool hosts_allow(const struct hosts *hosts, const char *text);

/* HEARTH_OK where the request asks for one of them: in its Host header, and in its target where that names a host too.
 * A unix socket answers to any name, since no page reaches it. */
int hosts_check(const struct hosts *hosts, const struct http_request *http, hearth_error *error);

#endif
