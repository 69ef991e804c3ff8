/* The look through a folder: its names, the index file, and the fronts of those slabs that the index file does not
 * know.
 *
 * Many fronts are read by several threads, since a disk that nobody has read from yet answers several questions in
 * hardly more time than one; what they find is told by one at a time. */
#include "store/folder_parts.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { READERS = 8, WORTH_READERS = 64 };

struct look {
    struct folder *folder;
    struct folder_scan *scan;
    struct listed *v;
    size_t n, cap;
    _Atomic size_t next;
    pthread_mutex_t mutex; /* while something is told */
};

/* ---- Names ---- */

static void collect(void *ud, const char *file)
{
    struct look *look = ud;
    struct slab_name name;
    enum folder_sort sort = folder_sort_of(file, &name);
    if (sort == SORT_STRANGE) look->scan->n_foreign++;
    if (sort != SORT_SLAB) return;
    if (look->n == look->cap) {
        look->cap = look->cap == 0 ? 256 : 2 * look->cap;
        look->v = mem_grow(look->v, look->cap, sizeof *look->v);
    }
    look->v[look->n++] = (struct listed){.name = name};
}

/* ---- Fronts ---- */

static void tell_unusable(struct look *look, const struct slab_name *name, uint64_t size, const hearth_error *error)
{
    struct folder_scan *scan = look->scan;
    bool newer = error->code == HEARTH_UNSUPPORTED, damaged = error->code == HEARTH_INVALID;
    scan->n_foreign += newer;
    scan->foreign_bytes += newer ? size : 0;
    scan->n_bad += damaged;
    scan->n_unread += !newer && !damaged;
    if (newer) return;
    if (scan->bad != NULL) scan->bad(scan->ud, &name->key, name->kind, error);
    log_event(LOG_WARN, "store", damaged ? "found a file that cannot be used" : "a file cannot be read now",
              log_str("reason", error->message));
    if (damaged && !look->folder->to_read && !scan->leaves_damaged)
        folder_quarantine(look->folder, &name->key, name->kind);
}

static void look_at(struct look *look, const struct slab_name *name)
{
    struct folder_file file;
    hearth_error error = {0};
    int result = folder_file_open(look->folder, &name->key, name->kind, &file, &error);
    if (result == HEARTH_NOT_FOUND) return; /* removed meanwhile */
    pthread_mutex_lock(&look->mutex);
    if (result == 0) {
        look->scan->n_slabs++;
        if (look->folder->journal != NULL) journal_add(look->folder->journal, &file.head, file.size);
        look->scan->each(look->scan->ud, &file.head, file.size);
    } else {
        tell_unusable(look, name, file.size, &error);
    }
    pthread_mutex_unlock(&look->mutex);
    if (result == 0) folder_file_close(look->folder, &file);
}

static bool is_stopped(const struct look *look)
{
    return look->scan->stop != NULL && *look->scan->stop;
}

static void *read_fronts(void *ud)
{
    struct look *look = ud;
    for (size_t i; !is_stopped(look) && (i = atomic_fetch_add(&look->next, 1)) < look->n;)
        if (!look->v[i].told) look_at(look, &look->v[i].name);
    return NULL;
}

static void read_all(struct look *look)
{
    pthread_t readers[READERS];
    size_t n_readers = 0, unknown = 0;
    for (size_t i = 0; i < look->n; i++) unknown += !look->v[i].told;
    while (unknown > WORTH_READERS && n_readers < READERS - 1 &&
           pthread_create(&readers[n_readers], NULL, read_fronts, look) == 0)
        n_readers++;
    read_fronts(look);
    while (n_readers > 0) pthread_join(readers[--n_readers], NULL);
}

/* ---- All of it ---- */

static void tell_journaled(void *ud, struct slab_head *head, uint64_t size)
{
    struct look *look = ud;
    look->scan->n_slabs++;
    look->scan->each(look->scan->ud, head, size);
}

int folder_scan(struct folder *folder, struct folder_scan *scan, hearth_error *error)
{
    struct look look = {.folder = folder, .scan = scan};
    scan->n_slabs = scan->n_bad = scan->n_foreign = scan->n_unread = 0;
    scan->foreign_bytes = 0;
    int result = folder->files->list(folder->files, folder->fd, collect, &look);
    if (result == 0) {
        pthread_mutex_init(&look.mutex, NULL);
        if (look.n > 0) qsort(look.v, look.n, sizeof *look.v, listed_compare);
        if (folder->journal != NULL) journal_tell(folder->journal, look.v, look.n, tell_journaled, &look);
        read_all(&look);
        if (folder->journal != NULL && !is_stopped(&look)) journal_settle(folder->journal);
        pthread_mutex_destroy(&look.mutex);
    }
    free(look.v);
    return result < 0 ? folder_refuse(folder, "", "list", result, error) : 0;
}

void folder_keep_journal(struct folder *folder)
{
    folder->journal = journal_open(folder->files, folder->fd);
}

bool folder_wants_scan(struct folder *folder)
{
    return folder->journal != NULL && journal_is_stale(folder->journal);
}
