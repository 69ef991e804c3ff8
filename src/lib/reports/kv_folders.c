/* Opens the folders of a configuration's tiers and lists their slabs: see kv_folders.h. */
#include "lib/reports/kv_folders.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- Folders ---- */

/* folder_open() creates missing folders; a command that only looks must not leave any behind. */
static bool is_missing(const char *path)
{
    struct stat info;
    return path == NULL || (lstat(path, &info) != 0 && (errno == ENOENT || errno == ENOTDIR));
}

static int open_one(struct kv_folder *folder, const char *path, bool to_read, hearth_error *error)
{
    if (is_missing(path)) return HEARTH_OK;
    folder->folder = (to_read ? folder_open_read_only : folder_open)(files_machine(), path, error);
    if (folder->folder != NULL) return HEARTH_OK;
    if (folder->quota == 0) {
        /* The path is a default that nobody configured: the folder may be another user's. */
        log_event(LOG_WARN, "store", "left out a folder of a tier that is off", log_str("reason", error->message));
        return HEARTH_OK;
    }
    if (error->code == HEARTH_UNAVAILABLE)
        error_at(error, HEARTH_UNAVAILABLE, path,
                 "a server is using %s: stop it first, or leave it to the server, which keeps to its quota by itself",
                 path);
    return (int)error->code;
}

int kv_open(struct kv_folder folders[KV_FOLDERS], const hearth_config *config, bool to_read, hearth_error *error)
{
    int rc = HEARTH_OK;
    for (size_t i = 0; i < KV_FOLDERS; i++) {
        const struct config_tier *tier = &config->cache.tiers[i];
        folders[i] = (struct kv_folder){.tier = store_tier_names[i], .quota = (uint64_t)tier->quota_mb << 20};
        if (rc == HEARTH_OK) rc = open_one(&folders[i], tier->path, to_read, error);
    }
    if (rc != HEARTH_OK) kv_close(folders);
    return rc;
}

void kv_close(struct kv_folder folders[KV_FOLDERS])
{
    for (size_t i = 0; i < KV_FOLDERS; i++) folder_close(folders[i].folder);
}

/* ---- Slabs ---- */

static void add_slab(struct kv_slabs *slabs, const struct kv_slab *slab)
{
    if (slabs->n == slabs->cap) {
        slabs->cap = slabs->cap == 0 ? 256 : 2 * slabs->cap;
        slabs->v = mem_grow(slabs->v, slabs->cap, sizeof *slabs->v);
    }
    slabs->v[slabs->n++] = *slab;
}

static void add_readable(void *ud, struct slab_head *head, uint64_t size)
{
    struct kv_slabs *slabs = ud;
    add_slab(slabs, &(struct kv_slab){.tier = slabs->tier, .head = *head, .size = size});
    *head = (struct slab_head){0};
}

static void add_unreadable(void *ud, const struct slab_key *key, enum slab_kind kind, const hearth_error *error)
{
    struct kv_slabs *slabs = ud;
    add_slab(slabs, &(struct kv_slab){.tier = slabs->tier,
                                      .head = {.key = *key, .kind = kind},
                                      .fault = error->code == HEARTH_INVALID ? KV_DAMAGED : KV_UNREAD,
                                      .damage = mem_strdup(error->message)});
}

static int by_start(const void *a, const void *b)
{
    const struct slab_head *x = &((const struct kv_slab *)a)->head, *y = &((const struct kv_slab *)b)->head;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    return (x->kind > y->kind) - (x->kind < y->kind);
}

static struct kv_model *find_model(const struct kv_slabs *slabs, const uint8_t model[SHA256_BYTES])
{
    for (size_t i = 0; i < slabs->n_models; i++)
        if (memcmp(slabs->models[i].model, model, SHA256_BYTES) == 0) return &slabs->models[i];
    return NULL;
}

const char *kv_model_name(const struct kv_slabs *slabs, const uint8_t model[SHA256_BYTES])
{
    const struct kv_model *known = find_model(slabs, model);
    return known == NULL ? "" : known->name;
}

static void add_model(struct kv_slabs *slabs, const struct kv_model *model)
{
    slabs->models = mem_grow(slabs->models, slabs->n_models + 1, sizeof *slabs->models);
    slabs->models[slabs->n_models++] = *model;
}

/* Reads the names of the models that the new slabs belong to; a folder records the name of each model it has slabs of.
 */
static void read_model_names(struct kv_slabs *slabs, size_t from, const struct kv_folder *folder)
{
    for (size_t i = from; i < slabs->n; i++) {
        struct kv_model own = {0};
        memcpy(own.model, slabs->v[i].head.identity.model, SHA256_BYTES);
        if (slabs->v[i].head.end == 0 || find_model(slabs, own.model) != NULL) continue;
        folder_model_name(folder->folder, own.model, own.name, sizeof own.name);
        add_model(slabs, &own);
    }
}

int kv_look(struct kv_slabs *slabs, const struct kv_folder *folder, hearth_error *error)
{
    size_t before = slabs->n;
    struct folder_scan scan = {.each = add_readable, .unusable = add_unreadable, .ud = slabs};
    slabs->tier = folder->tier;
    int rc = folder_scan(folder->folder, &scan, error);
    slabs->unknown = slabs->unknown || scan.n_unread > 0 || scan.foreign_bytes > 0;
    read_model_names(slabs, before, folder);
    if (slabs->n > before) qsort(slabs->v + before, slabs->n - before, sizeof *slabs->v, by_start);
    return rc;
}

void kv_slabs_move(struct kv_slabs *to, struct kv_slabs *from)
{
    for (size_t i = 0; i < from->n; i++) add_slab(to, &from->v[i]);
    for (size_t i = 0; i < from->n_models; i++)
        if (find_model(to, from->models[i].model) == NULL) add_model(to, &from->models[i]);
    free(from->models);
    free(from->v);
    *from = (struct kv_slabs){0};
}

void kv_slabs_release(struct kv_slabs *slabs)
{
    for (size_t i = 0; i < slabs->n; i++) {
        slab_head_release(&slabs->v[i].head);
        free(slabs->v[i].damage);
    }
    free(slabs->models);
    free(slabs->v);
    *slabs = (struct kv_slabs){0};
}
