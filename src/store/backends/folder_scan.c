/* Scanning a folder: lists its names, replays the index file, and reads the fronts of those slabs that the index file
 * does not have. Many fronts are read by several threads, since a disk whose cache is cold answers several reads in
 * hardly more time than one. The callbacks run one at a time, under a mutex. */
#include "store/backends/folder_parts.h"

#include "base/log.h"
#include "base/memory.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { READERS = 8, WORTH_READERS = 64 };

struct folder_listing {
    struct folder *folder;
    struct folder_scan *scan;
    struct index_file_name *v;
    size_t n, cap;
    _Atomic size_t next;
    pthread_mutex_t mutex; /* during callbacks, and for the numbers of `scan` */
};

/* ---- Names ---- */

static void collect_file(void *ud, const char *file)
{
    struct folder_listing *listing = ud;
    struct slab_name name;
    enum folder_name_type type = folder_name_type(file, &name);
    if (type == NAME_FOREIGN) listing->scan->n_foreign++;
    if (type != NAME_SLAB) return;
    listing->v = mem_room(listing->v, listing->n, &listing->cap, sizeof *listing->v);
    listing->v[listing->n++] = (struct index_file_name){.name = name};
}

/* ---- Fronts ---- */

static void report_unusable(struct folder_listing *listing, const struct slab_name *name, uint64_t size,
                            const hearth_error *error)
{
    struct folder_scan *scan = listing->scan;
    bool newer = error->code == HEARTH_UNSUPPORTED, damaged = error->code == HEARTH_INVALID;
    scan->n_foreign += newer;
    scan->foreign_bytes += newer ? size : 0;
    scan->n_damaged += damaged;
    scan->n_unread += !newer && !damaged;
    if (newer) return;
    if (scan->unusable != NULL) scan->unusable(scan->ud, &name->key, name->kind, error);
    log_event(LOG_WARN, "store", damaged ? "found a file that cannot be used" : "a file cannot be read now",
              log_str("reason", error->message));
    if (damaged && !listing->folder->read_only && !scan->leaves_damaged)
        folder_quarantine(listing->folder, &name->key, name->kind);
}

static void read_front_of(struct folder_listing *listing, const struct slab_name *name)
{
    struct folder_file file;
    hearth_error error = {0};
    int result = folder_file_open(listing->folder, &name->key, name->kind, &file, &error);
    if (result == HEARTH_NOT_FOUND) return; /* removed meanwhile */
    pthread_mutex_lock(&listing->mutex);
    if (result == 0) {
        listing->scan->n_slabs++;
        if (listing->folder->index_file != NULL) index_file_add(listing->folder->index_file, &file.head, file.size);
        listing->scan->each(listing->scan->ud, &file.head, file.size);
    } else {
        report_unusable(listing, name, file.size, &error);
    }
    pthread_mutex_unlock(&listing->mutex);
    if (result == 0) folder_file_close(listing->folder, &file);
}

static bool is_stopped(const struct folder_listing *listing)
{
    return listing->scan->stop != NULL && *listing->scan->stop;
}

static void *read_fronts(void *ud)
{
    struct folder_listing *listing = ud;
    for (size_t i; !is_stopped(listing) && (i = atomic_fetch_add(&listing->next, 1)) < listing->n;)
        if (!listing->v[i].replayed) read_front_of(listing, &listing->v[i].name);
    return NULL;
}

/* ---- The scan ---- */

static void report_from_index_file(void *ud, struct slab_head *head, uint64_t size)
{
    struct folder_listing *listing = ud;
    listing->scan->n_slabs++;
    listing->scan->each(listing->scan->ud, head, size);
}

int folder_scan(struct folder *folder, struct folder_scan *scan, hearth_error *error)
{
    struct folder_listing listing = {.folder = folder, .scan = scan};
    scan->n_slabs = scan->n_damaged = scan->n_foreign = scan->n_unread = 0;
    scan->foreign_bytes = 0;
    int result = folder->files->list(folder->files, folder->fd, collect_file, &listing);
    if (result < 0) {
        free(listing.v);
        return folder_error(folder, "", "list", result, error);
    }
    pthread_mutex_init(&listing.mutex, NULL);
    if (listing.n > 0) qsort(listing.v, listing.n, sizeof *listing.v, index_file_name_compare);
    if (folder->index_file != NULL)
        index_file_replay(folder->index_file, listing.v, listing.n, report_from_index_file, &listing);
    pthread_t readers[READERS];
    size_t n_readers = 0, unknown = 0;
    for (size_t i = 0; i < listing.n; i++) unknown += !listing.v[i].replayed;
    while (unknown > WORTH_READERS && n_readers < READERS - 1 &&
           pthread_create(&readers[n_readers], NULL, read_fronts, &listing) == 0)
        n_readers++;
    read_fronts(&listing);
    while (n_readers > 0) pthread_join(readers[--n_readers], NULL);
    if (folder->index_file != NULL && !is_stopped(&listing)) index_file_commit(folder->index_file);
    pthread_mutex_destroy(&listing.mutex);
    free(listing.v);
    return 0;
}

void folder_keep_index_file(struct folder *folder)
{
    assert(!folder->read_only && folder->index_file == NULL);
    folder->index_file = index_file_open(folder->files, folder->fd);
}

bool folder_wants_scan(struct folder *folder)
{
    return folder->index_file != NULL && index_file_is_stale(folder->index_file);
}
