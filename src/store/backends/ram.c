/* The backend in memory: a hash table of slabs under one mutex. It ends with the process, so there is nothing to scan.
 */
#include "store/backends/backend.h"

#include "base/error.h"
#include "base/hash_table.h"
#include "base/memory.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct ram_slab {
    struct hash_link link;
    struct slab slab;
};

struct ram {
    struct backend backend; /* first */
    pthread_mutex_t mutex;  /* guards the table; slabs themselves never change */
    struct hash_table slabs;
};

static struct ram *ram_of(struct backend *backend)
{
    return (struct ram *)(void *)backend;
}

static uint64_t hash_of(const struct slab_name *name)
{
    uint64_t hash;
    memcpy(&hash, name->key.v, sizeof hash);
    return hash;
}

/* With the mutex. */
static struct ram_slab *ram_find(const struct ram *ram, const struct slab_name *name)
{
    struct hash_link *link = hash_first(&ram->slabs, hash_of(name));
    for (; link != NULL; link = hash_next(link)) {
        struct ram_slab *stored = container_of(struct ram_slab, link, link);
        if (stored->slab.head.kind == name->kind && slab_key_equal(&stored->slab.head.key, &name->key)) return stored;
    }
    return NULL;
}

static struct ram_slab *ram_take(struct ram *ram, const struct slab_name *name)
{
    struct ram_slab *stored = ram_find(ram, name);
    if (stored != NULL) hash_remove(&ram->slabs, &stored->link);
    return stored;
}

static void ram_slab_free(struct ram_slab *stored)
{
    if (stored == NULL) return;
    slab_release(&stored->slab);
    free(stored);
}

/* Copies what get() returns: all but the regions, which only files need. */
static struct slab_head copy_of(const struct slab_head *head)
{
    struct slab_head copy = *head;
    copy.tokens = (struct tokens){0};
    tokens_append(&copy.tokens, head->tokens.v, head->tokens.len);
    copy.regions = NULL;
    copy.n_regions = 0;
    return copy;
}

static int ram_open(struct backend *backend, hearth_error *error)
{
    (void)backend;
    (void)error;
    return 0;
}

static int ram_put(struct backend *backend, struct slab_head *head, struct buf *payload, hearth_error *error)
{
    assert(payload->len == head->payload_size);
    (void)error;
    struct ram *ram = ram_of(backend);
    struct ram_slab *stored = mem_alloc(sizeof *stored);
    size_t size = payload->len;
    char *bytes = buf_take(payload), *fitting = realloc(bytes, size > 0 ? size : 1);
    stored->slab.head = copy_of(head);
    stored->slab.bytes = slab_bytes_open((uint8_t *)(fitting != NULL ? fitting : bytes), size);
    stored->slab.payload = stored->slab.bytes->v;
    const struct slab_name name = {head->key, head->kind};
    pthread_mutex_lock(&ram->mutex);
    struct ram_slab *former = ram_take(ram, &name);
    hash_add(&ram->slabs, &stored->link, hash_of(&name));
    pthread_mutex_unlock(&ram->mutex);
    ram_slab_free(former);
    return 0;
}

static int ram_get(struct backend *backend, const struct slab_name *name, struct slab *slab, hearth_error *error)
{
    struct ram *ram = ram_of(backend);
    pthread_mutex_lock(&ram->mutex);
    const struct ram_slab *stored = ram_find(ram, name);
    if (stored != NULL)
        *slab = (struct slab){.head = copy_of(&stored->slab.head),
                              .bytes = slab_bytes_ref(stored->slab.bytes),
                              .payload = stored->slab.payload};
    pthread_mutex_unlock(&ram->mutex);
    return stored != NULL ? 0 : error_set(error, HEARTH_NOT_FOUND, "it is not in memory");
}

static int ram_remove(struct backend *backend, const struct slab_name *name, hearth_error *error)
{
    (void)error;
    struct ram *ram = ram_of(backend);
    pthread_mutex_lock(&ram->mutex);
    struct ram_slab *stored = ram_take(ram, name);
    pthread_mutex_unlock(&ram->mutex);
    ram_slab_free(stored);
    return 0;
}

static void ram_quarantine(struct backend *backend, const struct slab_name *name)
{
    ram_remove(backend, name, NULL);
}

static int ram_has(struct backend *backend, const struct slab_name *names, size_t n, bool *there, hearth_error *error)
{
    (void)error;
    struct ram *ram = ram_of(backend);
    pthread_mutex_lock(&ram->mutex);
    for (size_t i = 0; i < n; i++) there[i] = ram_find(ram, &names[i]) != NULL;
    pthread_mutex_unlock(&ram->mutex);
    return 0;
}

void backend_note_nothing(struct backend *backend, const struct slab_name *name, uint32_t hits, int64_t used_ms)
{
    (void)backend;
    (void)name;
    (void)hits;
    (void)used_ms;
}

int backend_scan_nothing(struct backend *backend, struct backend_scan *scan, hearth_error *error)
{
    (void)backend;
    (void)error;
    scan->n_slabs = scan->n_damaged = scan->n_foreign = scan->n_unread = 0;
    scan->foreign_bytes = 0;
    return 0;
}

static void ram_close(struct backend *backend)
{
    struct ram *ram = ram_of(backend);
    struct hash_link *link;
    for (size_t bucket = 0; (link = hash_any(&ram->slabs, &bucket)) != NULL;) {
        hash_remove(&ram->slabs, link);
        ram_slab_free(container_of(struct ram_slab, link, link));
    }
    hash_release(&ram->slabs);
    pthread_mutex_destroy(&ram->mutex);
    free(ram);
}

struct backend *ram_backend_open(void)
{
    struct ram *ram = mem_alloc(sizeof *ram);
    pthread_mutex_init(&ram->mutex, NULL);
    ram->backend = (struct backend){.open = ram_open,
                                    .put = ram_put,
                                    .get = ram_get,
                                    .remove = ram_remove,
                                    .quarantine = ram_quarantine,
                                    .has = ram_has,
                                    .note_use = backend_note_nothing, /* the index counts uses, as long as slabs live */
                                    .scan = backend_scan_nothing,
                                    .close = ram_close};
    return &ram->backend;
}
