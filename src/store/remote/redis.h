/* A client of Redis or Valkey: batches of commands over a few connections, each with a deadline. The protocol is read
 * by hiredis; sockets, TLS (redis_tls.h), waiting and limits are not, so that no call takes longer than it was told.
 *
 *     open ─▶ connect ─▶ run, run … ─▶ connect again after a loss ─▶ close
 *
 * run() may be called from any threads at once; each call has a connection to itself meanwhile. Only connect() may
 * wait for more than the time-outs: for the resolver. */
#ifndef STORE_REMOTE_REDIS_H
#define STORE_REMOTE_REDIS_H

#include "base/buf.h"
#include "base/host.h"
#include "hearth.h"

struct redis_params {
    struct redis_address address;
    const char *user;          /* NULL: the default user */
    const char *password_file; /* its first line; read again by each connect(). NULL: no password */
    int64_t timeout_ns;        /* without a byte from the server, after which it counts as away */
    const char *ca_file;       /* certificates that are trusted with TLS; NULL: the system's */
    const char *certificate_file, *certificate_key_file; /* as redis_tls.h has them, with TLS */
    bool only_local;                                     /* a name that leads to another machine is refused */
    size_t most_idle;                                    /* connections that are kept for later calls; 0: 8 */
};

struct redis;

struct redis *redis_open(const struct redis_params *params); /* the strings are copied */
void redis_close(struct redis *redis);

/* Another client with the same parameters, but for the address, and with two idle connections at most. */
struct redis *redis_open_beside(const struct redis *redis, const struct redis_address *address);

const struct redis_address *redis_address(const struct redis *redis); /* lives as long as the client */

/* Resolves the address, connects, authenticates. 0, or HEARTH_IO with what is wrong. Closes earlier connections. */
int redis_connect(struct redis *redis, hearth_error *error);

enum redis_kind { REDIS_NIL, REDIS_BYTES, REDIS_INTEGER, REDIS_REFUSED };

struct redis_reply {
    enum redis_kind kind;
    int64_t integer;
    char *bytes; /* of BYTES, unless they went elsewhere, and the message of REFUSED: with a zero behind them */
    size_t size;
};

/* Commands that are sent together, and their replies in the same order. Zeroed: none. */
struct redis_batch {
    struct buf text; /* the commands, but for large arguments */
    struct redis_large {
        size_t text_end; /* these bytes come after so much of the text */
        const char *bytes;
        size_t size;
    } * large;
    size_t n_large;
    struct redis_command { /* its share of both ends where the next one's begins */
        size_t text_begin, large_begin;
        size_t key_begin, key_size; /* its second word, in the text. Size 0: it has none, or a large one */
        char *room;                 /* of redis_receive_into(), or NULL */
        size_t room_size;
    } * commands;
    size_t n_commands;
    size_t most_reply; /* bytes that any of them asks for: a server that sends more is away. 0: 8 MiB */
    struct redis_reply *replies;
    size_t n_replies;
};

struct redis_argument {
    const void *bytes;
    size_t size;
};

/* Arguments of REDIS_LARGE_BYTES and more are not copied, and stay the caller's until redis_run() has returned. */
#define REDIS_LARGE_BYTES ((size_t)16 << 10)
void redis_add(struct redis_batch *batch, const struct redis_argument *arguments, size_t n);
void redis_batch_release(struct redis_batch *batch); /* leaves an empty one */

/* Where the bytes of the reply to the last command go if there are so many of them; its `bytes` are NULL then. They
 * stay the caller's, who lets redis_run() return before they are freed. */
void redis_receive_into(struct redis_batch *batch, void *room, size_t size);

/* Adds the i-th command of another batch. Large arguments are where they were. */
void redis_add_copy(struct redis_batch *batch, const struct redis_batch *from, size_t i);

/* The reply's bytes, which the caller frees. */
char *redis_take(struct redis_reply *reply);

/* Sends the batch and waits for all replies, until the deadline (CLOCK_MONOTONIC, ns; CLOCK_NEVER: only the time-out
 * counts). 0: all replies are there, refusals among them. HEARTH_UNAVAILABLE: the server is away, or was never
 * connected; some commands may have been carried out. */
int redis_run(struct redis *redis, struct redis_batch *batch, int64_t deadline, hearth_error *error);

/* The first refusal among the replies; NULL: there is none. */
const char *redis_refusal(const struct redis_batch *batch);

#endif
