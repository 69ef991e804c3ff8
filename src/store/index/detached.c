/* Records of the index: what is kept of an entry while lookups do not find it, because it is being written, is about to
 * be deleted, cannot be read now, or is detached (its parent is missing). Detached and unreadable ones are listed by
 * the key of the missing parent, and return to the tree with it. */
#include "store/index/index_parts.h"

#include "base/memory.h"

#include <stdlib.h>

/* ---- Records ---- */

struct record *record_open(struct index *index, const struct slab_key *key, enum slab_kind kind,
                           const struct identity *identity)
{
    index_require_held(index);
    struct record *record = mem_alloc(sizeof *record);
    record->victim.key = *key;
    record->victim.kind = kind;
    record->candidate.is_record = true;
    record->space = space_enter(index, identity);
    return record;
}

void record_register(struct index *index, struct record *record)
{
    index_require_held(index);
    if (record->registered) return;
    record->registered = true;
    hash_add(&index->records, &record->link, key_hash(&record->victim.key));
}

void record_close(struct index *index, struct record *record)
{
    index_require_held(index);
    if (record->pinned != NULL) record->pinned->record = NULL;
    if (record->registered) hash_remove(&index->records, &record->link);
    space_leave(index, record->space);
    packed_release(&record->tokens);
    free(record);
}

static struct record *record_find(const struct index *index, const struct slab_key *key, enum slab_kind kind,
                                  bool writing)
{
    struct hash_link *link = hash_first(&index->records, key_hash(key));
    for (; link != NULL; link = hash_next(link)) {
        struct record *record = container_of(struct record, link, link);
        bool same = record->victim.kind == kind && slab_key_equal(&record->victim.key, key);
        if (same && writing == (record->state == RECORD_WRITING)) return record;
    }
    return NULL;
}

struct record *record_writing(const struct index *index, const struct slab_key *key, enum slab_kind kind)
{
    return record_find(index, key, kind, true);
}

struct record *record_known(const struct index *index, const struct slab_key *key, enum slab_kind kind)
{
    return record_find(index, key, kind, false);
}

/* ---- Missing parents ---- */

static struct missing_parent *missing_parent_find(const struct index *index, const struct slab_key *key)
{
    struct hash_link *link = hash_first(&index->missing_parents, key_hash(key));
    for (; link != NULL; link = hash_next(link)) {
        struct missing_parent *missing_parent = container_of(struct missing_parent, link, link);
        if (slab_key_equal(&missing_parent->key, key)) return missing_parent;
    }
    return NULL;
}

void record_detach(struct index *index, struct record *record)
{
    index_require_held(index);
    struct missing_parent *missing_parent = missing_parent_find(index, &record->parent);
    if (missing_parent == NULL) {
        missing_parent = mem_alloc(sizeof *missing_parent);
        missing_parent->key = record->parent;
        hash_add(&index->missing_parents, &missing_parent->link, key_hash(&record->parent));
    }
    record_register(index, record);
    record->state = RECORD_DETACHED;
    record->missing_parent = missing_parent;
    record->next = missing_parent->first;
    if (record->next != NULL) record->next->prev = record;
    missing_parent->first = record;
    index->n_detached++;
    lru_update_record(index, record);
}

void record_undetach(struct index *index, struct record *record)
{
    index_require_held(index);
    heap_remove(&index->unreadable, &record->retry);
    struct missing_parent *missing_parent = record->missing_parent;
    if (record->next != NULL) record->next->prev = record->prev;
    *(record->prev != NULL ? &record->prev->next : &missing_parent->first) = record->next;
    record->prev = record->next = NULL;
    record->missing_parent = NULL;
    lru_update_record(index, record);
    index->n_detached--;
    if (missing_parent->first != NULL) return;
    hash_remove(&index->missing_parents, &missing_parent->link);
    free(missing_parent);
}

/* ---- Attaching ---- */

static bool accepts(const struct indexed *parent, const struct record *record)
{
    return indexed_accepts_child(parent, record->space, record->victim.kind, record->start, record->end);
}

/* Of a state without rows the parent is a state, of all others rows. */
static struct indexed *indexed_parent_of(const struct index *index, const struct record *record)
{
    bool alone = record->victim.kind == SLAB_STATE && record->start < record->end;
    struct indexed *parent = indexed_find(index, &record->parent, alone ? SLAB_STATE : SLAB_ROWS);
    return parent != NULL && accepts(parent, record) ? parent : NULL;
}

/* A detached record that can become a child of the entry now. */
static struct record *next_orphan_of(const struct index *index, const struct indexed *indexed)
{
    const struct missing_parent *missing_parent = missing_parent_find(index, &indexed->entry.key);
    struct record *record = missing_parent == NULL ? NULL : missing_parent->first;
    while (record != NULL && (record->state != RECORD_DETACHED || record->replaced || !accepts(indexed, record)))
        record = record->next;
    return record;
}

struct indexed *record_index(struct index *index, struct record *record)
{
    struct indexed *parent = record->start > 0 ? indexed_parent_of(index, record) : NULL;
    if (record->start > 0 && parent == NULL) return NULL;
    if (record->missing_parent != NULL) record_undetach(index, record);
    return indexed_add(index, record, parent);
}

/* ---- In steps ----
 * An entry may have a whole tree of descendants: it is detached and attached a few entries at a time, and the mutex is
 * released in between. A lookup then finds a correct match, if not the longest. */

enum { BATCH_ENTRIES = 16 };

static void yield_mutex(struct index *index, int *steps)
{
    if (++*steps % BATCH_ENTRIES > 0) return;
    index_unlock(index);
    index_lock(index);
}

/* Depth first without recursion, which would be as deep as a conversation has slabs. A reference to the current entry,
 * and so to its ancestors, keeps the way back while the mutex is released. */
void attach_below(struct index *index, struct indexed *top)
{
    struct indexed *at = top;
    int steps = 0;
    indexed_ref(index, at);
    for (;;) {
        struct record *record = at->there ? next_orphan_of(index, at) : NULL;
        struct indexed *next = record != NULL ? record_index(index, record) : indexed_of(at->entry.parent);
        bool done = record == NULL && at == top;
        if (!done) indexed_ref(index, next);
        indexed_unref(index, at);
        if (done) break;
        at = next;
        yield_mutex(index, &steps);
    }
}

/* Leaves first: each hands its time of last use up to its parent. */
void detach_below(struct index *index, struct indexed *indexed)
{
    struct indexed *at = indexed;
    for (int steps = 0; indexed->there;) {
        if (!at->there) at = indexed; /* another thread removed it */
        while (at->first_child != NULL) at = at->first_child;
        if (at == indexed) break;
        struct indexed *parent = indexed_of(at->entry.parent);
        indexed_ref(index, parent);
        record_detach(index, indexed_remove(index, at));
        yield_mutex(index, &steps);
        indexed_unref(index, parent);
        at = parent;
    }
}

/* ---- What may still find a parent ---- */

/* Marks the records that wait for this key, and pushes them on the list of those whose own children are still to be
 * marked. */
static void mark_children_needed(const struct index *index, const struct slab_key *key, struct record **pending)
{
    const struct missing_parent *missing_parent = missing_parent_find(index, key);
    for (struct record *record = missing_parent == NULL ? NULL : missing_parent->first; record != NULL;
         record = record->next) {
        if (record->needed) continue;
        record->needed = true;
        record->next_needed = *pending;
        *pending = record;
    }
}

void detached_mark_needed(struct index *index)
{
    struct hash_link *link;
    struct record *pending = NULL;
    for (size_t bucket = 0; (link = hash_any(&index->records, &bucket)) != NULL; bucket++)
        for (; link != NULL; link = link->next) container_of(struct record, link, link)->needed = false;
    for (size_t bucket = 0; (link = hash_any(&index->records, &bucket)) != NULL; bucket++) {
        for (; link != NULL; link = link->next) {
            struct record *record = container_of(struct record, link, link);
            bool may_return = record->state == RECORD_WRITING || record->state == RECORD_UNREADABLE || record->replaced;
            if (!may_return) continue;
            record->needed = true;
            mark_children_needed(index, &record->victim.key, &pending);
        }
    }
    while (pending != NULL) {
        struct record *record = pending;
        pending = record->next_needed;
        mark_children_needed(index, &record->victim.key, &pending);
    }
}
