/* Reads the replies to one batch from what a connection receives. hiredis reads the protocol, but for the bytes of long
 * replies: those are received where they stay, and not copied twice. One thread. */
#ifndef STORE_REMOTE_REDIS_REPLIES_H
#define STORE_REMOTE_REDIS_REPLIES_H

#include "store/remote/redis.h"

#include <hiredis/read.h>

/* For a connection, which closes it with redisReaderFree(). NULL: no memory. */
redisReader *redis_reader_open(void);

struct redis_replies {
    redisReader *reader; /* the connection's; between two batches nothing is in it */
    struct redis_batch *batch;
    char *received; /* what is not received in its place */
    char *place;    /* where a long reply comes; NULL: none does */
    bool own;       /* the place was allocated here, and is not the caller's */
    size_t size;    /* of that reply, */
    size_t has;     /* and what has come of it and of the two bytes behind it */
};

/* 0, or HEARTH_NO_MEMORY. */
int redis_replies_begin(struct redis_replies *replies, redisReader *reader, struct redis_batch *batch,
                        hearth_error *error);
void redis_replies_end(struct redis_replies *replies); /* the batch keeps its replies */

/* Where the next bytes belong that are received, and how many of them at most. */
char *redis_replies_room(const struct redis_replies *replies, size_t *size);

/* Takes n bytes that were received there. HEARTH_UNAVAILABLE, or HEARTH_NO_MEMORY: the connection is of no use then. */
int redis_replies_take(struct redis_replies *replies, size_t n, hearth_error *error);

#endif
