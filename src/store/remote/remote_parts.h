/* The server, and the commands that remote_backend.c and remote_hints.c both send. */
#ifndef STORE_REMOTE_REMOTE_PARTS_H
#define STORE_REMOTE_REMOTE_PARTS_H

#include "store/remote/redis_cluster.h"
#include "store/remote/remote_backend.h"
#include "store/slabs/sealed_slab.h"

#include <string.h>

struct remote {
    struct backend backend; /* first */
    struct redis_cluster *server;
    char *prefix, *key_file;
    bool encrypts, has_keys;
    struct sealed_keys keys; /* written once, before open() returns for the first time */
    char ttl[24];            /* seconds, in digits; "": for ever */
    int32_t stride;
};

static inline struct remote *remote_of(struct backend *backend)
{
    return (struct remote *)(void *)backend;
}

/* The first key of what has that name on the server: a slab's first part, hints. Replaces what the buffer had. */
void remote_first_key(const struct remote *remote, const struct sealed_name *name, struct buf *key);

/* ---- Commands ---- */

#define WORD(text)                                                                                                     \
    (struct redis_argument)                                                                                            \
    {                                                                                                                  \
        (text), strlen(text)                                                                                           \
    }

static inline struct redis_argument bytes_of(const struct buf *buf)
{
    return (struct redis_argument){buf->v, buf->len};
}

/* Asks for the first bytes of a value, at most `size`. */
void remote_add_get_first(struct redis_batch *batch, const struct buf *key, size_t size);

/* Makes the value live as long as the configuration says, from now on. */
void remote_add_expire(const struct remote *remote, struct redis_batch *batch, const struct buf *key);

/* As redis_cluster_run(), but that a refusal of any of its commands is an error as well. A replica takes nothing: its
 * master is found where the name leads now, if anywhere, so it counts as away. */
int remote_run(const struct remote *remote, struct redis_batch *batch, int64_t deadline, hearth_error *error);

void remote_delete_first(const struct remote *remote, const struct sealed_name *name);

/* HEARTH_INVALID: the server has `what` in place of a slab. */
int remote_fail_damaged(hearth_error *error, const char *what);

/* ---- Of struct backend ---- */

int remote_read_hints(struct backend *backend, const struct slab_key *before, size_t n, struct backend_hints *hints,
                      int64_t deadline, hearth_error *error);
int remote_add_hint(struct backend *backend, const struct slab_key *before, uint32_t offset, hearth_error *error);
int remote_measure(struct backend *backend, struct read_assumed *measured, hearth_error *error);

#endif
