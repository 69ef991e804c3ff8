/* A Redis Cluster of real servers on ports of the loopback address, for tests of what talks to one. Ends with the
 * process. */
#ifndef FAKES_REDIS_NODES_H
#define FAKES_REDIS_NODES_H

#include "fakes/redis_server.h"

enum { REDIS_MASTERS = 3, REDIS_NODES = REDIS_MASTERS + 1, REDIS_NODE_OPTIONS = 32 };

/* The hash slots are divided evenly among the first ones; the last node has none. */
struct redis_nodes {
    struct redis_server servers[REDIS_NODES];
    char ports[REDIS_NODES][8], bus_ports[REDIS_NODES][8], urls[REDIS_NODES][40];
    const char *options[REDIS_NODES][REDIS_NODE_OPTIONS];
    char certificate[96], key[96];
};

/* Starts them, and waits until the cluster serves. With a folder they speak TLS with its localhost.crt and
 * localhost.key, and announce that name beside their addresses; NULL: without. */
void redis_nodes_start(struct redis_nodes *nodes, const char *tls_folder);
void redis_nodes_await(const struct redis_nodes *nodes); /* … until each of them says that the cluster serves */
void redis_nodes_stop(struct redis_nodes *nodes);

/* The value behind "NAME:" in what the node's INFO or CLUSTER INFO says; 0: it is not there. */
long redis_nodes_info(const struct redis_nodes *nodes, int node, const char *name);

void redis_nodes_id(const struct redis_nodes *nodes, int node, char id[41]);

#endif
