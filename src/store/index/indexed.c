/* Indexed entries: adding them to the radix tree and removing them, references and pins, the hash tables by key and
 * by identity, and the mutex of the index. Calls lru.c after each change of what may be evicted (see index_parts.h),
 * and kept.c when an entry comes or goes. */
#include "store/index/index_parts.h"

#include "base/log_stderr.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The mutex ---- */

void index_lock(struct index *index)
{
    pthread_mutex_lock(&index->mutex);
    index->owner = pthread_self();
    index->held = true;
}

/* Frees memory after the unlock: freeing a slab takes longer than everything else here. */
void index_unlock(struct index *index)
{
    struct indexed *dead = index->dead;
    index->dead = NULL;
    index->held = false;
    pthread_mutex_unlock(&index->mutex);
    for (struct indexed *indexed = dead, *next; indexed != NULL; indexed = next) {
        next = indexed->next;
        if (indexed->entry.user != NULL) index->free_user(indexed->entry.user);
        free(indexed);
    }
}

void index_require_held(const struct index *index)
{
    if (index->held && pthread_equal(index->owner, pthread_self())) return;
    fputs("hearth: the index of a tier was about to be changed without its mutex\n", log_console());
    abort();
}

/* ---- Tables ---- */

static uint64_t first_bytes(const uint8_t digest[SHA256_BYTES])
{
    uint64_t hash;
    memcpy(&hash, digest, sizeof hash);
    return hash;
}

uint64_t key_hash(const struct slab_key *key)
{
    return first_bytes(key->v);
}

struct indexed *indexed_find(const struct index *index, const struct slab_key *key, enum slab_kind kind)
{
    struct hash_link *link = hash_first(&index->indexed, key_hash(key));
    for (; link != NULL; link = hash_next(link)) {
        struct indexed *indexed = container_of(struct indexed, link, link);
        if (indexed->entry.kind == kind && slab_key_equal(&indexed->entry.key, key)) return indexed;
    }
    return NULL;
}

static uint64_t identity_hash(const struct identity *identity)
{
    return first_bytes(identity->model) ^ first_bytes(identity->context);
}

struct space *space_find(const struct index *index, const struct identity *identity)
{
    struct hash_link *link = hash_first(&index->spaces, identity_hash(identity));
    for (; link != NULL; link = hash_next(link)) {
        struct space *space = container_of(struct space, link, link);
        if (identity_equal(&space->identity, identity)) return space;
    }
    return NULL;
}

struct space *space_enter(struct index *index, const struct identity *identity)
{
    struct space *space = space_find(index, identity);
    if (space == NULL) {
        space = mem_alloc(sizeof *space);
        space->identity = *identity;
        space->root = radix_open();
        lru_space_open(index, space);
        hash_add(&index->spaces, &space->link, identity_hash(identity));
    }
    space->n++;
    return space;
}

void space_leave(struct index *index, struct space *space)
{
    if (--space->n > 0) return;
    hash_remove(&index->spaces, &space->link);
    lru_space_close(index, space);
    radix_close(space->root);
    free(space);
}

/* ---- References ---- */

void indexed_ref(struct index *index, struct indexed *indexed)
{
    index_require_held(index);
    indexed->refs++;
    lru_update_indexed(index, indexed);
}

static void queue_free(struct index *index, struct indexed *indexed)
{
    if (indexed->record != NULL) {
        indexed->record->pinned = NULL;
        lru_update_record(index, indexed->record);
    }
    indexed->next = index->dead;
    index->dead = indexed;
}

/* An entry without references gives back its own reference to its parent. */
void indexed_unref(struct index *index, struct indexed *indexed)
{
    index_require_held(index);
    while (indexed != NULL) {
        indexed->refs--;
        lru_update_indexed(index, indexed);
        if (indexed->refs > 0) break;
        struct indexed *parent = indexed_of(indexed->entry.parent);
        queue_free(index, indexed);
        indexed = parent;
    }
}

struct entry *indexed_pin(struct index *index, struct indexed *indexed)
{
    indexed_ref(index, indexed);
    index->n_pins++;
    return &indexed->entry;
}

void indexed_unpin(struct index *index, struct indexed *indexed)
{
    index->n_pins--;
    indexed_unref(index, indexed);
}

/* ---- Adding and removing ---- */

/* A STATE entry with tokens of its own (of a model without KV rows) is the child of another such entry, at its end.
 * Every other entry is the child of a ROWS entry, and may start in the middle of its tokens. */
bool indexed_accepts_child(const struct indexed *parent, const struct space *space, enum slab_kind kind, int32_t start,
                           int32_t end)
{
    const struct entry *entry = &parent->entry;
    enum slab_kind wanted = kind == SLAB_STATE && start < end ? SLAB_STATE : SLAB_ROWS;
    int32_t first = wanted == SLAB_STATE ? entry->end : entry->start + 1;
    return parent->there && parent->space == space && entry->kind == wanted && first <= start && start <= entry->end;
}

static void link_child(struct indexed *indexed)
{
    struct indexed *parent = indexed_of(indexed->entry.parent);
    if (parent == NULL) return;
    indexed->next = parent->first_child;
    if (indexed->next != NULL) indexed->next->prev = indexed;
    parent->first_child = indexed;
}

static void unlink_child(struct indexed *indexed)
{
    struct indexed *parent = indexed_of(indexed->entry.parent);
    if (indexed->next != NULL) indexed->next->prev = indexed->prev;
    if (indexed->prev != NULL)
        indexed->prev->next = indexed->next;
    else if (parent != NULL)
        parent->first_child = indexed->next;
    indexed->prev = indexed->next = NULL;
}

static int32_t *scratch_tokens(struct index *index, size_t n)
{
    struct tokens *scratch = &index->scratch;
    if (scratch->cap <= n) {
        scratch->cap = n + 1;
        scratch->v = mem_grow(scratch->v, scratch->cap, sizeof *scratch->v);
    }
    return scratch->v;
}

struct indexed *indexed_add(struct index *index, struct record *record, struct indexed *parent)
{
    index_require_held(index);
    struct indexed *indexed = mem_alloc(sizeof *indexed);
    indexed->entry = (struct entry){.key = record->victim.key,
                                    .kind = record->victim.kind,
                                    .start = record->start,
                                    .end = record->end,
                                    .parent = parent == NULL ? NULL : &parent->entry,
                                    .size = record->size};
    indexed->candidate = record->candidate;
    indexed->candidate.is_record = false;
    indexed->space = record->space;
    indexed->space->n++;
    indexed->there = true;
    indexed->radix_entry.rows = indexed->entry.kind == SLAB_ROWS;
    struct radix_position from = parent == NULL ? (struct radix_position){indexed->space->root, 0}
                                                : radix_position_at(parent->node, record->start);
    size_t n = record->tokens.len;
    int32_t *scratch = scratch_tokens(index, n);
    packed_copy(&record->tokens, 0, n, scratch);
    indexed->node = radix_insert(&index->radix, from, scratch, n, &indexed->radix_entry);
    record_close(index, record);
    link_child(indexed);
    hash_add(&index->indexed, &indexed->link, key_hash(&indexed->entry.key));
    if (parent != NULL) indexed_ref(index, parent);
    if (parent != NULL && indexed->candidate.reused) lru_mark_reused(index, parent);
    indexed_ref(index, indexed);
    kept_follow(index, indexed);
    follow_added(index, indexed);
    return indexed;
}

static struct record *record_of_indexed(struct index *index, const struct indexed *indexed)
{
    const struct entry *entry = &indexed->entry;
    struct record *record = record_open(index, &entry->key, entry->kind, &indexed->space->identity);
    record->start = entry->start;
    record->end = entry->end;
    record->size = entry->size;
    record->candidate = (struct candidate){.is_record = true,
                                           .reused = indexed->candidate.reused,
                                           .failures = indexed->candidate.failures,
                                           .hits = indexed->candidate.hits,
                                           .used = indexed->candidate.used};
    if (entry->parent != NULL) record->parent = entry->parent->key;
    size_t n = (size_t)(entry->end - entry->start);
    int32_t *scratch = scratch_tokens(index, n);
    radix_copy_tokens(indexed->node, entry->start, scratch);
    record->tokens = packed_of(scratch, n);
    return record;
}

static void unlink_indexed(struct index *index, struct indexed *indexed)
{
    struct indexed *parent = indexed_of(indexed->entry.parent);
    if (parent != NULL && parent->candidate.used < indexed->candidate.used)
        parent->candidate.used = indexed->candidate.used;
    follow_removed(index, indexed);
    unlink_child(indexed);
    radix_remove(&index->radix, indexed->node, &indexed->radix_entry);
    hash_remove(&index->indexed, &indexed->link);
    indexed->there = false;
    lru_update_indexed(index, indexed);
    space_leave(index, indexed->space);
    indexed->space = NULL;
    indexed_unref(index, indexed);
}

struct record *indexed_remove(struct index *index, struct indexed *indexed)
{
    index_require_held(index);
    kept_forget(index, indexed);
    struct record *record = record_of_indexed(index, indexed);
    if (indexed->refs > 1) {
        indexed->record = record;
        record->pinned = indexed;
    }
    unlink_indexed(index, indexed);
    return record;
}

void indexed_discard_all(struct index *index)
{
    struct hash_link *link;
    for (size_t bucket = 0; (link = hash_any(&index->indexed, &bucket)) != NULL;) {
        struct indexed *indexed = container_of(struct indexed, link, link);
        while (indexed->first_child != NULL) indexed = indexed->first_child;
        for (struct indexed *parent; indexed != NULL && indexed->first_child == NULL; indexed = parent) {
            parent = indexed_of(indexed->entry.parent);
            kept_forget(index, indexed);
            unlink_indexed(index, indexed);
        }
    }
}

bool indexed_has_tokens(const struct indexed *indexed, const int32_t *tokens)
{
    const struct entry *entry = &indexed->entry;
    if (indexed->there) return radix_matches(indexed->node, entry->start, tokens);
    return packed_common(&indexed->record->tokens, 0, tokens, indexed->record->tokens.len) ==
           indexed->record->tokens.len;
}
