/* Records: what is known and not found. Those that are detached or aside wait for what they hang on, in a table by its
 * key. */
#include "store/node.h"

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

void record_list(struct index *index, struct record *record)
{
    index_require_held(index);
    if (record->listed) return;
    record->listed = true;
    hash_add(&index->records, &record->link, key_hash(&record->victim.key));
}

void record_close(struct index *index, struct record *record)
{
    index_require_held(index);
    if (record->leased != NULL) record->leased->record = NULL;
    if (record->listed) hash_remove(&index->records, &record->link);
    space_leave(index, record->space);
    packed_release(&record->tokens);
    free(record);
}

static struct record *find(const struct index *index, const struct slab_key *key, enum slab_kind kind, bool writing)
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
    return find(index, key, kind, true);
}

struct record *record_known(const struct index *index, const struct slab_key *key, enum slab_kind kind)
{
    return find(index, key, kind, false);
}

/* ---- Waiting for a parent ---- */

static struct awaited *awaited_find(const struct index *index, const struct slab_key *key)
{
    struct hash_link *link = hash_first(&index->awaited, key_hash(key));
    for (; link != NULL; link = hash_next(link)) {
        struct awaited *awaited = container_of(struct awaited, link, link);
        if (slab_key_equal(&awaited->key, key)) return awaited;
    }
    return NULL;
}

void record_detach(struct index *index, struct record *record)
{
    index_require_held(index);
    struct awaited *awaited = awaited_find(index, &record->parent);
    if (awaited == NULL) {
        awaited = mem_alloc(sizeof *awaited);
        awaited->key = record->parent;
        hash_add(&index->awaited, &awaited->link, key_hash(&record->parent));
    }
    record_list(index, record);
    record->state = RECORD_DETACHED;
    record->awaited = awaited;
    record->next = awaited->first;
    if (record->next != NULL) record->next->prev = record;
    awaited->first = record;
    index->n_detached++;
    order_record(index, record);
}

void record_take_out(struct index *index, struct record *record)
{
    index_require_held(index);
    heap_remove(&index->aside, &record->retry);
    struct awaited *awaited = record->awaited;
    if (record->next != NULL) record->next->prev = record->prev;
    *(record->prev != NULL ? &record->prev->next : &awaited->first) = record->next;
    record->prev = record->next = NULL;
    record->awaited = NULL;
    order_record(index, record);
    index->n_detached--;
    if (awaited->first != NULL) return;
    hash_remove(&index->awaited, &awaited->link);
    free(awaited);
}

/* ---- Attaching ---- */

static bool fits(const struct node *parent, const struct record *record)
{
    return node_fits(parent, record->space, record->victim.kind, record->start, record->end);
}

static struct node *parent_of(const struct index *index, const struct record *record)
{
    bool alone = record->victim.kind == SLAB_STATE && record->start < record->end;
    struct node *parent = node_find(index, &record->parent, alone ? SLAB_STATE : SLAB_ROWS);
    return parent != NULL && fits(parent, record) ? parent : NULL;
}

/* One that could hang on the node now. */
static struct record *next_below(const struct index *index, const struct node *node)
{
    const struct awaited *awaited = awaited_find(index, &node->entry.key);
    struct record *record = awaited == NULL ? NULL : awaited->first;
    while (record != NULL && (record->state != RECORD_DETACHED || record->replaced || !fits(node, record)))
        record = record->next;
    return record;
}

struct node *record_appear(struct index *index, struct record *record)
{
    struct node *parent = record->start > 0 ? parent_of(index, record) : NULL;
    if (record->start > 0 && parent == NULL) return NULL;
    if (record->awaited != NULL) record_take_out(index, record);
    return node_appear(index, record, parent);
}

/* ---- In steps ----
 * A whole tree may hang on one entry: it is detached and attached a few entries at a time, and others have the mutex in
 * between. What they find then is right, if not all. */

enum { AT_ONCE = 16 };

static void let_others(struct index *index, int *steps)
{
    if (++*steps % AT_ONCE > 0) return;
    index_unlock(index);
    index_lock(index);
}

/* Down to the first that nothing more can hang on, and back up: no recursion, which would be as deep as a conversation
 * has slabs. Where it is, it has a reference, and so all that this hangs on. */
void attach_below(struct index *index, struct node *top)
{
    struct node *at = top;
    int steps = 0;
    node_ref(index, at);
    for (;;) {
        struct record *record = at->there ? next_below(index, at) : NULL;
        struct node *next = record != NULL ? record_appear(index, record) : node_of(at->entry.parent);
        bool done = record == NULL && at == top;
        if (!done) node_ref(index, next);
        node_unref(index, at);
        if (done) break;
        at = next;
        let_others(index, &steps);
    }
}

/* Leaves first: each hands its last use up. */
void detach_below(struct index *index, struct node *node)
{
    struct node *at = node;
    for (int steps = 0; node->there;) {
        if (!at->there) at = node; /* somebody else has taken it out */
        while (at->first_child != NULL) at = at->first_child;
        if (at == node) break;
        struct node *parent = node_of(at->entry.parent);
        node_ref(index, parent);
        record_detach(index, node_leave(index, at));
        let_others(index, &steps);
        node_unref(index, parent);
        at = parent;
    }
}

/* ---- What hangs on nothing ---- */

/* Above all that hang on `top` in the list of those whose own are still to be looked at. */
static void need_below(const struct index *index, const struct slab_key *key, struct record **to_look)
{
    const struct awaited *awaited = awaited_find(index, key);
    for (struct record *record = awaited == NULL ? NULL : awaited->first; record != NULL; record = record->next) {
        if (record->needed) continue;
        record->needed = true;
        record->next_needed = *to_look;
        *to_look = record;
    }
}

void detached_mark_needed(struct index *index)
{
    struct hash_link *link;
    struct record *to_look = NULL;
    for (size_t bucket = 0; (link = hash_any(&index->records, &bucket)) != NULL; bucket++)
        for (; link != NULL; link = link->next) container_of(struct record, link, link)->needed = false;
    for (size_t bucket = 0; (link = hash_any(&index->records, &bucket)) != NULL; bucket++) {
        for (; link != NULL; link = link->next) {
            struct record *record = container_of(struct record, link, link);
            bool comes = record->state == RECORD_WRITING || record->state == RECORD_ASIDE || record->replaced;
            if (!comes) continue;
            record->needed = true;
            need_below(index, &record->victim.key, &to_look);
        }
    }
    while (to_look != NULL) {
        struct record *record = to_look;
        to_look = record->next_needed;
        need_below(index, &record->victim.key, &to_look);
    }
}
