/* Passes the listening sockets of a server on to the process that takes its place, so that no connection is refused
 * (docs/durability.md, "Rolling restarts").
 *
 *     next process                                     former process
 *     connects to server.handover ────────────────▶
 *                                 ◀──── the sockets    accepts connections as before
 *     loads its models
 *     "ready" ────────────────────────────────────▶    accepts no more, drains, saves
 *                                 ◀──── the end        has ended, and so has its lock on the cache
 *     accepts connections, which have waited in the kernel
 *
 * Where the next process ends before it is ready, the former one just goes on. Where the former one ends first, for
 * whatever reason, the next one has the sockets already.
 *
 * Also finds the sockets that systemd, or another parent, has opened for this process. */
#ifndef SERVE_HANDOVER_H
#define SERVE_HANDOVER_H

#include "http/http.h"

/* How many sockets the environment names (LISTEN_FDS, LISTEN_PID), out of which the variables are taken: before there
 * are threads that may read it. */
long handover_passed(void);

/* Adopts so many of them. */
int handover_from_parent(long passed, struct http_server *http, hearth_error *error);

struct handover;

/* Adopts the sockets of the process that listens at `path`, if there is one; it has to be this user's. The functions
 * below that have no remark run on the server's thread, or before it. */
struct handover *handover_open(const char *path, struct http_server *http, hearth_error *error);

/* Whether there was such a process; false for NULL. */
bool handover_has_former(const struct handover *handover);

/* Tells the former process that this one is ready, and waits for its end. On any one thread. */
void handover_take(struct handover *handover);

/* Makes handover_take() return at once. */
void handover_give_up(struct handover *handover);

/* Listens at the path for the next process; `on_ready` is called once that is ready. NULL is fine. */
int handover_listen(struct handover *handover, void (*on_ready)(void *ud), void *ud, hearth_error *error);

/* After http_run() has returned and before http_close(): nothing is passed on any more. NULL is fine. */
void handover_stop(struct handover *handover);

/* Once everything else is closed, since the next process takes it for the end of this one. NULL is fine. */
void handover_close(struct handover *handover);

#endif
