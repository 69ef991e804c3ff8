/* A server that stores slabs, in memory, and backends that talk to it as over a network: what one of them puts, the
 * others find. Any thread. */
#ifndef FAKES_FAKE_REMOTE_H
#define FAKES_FAKE_REMOTE_H

#include "store/backends/backend.h"

#include <stdbool.h>

/* Behaviour of network and server. All zero: each request is answered at once. */
struct fake_network {
    int64_t latency_ns;   /* of a request */
    bool reorders;        /* a request is answered after a later one, if there is one within the
                             latency */
    uint32_t loses_every; /* every nth time a request or an answer is lost, alternately; 0: never */
    int64_t timeout_ns;   /* time-out of a client: HEARTH_IO */
    bool hangs;           /* no request is answered */
    bool gone;            /* each fails at once; a client that saw this has to open() again later */
};

struct fake_server;

struct fake_server *fake_server_open(void);
void fake_server_close(struct fake_server *server); /* after its backends */

void fake_server_set(struct fake_server *server, struct fake_network network);

/* Waits until so many requests hang, 30 s at most; false: they do not. */
bool fake_server_await(struct fake_server *server, int hanging);

/* A client. */
struct backend *fake_remote_open(struct fake_server *server);

/* Stores `bytes` under the name, whether or not they are a slab. */
void fake_server_write(struct fake_server *server, const struct slab_name *name, const void *bytes, size_t size);

/* Changes one byte of the slab of that name. */
void fake_server_flip(struct fake_server *server, const struct slab_name *name, size_t at);

size_t fake_server_slabs(struct fake_server *server);       /* stored ones */
uint64_t fake_server_requests(struct fake_server *server);  /* received ones */
uint64_t fake_server_overtaken(struct fake_server *server); /* those answered after a later one */
uint64_t fake_server_lost(struct fake_server *server);

#endif
