/* Slabs on a server, each sealed (sealed_slab.h) and cut into parts. The first part is written last, if there is none
 * yet, and names the others. So a slab whose first part is there was whole. Of two processes that store the same one at
 * the same time the second one's parts are removed again. A part may be evicted alone: the slab counts as gone then,
 * and its first part is removed, so that the next process which has the slab stores it anew.
 *
 * Nothing that the server answers is trusted: sizes are bounded, and bytes are used once the MAC, the CRCs and the name
 * were checked. */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "store/remote/remote_parts.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARTS_AT_ONCE = 4, SECRET_LEAST_BYTES = 16, SECRET_MOST_BYTES = 4096 };

/* ---- Commands ---- */

void remote_first_key(const struct remote *remote, const struct sealed_name *name, struct buf *key)
{
    char digits[2 * SHA256_BYTES + 1];
    sha256_to_hex(name->v, digits);
    buf_clear(key);
    buf_printf(key, "%s:%s", remote->prefix, digits);
}

static void add_delete(struct redis_batch *batch, const struct buf *key)
{
    redis_add(batch, (const struct redis_argument[]){WORD("DEL"), bytes_of(key)}, 2);
}

void remote_add_get_first(struct redis_batch *batch, const struct buf *key, size_t size)
{
    char last[24];
    snprintf(last, sizeof last, "%zu", size - 1);
    redis_add(batch, (const struct redis_argument[]){WORD("GETRANGE"), bytes_of(key), WORD("0"), WORD(last)}, 4);
}

void remote_add_expire(const struct remote *remote, struct redis_batch *batch, const struct buf *key)
{
    if (remote->ttl[0] != '\0')
        redis_add(batch, (const struct redis_argument[]){WORD("EXPIRE"), bytes_of(key), WORD(remote->ttl)}, 3);
}

/* A read, and with it a longer life. Bytes of that size go to the room, if there is one. */
static void add_get(const struct remote *remote, struct redis_batch *batch, const struct buf *key, uint8_t *room,
                    size_t size)
{
    redis_add(batch, (const struct redis_argument[]){WORD("GET"), bytes_of(key)}, 2);
    redis_receive_into(batch, room, size);
    remote_add_expire(remote, batch, key);
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
    add_delete(&batch, &key);
    remote_run(remote, &batch, CLOCK_NEVER, NULL);
    redis_batch_release(&batch);
    buf_release(&key);
}

int remote_fail_damaged(hearth_error *error, const char *what)
{
    return error_set(error, HEARTH_INVALID, "the server has %s under the name of a slab", what);
}

/* ---- Names on the server ---- */

static struct sealed_name sealed_name(const struct remote *remote, const struct slab_name *name)
{
    return sealed_name_of(&remote->keys, name, remote->stride);
}

static void part_key(const struct remote *remote, const struct sealed_name *name, const struct sealed_head *head,
                     uint32_t part, struct buf *key)
{
    remote_first_key(remote, name, key);
    if (part == 0) return;
    buf_puts(key, ":");
    for (size_t i = 0; i < sizeof head->nonce; i++) buf_printf(key, "%02x", head->nonce[i]);
    buf_printf(key, ":%u", part);
}

/* ---- Reading ---- */

struct reading {
    const struct remote *remote;
    struct sealed_name name;
    struct sealed_head head;
    uint8_t first[SEALED_HEAD_BYTES]; /* what the first part begins with, */
    size_t n_first;                   /* as far as it has so much */
    uint8_t *bytes;                   /* the head and the slab behind it, as far as they have come; from malloc */
};

/* Its bytes are taken as they are: most slabs have no other part. */
static int read_first(struct reading *r, hearth_error *error)
{
    struct redis_batch batch = {0};
    struct buf key = {0};
    remote_first_key(r->remote, &r->name, &key);
    add_get(r->remote, &batch, &key, NULL, 0);
    int result = remote_run(r->remote, &batch, CLOCK_NEVER, error);
    struct redis_reply *reply = batch.replies;
    if (result == 0 && reply->kind == REDIS_BYTES) {
        r->n_first = reply->size < sizeof r->first ? reply->size : sizeof r->first;
        memcpy(r->first, reply->bytes, r->n_first);
    }
    if (result == 0 && reply->kind == REDIS_NIL)
        result = error_set(error, HEARTH_NOT_FOUND, "the server has it no more");
    else if (result == 0 && (r->n_first < sizeof r->first || !sealed_head_decode(r->first, &r->head)))
        result = remote_fail_damaged(error, "something else");
    else if (result == 0 && reply->size - SEALED_HEAD_BYTES != sealed_part_size(r->head.size, 0))
        result = remote_fail_damaged(error, "a part of another size");
    if (result == 0) r->bytes = (uint8_t *)redis_take(reply);
    redis_batch_release(&batch);
    buf_release(&key);
    return result;
}

static int read_parts(struct reading *r, uint32_t from, uint32_t to, hearth_error *error)
{
    struct redis_batch batch = {0};
    struct buf key = {0};
    /* Memory grows with what has come, whatever the head promises. */
    uint64_t size = sealed_part_offset(to - 1) + sealed_part_size(r->head.size, to - 1);
    uint8_t *grown = realloc(r->bytes, SEALED_HEAD_BYTES + size);
    if (grown == NULL) return error_set(error, HEARTH_NO_MEMORY, "no memory for a slab of the server");
    r->bytes = grown;
    for (uint32_t part = from; part < to; part++) {
        part_key(r->remote, &r->name, &r->head, part, &key);
        add_get(r->remote, &batch, &key, r->bytes + SEALED_HEAD_BYTES + sealed_part_offset(part),
                sealed_part_size(r->head.size, part));
    }
    int result = remote_run(r->remote, &batch, CLOCK_NEVER, error);
    size_t replies = batch.n_commands / (to - from);
    for (uint32_t part = from; result == 0 && part < to; part++) {
        const struct redis_reply *reply = &batch.replies[(part - from) * replies];
        if (reply->kind != REDIS_BYTES)
            result = error_set(error, HEARTH_NOT_FOUND, "the server has lost a part of it");
        else if (reply->size != sealed_part_size(r->head.size, part)) /* else it is in its place */
            result = remote_fail_damaged(error, "a part of another size");
    }
    redis_batch_release(&batch);
    buf_release(&key);
    return result;
}

/* Deletes the first part, unless another process has stored the slab anew since it was read. One that does so within
 * the moment between both commands loses its first part, and stores the slab again some time. */
static void delete_read(const struct reading *r)
{
    struct redis_batch batch = {.most_reply = SEALED_HEAD_BYTES};
    struct buf key = {0};
    remote_first_key(r->remote, &r->name, &key);
    remote_add_get_first(&batch, &key, SEALED_HEAD_BYTES);
    bool same = remote_run(r->remote, &batch, CLOCK_NEVER, NULL) == 0 && batch.replies[0].kind == REDIS_BYTES &&
                batch.replies[0].size == r->n_first && memcmp(batch.replies[0].bytes, r->first, r->n_first) == 0;
    redis_batch_release(&batch);
    buf_release(&key);
    if (same) remote_delete_first(r->remote, &r->name);
}

/* Where the parts end that are asked for, or sent, together with this one. */
static uint32_t end_of_group(const struct sealed_head *head, uint32_t part)
{
    return head->n_parts - part < PARTS_AT_ONCE ? head->n_parts : part + PARTS_AT_ONCE;
}

/* Whether its bytes depend on its key alone, so that two processes store the same under one key. Rows begin with a
 * block and end with it, or where a state is. A state without rows has all of its tokens. */
static bool is_canonical(const struct slab_head *head, int32_t stride)
{
    if (head->kind == SLAB_STATE) return head->start == head->end || head->start == 0;
    return head->start % stride == 0 && head->end - head->start <= stride;
}

static int decode(struct reading *r, const struct slab_name *name, struct slab *slab, hearth_error *error)
{
    uint64_t size = r->head.size;
    uint8_t *whole = r->bytes + SEALED_HEAD_BYTES;
    if (!sealed_open(&r->remote->keys, &r->name, &r->head, whole))
        return remote_fail_damaged(error, "bytes of another MAC");
    size_t front = size < SLAB_HEADER_BYTES + SLAB_TRAILER_BYTES ? 0 : slab_front_size(whole);
    if (front == 0 || front > size - SLAB_TRAILER_BYTES) return remote_fail_damaged(error, "no slab");
    int result = slab_decode(whole, front, size, &slab->head, error);
    if (result != 0) return result;
    const uint8_t *payload = whole + front;
    result = slab_check(&slab->head, whole, front, payload, payload + slab->head.payload_size, error);
    bool same = slab->head.kind == name->kind && slab_key_equal(&slab->head.key, &name->key);
    if (result == 0 && !(same && is_canonical(&slab->head, r->remote->stride)))
        result = remote_fail_damaged(error, "another slab");
    if (result != 0) {
        slab_head_release(&slab->head);
        return result;
    }
    slab->payload = payload;
    slab->bytes = slab_bytes_open(r->bytes, size);
    r->bytes = NULL;
    return 0;
}

static int read_whole(struct reading *r, const struct slab_name *name, struct slab *slab, hearth_error *error)
{
    int result = read_first(r, error);
    if (result == 0) {
        for (uint32_t part = 1; result == 0 && part < r->head.n_parts; part += PARTS_AT_ONCE)
            result = read_parts(r, part, end_of_group(&r->head, part), error);
        if (result == HEARTH_NOT_FOUND) delete_read(r);
    }
    if (result == 0) result = decode(r, name, slab, error);
    free(r->bytes);
    r->bytes = NULL;
    return result;
}

static int remote_get(struct backend *backend, const struct slab_name *name, struct slab *slab, hearth_error *error)
{
    struct remote *remote = remote_of(backend);
    struct reading r = {.remote = remote, .name = sealed_name(remote, name)};
    return read_whole(&r, name, slab, error);
}

/* ---- Writing ---- */

struct sealing {
    const struct remote *remote;
    struct sealed_name name;
    struct sealed_head head;
    uint8_t *bytes; /* room for the head, and the slab */
};

/* `written`: the parts are there now; false: that failed, or another process stored the slab meanwhile, which has the
 * first part then. */
static int write_parts(const struct sealing *s, uint32_t from, uint32_t to, bool *written, hearth_error *error)
{
    struct redis_batch batch = {0};
    struct buf key = {0};
    for (uint32_t part = from; part < to; part++) {
        /* The first one with the head before it, and only where there is none. */
        uint64_t head = part == 0 ? SEALED_HEAD_BYTES : 0;
        const uint8_t *value = s->bytes + SEALED_HEAD_BYTES + sealed_part_offset(part) - head;
        part_key(s->remote, &s->name, &s->head, part, &key);
        struct redis_argument words[6] = {
            WORD("SET"), bytes_of(&key), {value, head + sealed_part_size(s->head.size, part)}};
        size_t n = 3;
        if (part == 0) words[n++] = WORD("NX");
        if (s->remote->ttl[0] != '\0') {
            words[n++] = WORD("EX");
            words[n++] = WORD(s->remote->ttl);
        }
        redis_add(&batch, words, n);
    }
    int result = remote_run(s->remote, &batch, CLOCK_NEVER, error);
    *written = result == 0 && batch.replies[0].kind != REDIS_NIL;
    redis_batch_release(&batch);
    buf_release(&key);
    return result;
}

static int write_all(const struct sealing *s, hearth_error *error)
{
    bool written = false;
    /* Some at once: a server that is full is not sent all of a large slab. */
    int result = 0;
    for (uint32_t part = 1; result == 0 && part < s->head.n_parts; part += PARTS_AT_ONCE)
        result = write_parts(s, part, end_of_group(&s->head, part), &written, error);
    if (result == 0) {
        sealed_head_encode(&s->head, s->bytes);
        result = write_parts(s, 0, 1, &written, error);
    }
    if (written || result == HEARTH_UNAVAILABLE || s->head.n_parts == 1) return result;
    struct redis_batch batch = {0};
    struct buf key = {0};
    for (uint32_t part = 1; part < s->head.n_parts; part++) {
        part_key(s->remote, &s->name, &s->head, part, &key);
        add_delete(&batch, &key);
    }
    remote_run(s->remote, &batch, CLOCK_NEVER, NULL);
    redis_batch_release(&batch);
    buf_release(&key);
    return result;
}

/* Room for a head, and the slab. */
static uint8_t *encode(struct slab_head *head, const struct buf *payload)
{
    struct buf front = {0};
    uint8_t trailer[SLAB_TRAILER_BYTES], *bytes = malloc(SEALED_HEAD_BYTES + slab_size(head));
    if (bytes != NULL) {
        uint8_t *slab = bytes + SEALED_HEAD_BYTES;
        slab_encode(head, payload->v, &front, trailer);
        memcpy(slab, front.v, front.len);
        memcpy(slab + front.len, payload->v, payload->len);
        memcpy(slab + front.len + payload->len, trailer, sizeof trailer);
    }
    buf_release(&front);
    return bytes;
}

static int remote_put(struct backend *backend, struct slab_head *head, struct buf *payload, hearth_error *error)
{
    assert(payload->len == head->payload_size);
    struct remote *remote = remote_of(backend);
    const struct slab_name name = {head->key, head->kind};
    struct sealing s = {.remote = remote, .name = sealed_name(remote, &name), .bytes = encode(head, payload)};
    if (s.bytes == NULL) return error_set(error, HEARTH_NO_MEMORY, "no memory to seal a slab");
    int result = sealed_seal(&remote->keys, &s.name, s.bytes + SEALED_HEAD_BYTES, slab_size(head), &s.head)
                     ? write_all(&s, error)
                     : error_set(error, HEARTH_IO, "a slab is too large for the server");
    free(s.bytes);
    return result;
}

static int remote_remove(struct backend *backend, const struct slab_name *name, hearth_error *error)
{
    (void)backend;
    (void)name;
    (void)error;
    return 0;
}

/* Reads it again: another process may have stored it anew meanwhile. */
static void remote_quarantine(struct backend *backend, const struct slab_name *name)
{
    struct remote *remote = remote_of(backend);
    struct reading r = {.remote = remote, .name = sealed_name(remote, name)};
    struct slab slab = {0};
    if (read_whole(&r, name, &slab, NULL) == HEARTH_INVALID) delete_read(&r);
    slab_release(&slab);
}

/* ---- Probing ---- */

static int remote_probe(struct backend *backend, const struct slab_name *names, size_t n, struct backend_probed *probed,
                        int64_t deadline, hearth_error *error)
{
    struct remote *remote = remote_of(backend);
    struct redis_batch batch = {.most_reply = SEALED_HEAD_BYTES};
    struct buf key = {0};
    for (size_t i = 0; i < n; i++) {
        struct sealed_name name = sealed_name(remote, &names[i]);
        remote_first_key(remote, &name, &key);
        remote_add_get_first(&batch, &key, SEALED_HEAD_BYTES);
    }
    int result = remote_run(remote, &batch, deadline, error);
    for (size_t i = 0; result == 0 && i < n; i++) {
        const struct redis_reply *reply = &batch.replies[i];
        struct sealed_head head;
        probed[i].there = reply->kind == REDIS_BYTES && reply->size == SEALED_HEAD_BYTES &&
                          sealed_head_decode((const uint8_t *)reply->bytes, &head);
        probed[i].size = probed[i].there ? head.size : 0;
    }
    redis_batch_release(&batch);
    buf_release(&key);
    return result;
}

static int remote_has(struct backend *backend, const struct slab_name *names, size_t n, bool *there,
                      hearth_error *error)
{
    struct backend_probed *probed = mem_alloc((n + 1) * sizeof *probed);
    int result = remote_probe(backend, names, n, probed, CLOCK_NEVER, error);
    for (size_t i = 0; i < n; i++) there[i] = result != 0 || probed[i].there;
    free(probed);
    return result;
}

/* ---- Life ---- */

/* The secret is all of the file but the end of its last line. */
static int read_secret(const char *path, struct buf *secret, hearth_error *error)
{
    char bytes[SECRET_MOST_BYTES + 1];
    FILE *file = fopen(path, "re");
    if (file == NULL) return error_set(error, HEARTH_IO, "cannot read %s: %s", path, strerror(errno));
    size_t n = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    if (n > SECRET_MOST_BYTES) return error_set(error, HEARTH_IO, "%s is too long for a key", path);
    while (n > 0 && (bytes[n - 1] == '\n' || bytes[n - 1] == '\r')) n--;
    if (n < SECRET_LEAST_BYTES)
        return error_set(error, HEARTH_IO, "%s is too short for a key: openssl rand -hex 32 makes one", path);
    buf_append(secret, bytes, n);
    return 0;
}

/* A user who may not read is noticed here, once, and not by each probe. */
static int remote_open(struct backend *backend, hearth_error *error)
{
    struct remote *remote = remote_of(backend);
    struct slab_name nothing = {.kind = SLAB_ROWS};
    struct backend_probed probed;
    int result = 0;
    if (!remote->has_keys) {
        struct buf secret = {0};
        if (remote->key_file != NULL) result = read_secret(remote->key_file, &secret, error);
        if (result == 0) sealed_keys_init(&remote->keys, secret.v, secret.len, remote->encrypts);
        remote->has_keys = result == 0;
        buf_release(&secret);
    }
    if (result == 0) result = redis_cluster_connect(remote->server, error);
    return result == 0 ? remote_probe(backend, &nothing, 1, &probed, CLOCK_NEVER, error) : result;
}

static void remote_close(struct backend *backend)
{
    struct remote *remote = remote_of(backend);
    redis_cluster_close(remote->server);
    free(remote->prefix);
    free(remote->key_file);
    free(remote);
}

struct backend *remote_backend_open(const struct remote_params *params)
{
    assert(params->prefix != NULL && params->stride > 0 && params->ttl_s >= 0);
    struct remote *remote = mem_alloc(sizeof *remote);
    struct redis_params redis = {.user = params->user,
                                 .password_file = params->password_file,
                                 .ca_file = params->ca_file,
                                 .certificate_file = params->certificate_file,
                                 .certificate_key_file = params->certificate_key_file,
                                 .timeout_ns = params->timeout_ns,
                                 .only_local = params->key_file == NULL};
    const char *fault = redis_address_parse(params->url, &redis.address);
    assert(fault == NULL);
    (void)fault;
    remote->server = redis_cluster_open(&redis);
    remote->prefix = mem_strdup(params->prefix);
    remote->key_file = mem_strdup(params->key_file);
    remote->encrypts = params->encrypts;
    remote->stride = params->stride;
    if (params->ttl_s > 0) snprintf(remote->ttl, sizeof remote->ttl, "%lld", (long long)params->ttl_s);
    remote->backend = (struct backend){.open = remote_open,
                                       .put = remote_put,
                                       .get = remote_get,
                                       .remove = remote_remove,
                                       .quarantine = remote_quarantine,
                                       .has = remote_has,
                                       .probe = remote_probe,
                                       .read_hints = remote_read_hints,
                                       .add_hint = remote_add_hint,
                                       .note_use = backend_note_nothing, /* get() has made the server keep it longer */
                                       .scan = backend_scan_nothing,
                                       .measure = remote_measure,
                                       .close = remote_close};
    return &remote->backend;
}
