/* A Redis Cluster as one server ("Redis cluster specification", redis.io). Its nodes divide the keys among themselves
 * by their hash. Each refuses the others' keys with the address of the one that has them: MOVED for good, or ASK while
 * keys are on their way. Commands go where their keys are; refused ones follow. A server that is no cluster is a single
 * node with all keys.
 *
 *     open ─▶ connect ─▶ run, run … ─▶ connect again after a loss ─▶ close
 *
 * run() may be called from any threads at once, also while another one connects; a batch whose keys are at several
 * nodes asks one after the other. Only connect(), which one thread calls at a time, meets nodes and waits for more than
 * the time-outs. */
#ifndef STORE_REMOTE_REDIS_CLUSTER_H
#define STORE_REMOTE_REDIS_CLUSTER_H

#include "store/remote/redis.h"

struct redis_cluster;

/* The address is that of any node. All are reached with the same user, password and certificates. */
struct redis_cluster *redis_cluster_open(const struct redis_params *params); /* the strings are copied */
void redis_cluster_close(struct redis_cluster *cluster);

/* Connects to the node of the address, or where it is away to one that was met before. Asks it for the nodes of the
 * keys, and connects to all that have some. 0, or HEARTH_IO with what is wrong with one of them. */
int redis_cluster_connect(struct redis_cluster *cluster, hearth_error *error);

/* As redis_run(), for commands that have one key each. HEARTH_UNAVAILABLE also: a key is at a node that was not met. */
int redis_cluster_run(struct redis_cluster *cluster, struct redis_batch *batch, int64_t deadline, hearth_error *error);

#endif
