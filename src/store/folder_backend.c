/* The backend in a folder, of the tiers ram_file and disk: folder.h behind the contract of backend.h.
 *
 * The folder may be lost and opened again while threads still use the former one, so each call holds a reference to the
 * folder that it works in. */
#include "store/backend.h"

#include "base/error.h"
#include "base/memory.h"
#include "store/folder.h"

#include <pthread.h>
#include <stdlib.h>

struct held {
    struct folder *folder;
    size_t users; /* calls that work in it, and the backend */
};

struct folder_backend {
    struct backend backend; /* first */
    struct files *files;
    char *path;
    pthread_mutex_t mutex; /* guards the rest, never during a call */
    struct held *held;     /* NULL: not open */
};

static struct folder_backend *backend_of(struct backend *backend)
{
    return (struct folder_backend *)(void *)backend;
}

static struct held *hold(struct folder_backend *b)
{
    pthread_mutex_lock(&b->mutex);
    struct held *held = b->held;
    if (held != NULL) held->users++;
    pthread_mutex_unlock(&b->mutex);
    return held;
}

static void let_go(struct folder_backend *b, struct held *held)
{
    if (held == NULL) return;
    pthread_mutex_lock(&b->mutex);
    bool last = --held->users == 0;
    pthread_mutex_unlock(&b->mutex);
    if (!last) return;
    folder_close(held->folder);
    free(held);
}

/* NULL also where the folder is another process's. */
static struct held *hold_own(struct folder_backend *b)
{
    struct held *held = hold(b);
    if (held == NULL || !folder_is_read_only(held->folder)) return held;
    let_go(b, held);
    return NULL;
}

static int not_open(const struct folder_backend *b, hearth_error *error)
{
    return error_at(error, HEARTH_UNAVAILABLE, b->path, "the folder %s is not open", b->path);
}

/* From now on calls work in this one (NULL: in none). */
static void replace(struct folder_backend *b, struct folder *folder)
{
    struct held *held = NULL;
    if (folder != NULL) {
        held = mem_alloc(sizeof *held);
        *held = (struct held){.folder = folder, .users = 1};
    }
    pthread_mutex_lock(&b->mutex);
    struct held *former = b->held;
    b->held = held;
    pthread_mutex_unlock(&b->mutex);
    let_go(b, former);
}

/* The lock of the former folder ends with its last user: it is let go before. One that is only read has none, and is
 * read on until there is another. */
static int backend_open(struct backend *backend, hearth_error *error)
{
    struct folder_backend *b = backend_of(backend);
    hearth_error own = {0};
    hearth_error *why = error != NULL ? error : &own;
    bool reads = b->held != NULL && folder_is_read_only(b->held->folder);
    if (!reads) replace(b, NULL);
    struct folder *folder = folder_open(b->files, b->path, why);
    int result = folder != NULL ? 0 : (int)why->code;
    if (result == HEARTH_UNAVAILABLE) { /* another process has it */
        folder = reads ? NULL : folder_open_read_only(b->files, b->path, NULL);
        result = HEARTH_BUSY;
        if (folder == NULL) return reads ? result : HEARTH_UNAVAILABLE;
    } else if (result == 0) {
        folder_keep_journal(folder);
    }
    replace(b, folder);
    return result;
}

static int backend_put(struct backend *backend, struct slab_head *head, struct buf *payload, hearth_error *error)
{
    struct folder_backend *b = backend_of(backend);
    struct held *held = hold_own(b);
    if (held == NULL) return not_open(b, error);
    int result = folder_publish(held->folder, head, payload->v, error);
    let_go(b, held);
    return result < 0 ? result : 0;
}

static int backend_get(struct backend *backend, const struct slab_name *name, struct slab *slab, hearth_error *error)
{
    struct folder_backend *b = backend_of(backend);
    struct held *held = hold(b);
    if (held == NULL) return not_open(b, error);
    int result = folder_read(held->folder, &name->key, name->kind, slab, error);
    let_go(b, held);
    return result;
}

static int backend_remove(struct backend *backend, const struct slab_name *name, hearth_error *error)
{
    struct folder_backend *b = backend_of(backend);
    struct held *held = hold_own(b);
    if (held == NULL) return not_open(b, error);
    int result = folder_remove(held->folder, &name->key, name->kind, error);
    let_go(b, held);
    return result;
}

static void backend_set_aside(struct backend *backend, const struct slab_name *name)
{
    struct folder_backend *b = backend_of(backend);
    struct held *held = hold_own(b);
    if (held != NULL) folder_quarantine(held->folder, &name->key, name->kind);
    let_go(b, held);
}

static int backend_has(struct backend *backend, const struct slab_name *names, size_t n, bool *there,
                       hearth_error *error)
{
    struct folder_backend *b = backend_of(backend);
    struct held *held = hold(b);
    if (held == NULL) return not_open(b, error);
    for (size_t i = 0; i < n; i++) there[i] = folder_has(held->folder, &names[i].key, names[i].kind);
    let_go(b, held);
    return 0;
}

static void backend_note_use(struct backend *backend, const struct slab_name *name, uint32_t hits, int64_t used_ms)
{
    struct folder_backend *b = backend_of(backend);
    struct held *held = hold_own(b);
    if (held != NULL) folder_note_use(held->folder, &name->key, name->kind, hits, used_ms);
    let_go(b, held);
}

static void backend_name_model(struct backend *backend, const uint8_t model[SHA256_BYTES], const char *name)
{
    struct folder_backend *b = backend_of(backend);
    struct held *held = hold_own(b);
    if (held != NULL) folder_name_model(held->folder, model, name);
    let_go(b, held);
}

static void tell_bad(void *ud, const struct slab_key *key, enum slab_kind kind, const hearth_error *error)
{
    const struct backend_scan *scan = ud;
    const struct slab_name name = {*key, kind};
    if (scan->bad != NULL && error->code == HEARTH_INVALID) scan->bad(scan->ud, &name);
}

static void tell_each(void *ud, struct slab_head *head, uint64_t size)
{
    const struct backend_scan *scan = ud;
    scan->each(scan->ud, head, size);
}

static int backend_scan(struct backend *backend, struct backend_scan *scan, hearth_error *error)
{
    struct folder_backend *b = backend_of(backend);
    struct held *held = hold(b);
    struct folder_scan look = {
        .each = tell_each, .bad = tell_bad, .ud = scan, .leaves_damaged = scan->bad != NULL, .stop = scan->stop};
    if (held == NULL) return not_open(b, error);
    int result = folder_scan(held->folder, &look, error);
    let_go(b, held);
    scan->n_slabs = look.n_slabs;
    scan->n_bad = look.n_bad;
    scan->n_foreign = look.n_foreign;
    scan->n_unread = look.n_unread;
    scan->foreign_bytes = look.foreign_bytes;
    return result;
}

static bool backend_wants_scan(struct backend *backend)
{
    struct folder_backend *b = backend_of(backend);
    struct held *held = hold_own(b);
    bool wants = held != NULL && folder_wants_scan(held->folder);
    let_go(b, held);
    return wants;
}

static void backend_close(struct backend *backend)
{
    struct folder_backend *b = backend_of(backend);
    let_go(b, b->held);
    pthread_mutex_destroy(&b->mutex);
    free(b->path);
    free(b);
}

struct backend *folder_backend_open(struct files *files, const char *path)
{
    struct folder_backend *b = mem_alloc(sizeof *b);
    *b = (struct folder_backend){.files = files, .path = mem_strdup(path)};
    pthread_mutex_init(&b->mutex, NULL);
    b->backend = (struct backend){.open = backend_open,
                                  .put = backend_put,
                                  .get = backend_get,
                                  .remove = backend_remove,
                                  .set_aside = backend_set_aside,
                                  .has = backend_has,
                                  .name_model = backend_name_model,
                                  .note_use = backend_note_use,
                                  .scan = backend_scan,
                                  .wants_scan = backend_wants_scan,
                                  .close = backend_close};
    return &b->backend;
}
