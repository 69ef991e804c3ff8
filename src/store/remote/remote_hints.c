/* Hints (backend.h): of each block a list of the positions at which states were put, numbers of 4 bytes, one after the
 * other. They are not authenticated: a wrong one costs a question. */
#include "store/remote/remote_parts.h"

#include "base/little.h"

#include <stdio.h>

enum { HINT_BYTES = 4 };

static void hints_key(const struct remote *remote, const struct slab_key *before, struct buf *key)
{
    struct sealed_name name = sealed_hints_name(&remote->keys, before, remote->stride);
    remote_first_key(remote, &name, key);
}

static void take_hints(const struct redis_reply *reply, struct backend_hints *hints)
{
    hints->n = reply->kind != REDIS_BYTES ? 0 : reply->size / HINT_BYTES;
    if (hints->n > BACKEND_HINTS) hints->n = BACKEND_HINTS;
    for (size_t i = 0; i < hints->n; i++)
        hints->offsets[i] = (uint32_t)little_get((const uint8_t *)reply->bytes + i * HINT_BYTES, HINT_BYTES);
}

int remote_read_hints(struct backend *backend, const struct slab_key *before, size_t n, struct backend_hints *hints,
                      int64_t deadline, hearth_error *error)
{
    struct remote *remote = remote_of(backend);
    struct redis_batch batch = {.most_reply = BACKEND_HINTS * HINT_BYTES};
    struct buf key = {0};
    char last[8];
    snprintf(last, sizeof last, "%d", BACKEND_HINTS * HINT_BYTES - 1);
    for (size_t i = 0; i < n; i++) {
        hints_key(remote, &before[i], &key);
        redis_add(&batch, (const struct redis_argument[]){WORD("GETRANGE"), bytes_of(&key), WORD("0"), WORD(last)}, 4);
        remote_add_expire(remote, &batch, &key);
    }
    int result = remote_run(remote, &batch, deadline, error);
    size_t replies = n > 0 ? batch.n_commands / n : 0;
    for (size_t i = 0; result == 0 && i < n; i++) take_hints(&batch.replies[i * replies], &hints[i]);
    redis_batch_release(&batch);
    buf_release(&key);
    return result;
}

static bool is_hinted(const struct backend_hints *hints, uint32_t offset)
{
    size_t i = 0;
    while (i < hints->n && hints->offsets[i] != offset) i++;
    return i < hints->n;
}

/* A list that is full begins anew: what it named may long be evicted. */
int remote_add_hint(struct backend *backend, const struct slab_key *before, uint32_t offset, hearth_error *error)
{
    struct remote *remote = remote_of(backend);
    struct backend_hints hints;
    struct redis_batch batch = {0};
    struct buf key = {0};
    uint8_t bytes[HINT_BYTES];
    int result = remote_read_hints(backend, before, 1, &hints, CLOCK_NEVER, error);
    if (result != 0 || is_hinted(&hints, offset)) return result;
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
