/* Values on the server that are no slabs: hints, and one that is read to measure what reading costs.
 *
 * Hints (backend.h): of each block a list of the positions at which states were put, numbers of 4 bytes, one after the
 * other. They are not authenticated: a wrong one costs a question. */
#include "base/clock.h"
#include "base/little.h"
#include "base/memory.h"
#include "store/remote/remote_parts.h"

#include <stdio.h>
#include <stdlib.h>

enum { HINT_BYTES = 4 };

static void hints_key(const struct remote *remote, const struct slab_key *before, struct buf *key)
{
    struct sealed_name name = sealed_hints_name(&remote->keys, before, remote->stride);
    remote_first_key(remote, &name, key);
}

int remote_read_hints(struct backend *backend, const struct slab_key *before, size_t n, struct backend_hints *hints,
                      int64_t deadline, hearth_error *error)
{
    struct remote *remote = remote_of(backend);
    struct redis_batch batch = {.most_reply = BACKEND_HINTS * HINT_BYTES};
    struct buf key = {0};
    for (size_t i = 0; i < n; i++) {
        hints_key(remote, &before[i], &key);
        remote_add_get_first(&batch, &key, BACKEND_HINTS * HINT_BYTES);
        remote_add_expire(remote, &batch, &key);
    }
    int result = remote_run(remote, &batch, deadline, error);
    size_t replies = n > 0 ? batch.n_commands / n : 0;
    for (size_t i = 0; result == 0 && i < n; i++) {
        const struct redis_reply *reply = &batch.replies[i * replies];
        size_t got = reply->kind != REDIS_BYTES ? 0 : reply->size / HINT_BYTES;
        hints[i].n = got < BACKEND_HINTS ? got : BACKEND_HINTS;
        for (size_t k = 0; k < hints[i].n; k++)
            hints[i].offsets[k] = (uint32_t)little_get((const uint8_t *)reply->bytes + k * HINT_BYTES, HINT_BYTES);
    }
    redis_batch_release(&batch);
    buf_release(&key);
    return result;
}

/* A list that is full begins anew: the states that it named may long be evicted. */
int remote_add_hint(struct backend *backend, const struct slab_key *before, uint32_t offset, hearth_error *error)
{
    struct remote *remote = remote_of(backend);
    struct backend_hints hints;
    struct redis_batch batch = {0};
    struct buf key = {0};
    uint8_t bytes[HINT_BYTES];
    int result = remote_read_hints(backend, before, 1, &hints, CLOCK_NEVER, error);
    if (result != 0) return result;
    for (size_t i = 0; i < hints.n; i++)
        if (hints.offsets[i] == offset) return 0;
    little_put(bytes, offset, sizeof bytes);
    hints_key(remote, before, &key);
    const char *command = hints.n < BACKEND_HINTS ? "APPEND" : "SET";
    redis_add(&batch, (const struct redis_argument[]){WORD(command), bytes_of(&key), {bytes, sizeof bytes}}, 3);
    remote_add_expire(remote, &batch, &key);
    result = remote_run(remote, &batch, CLOCK_NEVER, error);
    redis_batch_release(&batch);
    buf_release(&key);
    return result;
}

/* ---- Measuring: a value is put there, read back with its MAC, and removed ---- */

/* A megabyte tells what a byte costs; where it takes long one is enough. */
enum { MEASURED_BYTES = 1 << 20, MEASUREMENTS = 3, MEASURED_TTL_S = 60 };
#define LONG_NS ((int64_t)100000000)

struct measuring {
    const struct remote *remote;
    struct sealed_name name; /* of no slab */
    struct sealed_head head;
    struct buf key;
    uint8_t bytes[MEASURED_BYTES];
};

/* The least of some: other work of the machines is not the server's price. */
static int time_reads(const struct measuring *m, size_t size, double *least, hearth_error *error)
{
    int64_t ns = 0;
    int result = 0;
    *least = 0;
    for (int i = 0; i < MEASUREMENTS && result == 0 && ns < LONG_NS; i++) {
        struct redis_batch batch = {0};
        remote_add_get_first(&batch, &m->key, size);
        int64_t began = clock_now(clock_monotonic());
        result = remote_run(m->remote, &batch, CLOCK_NEVER, error);
        const struct redis_reply *reply = batch.replies;
        if (result == 0 && (reply->kind != REDIS_BYTES || reply->size != size))
            result = remote_fail_damaged(error, "something else");
        /* With its MAC, as a slab is read. */
        if (result == 0 && size == MEASURED_BYTES &&
            !sealed_open(&m->remote->keys, &m->name, &m->head, (uint8_t *)reply->bytes))
            result = remote_fail_damaged(error, "bytes of another MAC");
        ns = clock_now(clock_monotonic()) - began;
        redis_batch_release(&batch);
        if (i == 0 || (double)ns < *least) *least = (double)ns;
    }
    return result;
}

static int put_measured(struct measuring *m, hearth_error *error)
{
    struct redis_batch batch = {0};
    char ttl[8];
    snprintf(ttl, sizeof ttl, "%d", MEASURED_TTL_S);
    seal_random(m->name.v, sizeof m->name.v);
    sealed_seal(&m->remote->keys, &m->name, m->bytes, sizeof m->bytes, &m->head);
    remote_first_key(m->remote, &m->name, &m->key);
    redis_add(&batch,
              (const struct redis_argument[]){
                  WORD("SET"), bytes_of(&m->key), {m->bytes, sizeof m->bytes}, WORD("EX"), WORD(ttl)},
              5);
    int result = remote_run(m->remote, &batch, CLOCK_NEVER, error);
    redis_batch_release(&batch);
    return result;
}

int remote_measure(struct backend *backend, struct read_assumed *measured, hearth_error *error)
{
    struct measuring *m = mem_alloc(sizeof *m);
    double one = 0, all = 0;
    m->remote = remote_of(backend);
    int result = put_measured(m, error);
    if (result == 0) result = time_reads(m, 1, &one, error);
    if (result == 0) result = time_reads(m, MEASURED_BYTES, &all, error);
    if (result == 0) remote_delete_first(m->remote, &m->name);
    *measured = (struct read_assumed){.request_ns = one, .byte_ns = all > one ? (all - one) / MEASURED_BYTES : 0};
    buf_release(&m->key);
    free(m);
    return result;
}
