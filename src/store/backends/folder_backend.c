/* The backend of the tiers with files, ram_file and disk: folder.h behind the contract of backend.h.
 *
 * A folder may be lost and opened again while threads still work in the former one, so each call holds a reference to
 * the folder that it works in. */
#include "store/backends/backend.h"

#include "base/error.h"
#include "base/memory.h"
#include "store/backends/folder.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

struct folder_ref {
    struct folder *folder;
    size_t refs; /* calls that work in it, and one of the backend */
};

struct folder_backend {
    struct backend backend; /* first */
    struct files *files;
    char *path;
    pthread_mutex_t mutex;      /* guards the rest, never during a call */
    struct folder_ref *current; /* NULL: not open */
};

static struct folder_backend *folder_backend_of(struct backend *backend)
{
    return (struct folder_backend *)(void *)backend;
}

static struct folder_ref *not_open(const struct folder_backend *b, hearth_error *error)
{
    error_at(error, HEARTH_UNAVAILABLE, b->path, "the folder %s is not open", b->path);
    return NULL;
}

/* For a call of the backend, which ends with unref_folder(). NULL: HEARTH_UNAVAILABLE. */
static struct folder_ref *ref_folder(struct backend *backend, hearth_error *error)
{
    struct folder_backend *b = folder_backend_of(backend);
    pthread_mutex_lock(&b->mutex);
    struct folder_ref *ref = b->current;
    if (ref != NULL) ref->refs++;
    pthread_mutex_unlock(&b->mutex);
    return ref != NULL ? ref : not_open(b, error);
}

static void unref_folder(struct backend *backend, struct folder_ref *ref)
{
    struct folder_backend *b = folder_backend_of(backend);
    if (ref == NULL) return;
    pthread_mutex_lock(&b->mutex);
    bool last = --ref->refs == 0;
    pthread_mutex_unlock(&b->mutex);
    if (!last) return;
    folder_close(ref->folder);
    free(ref);
}

/* NULL also where another process owns the folder. */
static struct folder_ref *ref_own_folder(struct backend *backend, hearth_error *error)
{
    struct folder_ref *ref = ref_folder(backend, error);
    if (ref == NULL || !folder_is_read_only(ref->folder)) return ref;
    unref_folder(backend, ref);
    return not_open(folder_backend_of(backend), error);
}

/* Later calls work in this folder (NULL: in none). */
static void replace_folder(struct folder_backend *b, struct folder *folder)
{
    struct folder_ref *ref = NULL;
    if (folder != NULL) {
        ref = mem_alloc(sizeof *ref);
        *ref = (struct folder_ref){.folder = folder, .refs = 1};
    }
    pthread_mutex_lock(&b->mutex);
    struct folder_ref *former = b->current;
    b->current = ref;
    pthread_mutex_unlock(&b->mutex);
    unref_folder(&b->backend, former);
}

/* The lock of the former folder ends with its last reference, so that is given back first. A folder that is only read
 * has no lock, and stays in use until it can be owned. */
static int backend_open(struct backend *backend, hearth_error *error)
{
    struct folder_backend *b = folder_backend_of(backend);
    hearth_error own = {0};
    hearth_error *why = error != NULL ? error : &own;
    bool reads = b->current != NULL && folder_is_read_only(b->current->folder);
    if (!reads) replace_folder(b, NULL);
    struct folder *folder = folder_open(b->files, b->path, why);
    int result = folder != NULL ? 0 : (int)why->code;
    if (result == HEARTH_UNAVAILABLE) { /* another process has it */
        folder = reads ? NULL : folder_open_read_only(b->files, b->path, NULL);
        result = HEARTH_BUSY;
        if (folder == NULL) return reads ? result : HEARTH_UNAVAILABLE;
    } else if (result == 0) {
        folder_keep_index_file(folder);
    }
    replace_folder(b, folder);
    return result;
}

static int backend_put(struct backend *backend, struct slab_head *head, struct buf *payload, hearth_error *error)
{
    assert(payload->len == head->payload_size);
    struct folder_ref *ref = ref_own_folder(backend, error);
    int result = ref == NULL ? HEARTH_UNAVAILABLE : folder_publish(ref->folder, head, payload->v, error);
    unref_folder(backend, ref);
    return result;
}

static int backend_get(struct backend *backend, const struct slab_name *name, struct slab *slab, hearth_error *error)
{
    struct folder_ref *ref = ref_folder(backend, error);
    int result = ref == NULL ? HEARTH_UNAVAILABLE : folder_read(ref->folder, &name->key, name->kind, slab, error);
    unref_folder(backend, ref);
    return result;
}

static int backend_remove(struct backend *backend, const struct slab_name *name, hearth_error *error)
{
    struct folder_ref *ref = ref_own_folder(backend, error);
    int result = ref == NULL ? HEARTH_UNAVAILABLE : folder_remove(ref->folder, &name->key, name->kind, error);
    unref_folder(backend, ref);
    return result;
}

static void backend_quarantine(struct backend *backend, const struct slab_name *name)
{
    struct folder_ref *ref = ref_own_folder(backend, NULL);
    if (ref != NULL) folder_quarantine(ref->folder, &name->key, name->kind);
    unref_folder(backend, ref);
}

static int backend_has(struct backend *backend, const struct slab_name *names, size_t n, bool *there,
                       hearth_error *error)
{
    struct folder_ref *ref = ref_folder(backend, error);
    for (size_t i = 0; ref != NULL && i < n; i++) there[i] = folder_has(ref->folder, &names[i].key, names[i].kind);
    unref_folder(backend, ref);
    return ref == NULL ? HEARTH_UNAVAILABLE : 0;
}

static void backend_note_use(struct backend *backend, const struct slab_name *name, uint32_t hits, int64_t used_ms)
{
    struct folder_ref *ref = ref_own_folder(backend, NULL);
    if (ref != NULL) folder_note_use(ref->folder, &name->key, name->kind, hits, used_ms);
    unref_folder(backend, ref);
}

static void backend_name_model(struct backend *backend, const uint8_t model[SHA256_BYTES], const char *name)
{
    struct folder_ref *ref = ref_own_folder(backend, NULL);
    if (ref != NULL) folder_name_model(ref->folder, model, name);
    unref_folder(backend, ref);
}

static int backend_read_digests(struct backend *backend, struct buf *out, hearth_error *error)
{
    struct folder_ref *ref = ref_folder(backend, error);
    int result = ref == NULL ? HEARTH_UNAVAILABLE : folder_read_digests(ref->folder, out, error);
    unref_folder(backend, ref);
    return result;
}

static int backend_write_digests(struct backend *backend, const struct buf *digests, hearth_error *error)
{
    struct folder_ref *ref = ref_own_folder(backend, error);
    int result = ref == NULL ? HEARTH_UNAVAILABLE : folder_write_digests(ref->folder, digests, error);
    unref_folder(backend, ref);
    return result;
}

static void report_damaged(void *ud, const struct slab_key *key, enum slab_kind kind, const hearth_error *error)
{
    const struct backend_scan *scan = ud;
    const struct slab_name name = {*key, kind};
    if (scan->damaged != NULL && error->code == HEARTH_INVALID) scan->damaged(scan->ud, &name);
}

static void report_slab(void *ud, struct slab_head *head, uint64_t size)
{
    const struct backend_scan *scan = ud;
    scan->each(scan->ud, head, size);
}

static int backend_scan(struct backend *backend, struct backend_scan *scan, hearth_error *error)
{
    struct folder_ref *ref = ref_folder(backend, error);
    struct folder_scan listing = {.each = report_slab,
                                  .unusable = report_damaged,
                                  .ud = scan,
                                  .leaves_damaged = scan->damaged != NULL,
                                  .stop = scan->stop};
    int result = ref == NULL ? HEARTH_UNAVAILABLE : folder_scan(ref->folder, &listing, error);
    unref_folder(backend, ref);
    scan->n_slabs = listing.n_slabs;
    scan->n_damaged = listing.n_damaged;
    scan->n_foreign = listing.n_foreign;
    scan->n_unread = listing.n_unread;
    scan->foreign_bytes = listing.foreign_bytes;
    return result;
}

static bool backend_wants_scan(struct backend *backend)
{
    struct folder_ref *ref = ref_own_folder(backend, NULL);
    bool wants = ref != NULL && folder_wants_scan(ref->folder);
    unref_folder(backend, ref);
    return wants;
}

static void backend_close(struct backend *backend)
{
    struct folder_backend *b = folder_backend_of(backend);
    unref_folder(backend, b->current);
    pthread_mutex_destroy(&b->mutex);
    free(b->path);
    free(b);
}

struct backend *folder_backend_open(struct files *files, const char *path)
{
    assert(files != NULL && path != NULL);
    struct folder_backend *b = mem_alloc(sizeof *b);
    *b = (struct folder_backend){.files = files, .path = mem_strdup(path)};
    pthread_mutex_init(&b->mutex, NULL);
    b->backend = (struct backend){.open = backend_open,
                                  .put = backend_put,
                                  .get = backend_get,
                                  .remove = backend_remove,
                                  .quarantine = backend_quarantine,
                                  .has = backend_has,
                                  .name_model = backend_name_model,
                                  .read_digests = backend_read_digests,
                                  .write_digests = backend_write_digests,
                                  .note_use = backend_note_use,
                                  .scan = backend_scan,
                                  .wants_scan = backend_wants_scan,
                                  .close = backend_close};
    return &b->backend;
}
