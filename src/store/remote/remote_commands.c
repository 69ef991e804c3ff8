/* Keys on the server, and the commands that all need. */
#include "store/remote/remote_parts.h"

#include "base/error.h"

void remote_first_key(const struct remote *remote, const struct sealed_name *name, struct buf *key)
{
    char digits[2 * SHA256_BYTES + 1];
    sha256_to_hex(name->v, digits);
    buf_clear(key);
    buf_printf(key, "%s:%s", remote->prefix, digits);
}

void remote_add_delete(struct redis_batch *batch, const struct buf *key)
{
    redis_add(batch, (const struct redis_argument[]){WORD("DEL"), bytes_of(key)}, 2);
}

void remote_add_expire(const struct remote *remote, struct redis_batch *batch, const struct buf *key)
{
    if (remote->ttl[0] != '\0')
        redis_add(batch, (const struct redis_argument[]){WORD("EXPIRE"), bytes_of(key), WORD(remote->ttl)}, 3);
}

int remote_run(const struct remote *remote, struct redis_batch *batch, int64_t deadline, hearth_error *error)
{
    int result = redis_cluster_run(remote->server, batch, deadline, error);
    const char *refusal = result == 0 ? redis_refusal(batch) : NULL;
    if (refusal == NULL) return result;
    int code = strncmp(refusal, "READONLY", 8) == 0 ? HEARTH_UNAVAILABLE : HEARTH_IO;
    return error_set(error, code, "the server refuses: %s", refusal);
}

void remote_delete_first(const struct remote *remote, const struct sealed_name *name)
{
    struct redis_batch batch = {0};
    struct buf key = {0};
    remote_first_key(remote, name, &key);
    remote_add_delete(&batch, &key);
    remote_run(remote, &batch, CLOCK_NEVER, NULL);
    redis_batch_release(&batch);
    buf_release(&key);
}

int remote_fail_damaged(hearth_error *error, const char *what)
{
    return error_set(error, HEARTH_INVALID, "the server has %s under the name of a slab", what);
}
