/* A server that keeps slabs, and backends that speak with it as over a network: what one of them put, the others find.
 * It lives in memory. Any thread. */
#ifndef FAKES_FAKE_REMOTE_H
#define FAKES_FAKE_REMOTE_H

#include "store/backend.h"

#include <stdbool.h>

/* How the network and the server are. All zero: each request is answered at once. */
struct fake_network {
    int64_t latency_ns;   /* of a request */
    bool reorders;        /* one that came first is not answered before one that came later, if there is any within the
                             latency */
    uint32_t loses_every; /* the nth request is lost, or its answer is, in turn; 0: none */
    int64_t patience_ns;  /* after which a client takes a request for lost: HEARTH_IO */
    bool hangs;           /* no request is answered */
    bool gone;            /* each fails at once; those that met it have to open() again when it is back */
};

struct fake_server;

struct fake_server *fake_server_open(void);
void fake_server_close(struct fake_server *server); /* after its backends */

void fake_server_set(struct fake_server *server, struct fake_network network);

/* Waits until so many requests hang. False: they do not within half a minute. */
bool fake_server_await(struct fake_server *server, int hanging);

/* A client of it. */
struct backend *fake_remote_open(struct fake_server *server);

/* Makes `bytes`, an encoded slab or not, what stands under the name. */
void fake_server_write(struct fake_server *server, const struct slab_name *name, const void *bytes, size_t size);

/* Changes one byte of what stands there. */
void fake_server_flip(struct fake_server *server, const struct slab_name *name, size_t at);

size_t fake_server_slabs(struct fake_server *server);       /* that it keeps */
uint64_t fake_server_requests(struct fake_server *server);  /* that it has seen */
uint64_t fake_server_overtaken(struct fake_server *server); /* that were answered after one that came later */
uint64_t fake_server_lost(struct fake_server *server);

#endif
