/* hearth_kv_verify() for one folder: reads every slab whole, recomputes every key, and follows every chain of parents.
 * It only reads; but where this process has locked the folder, the scan moves damaged files into quarantine. */
#include "lib/reports/kv_folders.h"

#include "base/clock.h"
#include "base/memory.h"
#include "store/index/index.h"

#include <stdlib.h>
#include <string.h>

static int by_key(const void *a, const void *b)
{
    const struct slab_head *x = &((const struct kv_slab *)a)->head, *y = &((const struct kv_slab *)b)->head;
    int order = memcmp(&x->key, &y->key, sizeof x->key);
    return order != 0 ? order : (x->kind > y->kind) - (x->kind < y->kind);
}

static struct kv_slab *slab_of(const struct kv_slabs *slabs, const struct slab_key *key, enum slab_kind kind)
{
    struct kv_slab wanted = {.head.key = *key, .head.kind = kind};
    return bsearch(&wanted, slabs->v, slabs->n, sizeof *slabs->v, by_key);
}

/* The first fault found is the one reported; KV_DAMAGED found later still decides what is removed. */
static void note(struct kv_slab *slab, enum kv_fault fault, const char *damage)
{
    if (slab->damage == NULL || fault == KV_DAMAGED) slab->fault = fault;
    if (slab->damage == NULL) slab->damage = mem_strdup(damage);
}

static void note_detached(void *ud, const struct slab_key *key, enum slab_kind kind)
{
    note(slab_of(ud, key, kind), KV_DETACHED, "its parent entry is missing");
}

/* Fills an index from the slabs' heads, as a server does at its start, which finds the detached ones. */
static struct index *index_of(struct kv_slabs *slabs)
{
    struct index *index = index_open(1, UINT64_MAX, NULL);
    if (slabs->n > 0) qsort(slabs->v, slabs->n, sizeof *slabs->v, by_key);
    for (size_t i = 0; i < slabs->n; i++) {
        const struct kv_slab *slab = &slabs->v[i];
        if (slab->damage == NULL) index_adopt(index, &slab->head, slab->size, clock_unix_ms());
    }
    index_each_detached(index, note_detached, slabs);
    return index;
}

static struct slab_key recompute_key(const struct entry *entry, const struct identity *identity)
{
    int32_t *tokens = mem_grow(NULL, (size_t)entry->end, sizeof *tokens);
    index_copy_tokens(entry, tokens);
    struct slab_key key = slab_key_of(identity, tokens, (size_t)entry->end);
    free(tokens);
    return key;
}

static void check_key(void *ud, const struct entry *entry, const struct identity *identity)
{
    struct kv_slabs *slabs = ud;
    struct slab_key key = recompute_key(entry, identity);
    if (slab_key_equal(&key, &entry->key)) return;
    note(slab_of(slabs, &entry->key, entry->kind), KV_DAMAGED, "its key is not that of its tokens");
}

static void read_whole(struct kv_slab *slab, const struct kv_folder *folder)
{
    struct slab whole;
    hearth_error error;
    int rc = folder_read(folder->folder, &slab->head.key, slab->head.kind, &whole, &error);
    if (rc == HEARTH_OK) slab_release(&whole);
    slab->gone = rc == HEARTH_NOT_FOUND;
    if (rc != HEARTH_OK && !slab->gone) note(slab, rc == HEARTH_INVALID ? KV_DAMAGED : KV_UNREAD, error.message);
}

/* A server may write an entry and its child while the folder is listed, so that the listing has the child alone: the
 * folder is listed once more before the child counts as detached. */
static int check_chains(struct kv_slabs *slabs, const struct kv_folder *folder, hearth_error *error)
{
    bool detached = true;
    int rc = HEARTH_OK;
    for (int scans = 0; scans < 2 && detached && rc == HEARTH_OK; scans++) {
        kv_slabs_release(slabs);
        rc = kv_look(slabs, folder, error);
        struct index *index = index_of(slabs);
        detached = index_usage(index).detached > 0;
        index_each(index, check_key, slabs);
        index_close(index);
    }
    return rc;
}

int kv_check(struct kv_slabs *slabs, const struct kv_folder *folder, hearth_error *error)
{
    int rc = check_chains(slabs, folder, error);
    for (size_t i = 0; i < slabs->n && rc == HEARTH_OK; i++) read_whole(&slabs->v[i], folder);
    return rc;
}
