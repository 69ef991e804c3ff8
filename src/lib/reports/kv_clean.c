/* Removing stored entries: hearth_kv_gc(), hearth_kv_clear(). All folders are locked before anything is removed, so
 * that nothing is removed where a server uses one of them. */
#include "lib/reports/kv_folders.h"

#include "base/clock.h"
#include "store/index/index.h"

#include <string.h>

/* ---- Counting ---- */

static void count(hearth_kv_removed *removed, uint64_t files, uint64_t bytes)
{
    removed->files += files;
    removed->bytes += bytes;
}

static int remove_slab(const struct kv_folder *folder, const struct kv_slab *slab, hearth_kv_removed *removed,
                       hearth_error *error)
{
    int rc = folder_remove(folder->folder, &slab->head.key, slab->head.kind, error);
    if (rc == HEARTH_OK) count(removed, 1, slab->size);
    return rc;
}

/* ---- Cleaning one folder ---- */

typedef int look_fn(struct kv_slabs *slabs, const struct kv_folder *folder, hearth_error *error);
typedef int clean_fn(const struct kv_folder *folder, const struct kv_slabs *slabs, hearth_kv_removed *removed,
                     hearth_error *error);

/* How a folder is listed, and which of its slabs are removed. */
struct cleaning {
    look_fn *look;
    clean_fn *clean;
};

static bool is_none(void *ud, const uint8_t model[SHA256_BYTES])
{
    (void)ud, (void)model;
    return false;
}

/* The scan has moved damaged files into quarantine, and folder_tidy() removes them from there. */
static int clear(const struct kv_folder *folder, const struct kv_slabs *slabs, hearth_kv_removed *removed,
                 hearth_error *error)
{
    int rc = HEARTH_OK;
    for (size_t i = 0; i < slabs->n && rc == HEARTH_OK; i++)
        if (slabs->v[i].damage == NULL) rc = remove_slab(folder, &slabs->v[i], removed, error);
    if (rc == HEARTH_OK) folder_prune_models(folder->folder, is_none, NULL);
    return rc;
}

/* Removes the files of slabs that were dropped from the index. */
static int remove_victims(const struct kv_folder *folder, struct index *index, struct victim *first,
                          hearth_kv_removed *removed, hearth_error *error)
{
    int rc = HEARTH_OK;
    uint64_t before = index_usage(index).bytes;
    for (struct victim *victim = first, *next; victim != NULL; victim = next) {
        next = victim->next;
        int removing = folder_remove(folder->folder, &victim->key, victim->kind, error);
        index_deleted(index, victim);
        uint64_t after = index_usage(index).bytes;
        if (removing == HEARTH_OK)
            count(removed, 1, before - after);
        else
            rc = removing;
        before = after;
    }
    return rc;
}

/* Files with a damaged head (head.end is 0) are skipped: the scan has moved them into quarantine. */
static int remove_damaged(const struct kv_folder *folder, const struct kv_slabs *slabs, hearth_kv_removed *removed,
                          hearth_error *error)
{
    int rc = HEARTH_OK;
    for (size_t i = 0; i < slabs->n && rc == HEARTH_OK; i++) {
        const struct kv_slab *slab = &slabs->v[i];
        if (slab->fault == KV_DAMAGED && slab->head.end > 0) rc = remove_slab(folder, slab, removed, error);
    }
    return rc;
}

static struct index *index_of_sound(const struct kv_folder *folder, const struct kv_slabs *slabs,
                                    hearth_kv_removed *removed)
{
    struct index *index = index_open(1, folder->quota > 0 ? folder->quota : UINT64_MAX, NULL);
    for (size_t i = 0; i < slabs->n; i++) {
        const struct kv_slab *slab = &slabs->v[i];
        bool may_be_whole = slab->fault != KV_DAMAGED && slab->head.end > 0;
        if (may_be_whole) index_adopt(index, &slab->head, slab->size, clock_unix_ms());
        removed->kept += slab->fault == KV_UNREAD;
    }
    return index;
}

struct wanted_model {
    const uint8_t *model;
    bool found;
};

static void compare_model(void *ud, const struct entry *entry, const struct identity *identity)
{
    struct wanted_model *wanted = ud;
    (void)entry;
    wanted->found = wanted->found || memcmp(identity->model, wanted->model, SHA256_BYTES) == 0;
}

static bool has_entries(void *index, const uint8_t model[SHA256_BYTES])
{
    struct wanted_model wanted = {.model = model};
    index_each(index, compare_model, &wanted);
    return wanted.found;
}

/* Removes damaged slabs, detached ones, and the least recently used beyond the quota. A tier that is off has no quota:
 * its whole slabs stay for the day when it is on again. */
static int collect(const struct kv_folder *folder, const struct kv_slabs *slabs, hearth_kv_removed *removed,
                   hearth_error *error)
{
    int rc = remove_damaged(folder, slabs, removed, error);
    struct index *index = index_of_sound(folder, slabs, removed);
    /* A slab that seems detached may have a parent among those of unknown content. */
    if (slabs->unknown)
        removed->kept += index_usage(index).detached;
    else if (rc == HEARTH_OK)
        rc = remove_victims(folder, index, index_drop_detached(index), removed, error);
    if (rc == HEARTH_OK) rc = remove_victims(folder, index, index_trim(index), removed, error);
    if (rc == HEARTH_OK && index_usage(index).detached == 0) folder_prune_models(folder->folder, has_entries, index);
    index_close(index);
    return rc;
}

/* ---- All folders ---- */

static int clean_folder(const struct kv_folder *folder, struct cleaning how, hearth_kv_removed *removed,
                        hearth_error *error)
{
    struct kv_slabs slabs = {0};
    struct folder_removed aside;
    int rc = how.look(&slabs, folder, error);
    if (rc == HEARTH_OK) rc = how.clean(folder, &slabs, removed, error);
    kv_slabs_release(&slabs);
    folder_tidy(folder->folder, &aside);
    count(removed, aside.files, aside.bytes);
    return rc;
}

static int clean_all(const hearth_config *config, struct cleaning how, hearth_kv_removed *removed, hearth_error *error)
{
    hearth_error own_error;
    hearth_kv_removed own;
    struct kv_folder folders[KV_FOLDERS];
    if (error == NULL) error = &own_error;
    if (removed == NULL) removed = &own;
    *removed = (hearth_kv_removed){0};
    int rc = kv_open(folders, config, false, error);
    if (rc != HEARTH_OK) return rc;
    for (size_t i = 0; i < KV_FOLDERS && rc == HEARTH_OK; i++)
        if (folders[i].folder != NULL) rc = clean_folder(&folders[i], how, removed, error);
    kv_close(folders);
    return rc;
}

int hearth_kv_gc(const hearth_config *config, hearth_kv_removed *removed, hearth_error *error)
{
    return clean_all(config, (struct cleaning){kv_check, collect}, removed, error);
}

int hearth_kv_clear(const hearth_config *config, hearth_kv_removed *removed, hearth_error *error)
{
    return clean_all(config, (struct cleaning){kv_look, clear}, removed, error);
}
