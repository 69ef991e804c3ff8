/* The live view: GET /live streams what GET /slots and GET /cache say, as server-sent events
 * {"slots": […], "cache": {…}}: the first at once, then at most four a second while something changes, and one every
 * few seconds while nothing does.
 *
 * One report is made for all who watch, and none while nobody does: neither the engine nor the HTTP thread has any work
 * with it then. A client that reads slowly misses reports and gets the newest once it has taken what was sent; nothing
 * is queued for it. HTTP thread only. */
#ifndef SERVE_STATUS_LIVE_H
#define SERVE_STATUS_LIVE_H

#include "serve/core/call.h"

struct live;

struct live *live_open(const hearth *instance, struct http_server *http, struct workers *workers);

/* After http_run() has returned and before http_close(): ends the streams. NULL is fine. */
void live_close(struct live *live);

/* Ends every stream; clients that come again get another one. */
void live_end_all(struct live *live);

/* The same, but whoever comes again is refused: a stream would hold up the end of the server. */
void live_stop(struct live *live);

/* GET /live. Needs the grants of both routes: that of /slots is checked before, that of /cache here. */
void live_stream(struct call *call);

#endif
