/* Publishes the instance's cache events over ZeroMQ, for routers (docs/fleet.md). They subscribe to a PUB socket. At a
 * ROUTER socket they ask again for messages that they have missed.
 *
 * A message has three frames: "kv@ADDRESS@MODEL", a sequence number of eight bytes, big-endian, and a batch of events
 * (wire.h). An answer to a request for missed ones has an empty frame before them. A router that subscribes gets all
 * stored blocks: for every model AllBlocksCleared, then its blocks. So does one that has missed messages, or asks for
 * some that are not kept any more. Others get that as well, since a PUB socket speaks to all. Numbers begin at 0 and
 * never start again, but with the server.
 *
 * Everything runs on a thread of its own, which sleeps while there is nothing to do, and reads no event before the
 * first router has subscribed. */
#ifndef SERVE_EVENTS_PUBLISHER_H
#define SERVE_EVENTS_PUBLISHER_H

#include "hearth.h"

struct publisher;

struct publisher_params {
    const char *events, *replay; /* endpoints to bind, tcp://HOST:PORT; replay NULL: none */
    const char *address;         /* the server's, as routers know it: HOST:PORT */
};

/* Binds the sockets and follows the instance, before hearth_load(). NULL with the error. */
struct publisher *publisher_open(hearth *instance, const struct publisher_params *params, hearth_error *error);

/* Before hearth_close(). NULL is fine. */
void publisher_close(struct publisher *publisher);

#endif
