/* Items: the entries of an index in all their states, from one to the next. Here are the mutex, the tables by key and
 * by identity, references and pins, and the way into the radix tree and out of it. Items that wait for their parent are
 * listed by its key, and go into the tree with it. Calls lru.c after each change of what may be evicted (see
 * index_parts.h), tips.c and follow.c when an entry comes or goes. */
#include "store/index/index_parts.h"

#include "base/log_stderr.h"
#include "base/memory.h"

#include <assert.h>
#include <stddef.h>
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
    struct item *dead = index->dead;
    index->dead = NULL;
    index_check_some(index);
    index->held = false;
    pthread_mutex_unlock(&index->mutex);
    for (struct item *item = dead, *next; item != NULL; item = next) {
        next = item->next;
        if (item->entry.user != NULL) index->free_user(item->entry.user);
        free(item);
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

struct item *item_in(const struct index *index, const struct slab_key *key, enum slab_kind kind, unsigned int states)
{
    struct hash_link *link = hash_first(&index->items, first_bytes(key->v));
    for (; link != NULL; link = hash_next(link)) {
        struct item *item = container_of(struct item, link, link);
        bool is_one = (states & 1u << item->state) != 0 && item->entry.kind == kind;
        if (is_one && slab_key_equal(&item->entry.key, key)) return item;
    }
    return NULL;
}

struct item *item_found(const struct index *index, const struct slab_key *key, enum slab_kind kind)
{
    return item_in(index, key, kind, 1u << ITEM_FOUND);
}

struct item *item_writing(const struct index *index, const struct slab_key *key, enum slab_kind kind)
{
    return item_in(index, key, kind, 1u << ITEM_WRITING);
}

struct item *item_known(const struct index *index, const struct slab_key *key, enum slab_kind kind)
{
    return item_in(index, key, kind, 1u << ITEM_DETACHED | 1u << ITEM_UNREADABLE | 1u << ITEM_VICTIM);
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

/* ---- Orphans ---- */

static struct orphans *orphans_find(const struct index *index, const struct slab_key *key)
{
    struct hash_link *link = hash_first(&index->orphans, first_bytes(key->v));
    for (; link != NULL; link = hash_next(link)) {
        struct orphans *orphans = container_of(struct orphans, link, link);
        if (slab_key_equal(&orphans->key, key)) return orphans;
    }
    return NULL;
}

static void orphans_join(struct index *index, struct item *item, const struct slab_key *parent)
{
    struct orphans *orphans = orphans_find(index, parent);
    if (orphans == NULL) {
        orphans = mem_alloc(sizeof *orphans);
        orphans->key = *parent;
        hash_add(&index->orphans, &orphans->link, first_bytes(parent->v));
    }
    item->orphans = orphans;
    item->prev = NULL;
    item->next = orphans->first;
    if (item->next != NULL) item->next->prev = item;
    orphans->first = item;
}

static void orphans_leave(struct index *index, struct item *item)
{
    struct orphans *orphans = item->orphans;
    if (orphans == NULL) return;
    if (item->next != NULL) item->next->prev = item->prev;
    *(item->prev != NULL ? &item->prev->next : &orphans->first) = item->next;
    item->prev = item->next = NULL;
    item->orphans = NULL;
    if (orphans->first != NULL) return;
    hash_remove(&index->orphans, &orphans->link);
    free(orphans);
}

/* ---- References ---- */

void item_ref(struct index *index, struct item *item)
{
    index_require_held(index);
    item->refs++;
    lru_update(index, item);
}

/* One that is referenced, found or being written needs its parent. Without recursion, which would be as deep as a
 * conversation has slabs. */
static void give_back_parent(struct index *index, struct item *item)
{
    while (item != NULL && item->refs == 0 && item->state != ITEM_FOUND && item->state != ITEM_WRITING) {
        struct item *parent = parent_of(item);
        item->entry.parent = NULL;
        if (item->state == ITEM_GONE) {
            item->next = index->dead;
            index->dead = item;
        }
        item = parent;
        if (item == NULL) break;
        item->refs--;
        lru_update(index, item);
    }
}

void item_unref(struct index *index, struct item *item)
{
    index_require_held(index);
    assert(item->refs > 0);
    item->refs--;
    lru_update(index, item);
    give_back_parent(index, item);
}

static void set_parent(struct index *index, struct item *item, struct item *parent)
{
    struct item *former = parent_of(item);
    if (former == parent) return; /* it has its reference already */
    if (parent != NULL) item_ref(index, parent);
    item->entry.parent = parent == NULL ? NULL : &parent->entry;
    if (former != NULL) item_unref(index, former);
}

struct entry *item_pin(struct index *index, struct item *item)
{
    item_ref(index, item);
    index->n_pins++;
    return &item->entry;
}

void item_unpin(struct index *index, struct item *item)
{
    assert(index->n_pins > 0);
    index->n_pins--;
    item_unref(index, item);
}

/* ---- States ---- */

#define TO(state) (1u << ITEM_##state)

void item_enter(struct index *index, struct item *item, enum item_state state)
{
    static const uint8_t allowed[ITEM_STATES] = {
        [ITEM_NEW] = TO(WRITING) | TO(FOUND) | TO(DETACHED),                  /* reserved; adopted */
        [ITEM_WRITING] = TO(FOUND) | TO(DETACHED) | TO(GONE),                 /* published; cancelled */
        [ITEM_FOUND] = TO(DETACHED) | TO(UNREADABLE) | TO(VICTIM) | TO(GONE), /* its parent left; the index is closed */
        [ITEM_DETACHED] = TO(FOUND) | TO(UNREADABLE) | TO(VICTIM) | TO(GONE), /* its parent came; it was replaced */
        [ITEM_UNREADABLE] = TO(DETACHED) | TO(VICTIM) | TO(GONE),             /* its time has come; it was replaced */
        [ITEM_VICTIM] = TO(FOUND) | TO(DETACHED) | TO(GONE),                  /* reinstated; its slab is deleted */
    };
    index_require_held(index);
    assert((allowed[item->state] & 1u << state) != 0);
    (void)allowed;
    if (item->state == ITEM_UNREADABLE) heap_remove(&index->unreadable, &item->retry);
    index->n_states[item->state]--;
    if (state != ITEM_GONE) index->n_states[state]++;
    item->state = (uint8_t)state;
    lru_update(index, item);
    give_back_parent(index, item);
}

struct item *item_open(struct index *index, const struct reserve *what)
{
    index_require_held(index);
    struct item *item = mem_alloc(sizeof *item);
    item->entry = (struct entry){
        .key = what->key, .kind = what->kind, .start = what->start, .end = what->end, .size = what->size};
    struct space *space = space_find(index, what->identity);
    if (space == NULL) {
        space = mem_alloc(sizeof *space);
        space->identity = *what->identity;
        space->root = radix_open();
        lru_space_open(index, space);
        hash_add(&index->spaces, &space->link, identity_hash(what->identity));
    }
    space->n++;
    item->space = space;
    item->tokens = packed_of(what->tokens, (size_t)(what->end - what->start));
    hash_add(&index->items, &item->link, first_bytes(what->key.v));
    index->n_states[ITEM_NEW]++;
    if (what->start > 0 && what->parent != NULL) set_parent(index, item, item_of(what->parent));
    return item;
}

void item_close(struct index *index, struct item *item)
{
    struct space *space = item->space;
    orphans_leave(index, item);
    packed_release(&item->tokens);
    hash_remove(&index->items, &item->link);
    item_enter(index, item, ITEM_GONE);
    item->space = NULL;
    if (--space->n > 0) return;
    hash_remove(&index->spaces, &space->link);
    lru_space_close(index, space);
    radix_close(space->root);
    free(space);
}

/* Holders of references to it go on seeing what it was. A copy takes its place, and is returned. It is in no list. */
static struct item *item_renew(struct index *index, struct item *item)
{
    if (item->refs == 0) return item;
    assert(item->state != ITEM_FOUND && item->orphans == NULL && item->evictable.at == 0);
    hash_remove(&index->items, &item->link);
    struct item *fresh = mem_alloc(sizeof *fresh);
    /* All but the entry's `user`, which the store's mutex guards. */
    const size_t to = offsetof(struct item, entry.user), from = to + sizeof fresh->entry.user;
    memcpy(fresh, item, to);
    memcpy((char *)fresh + from, (const char *)item + from, sizeof *item - from);
    fresh->entry.parent = NULL;
    fresh->refs = 0;
    index->n_states[fresh->state]++;
    hash_add(&index->items, &fresh->link, first_bytes(fresh->entry.key.v));
    item->tokens = (struct packed){0};
    item->space = NULL;
    item_enter(index, item, ITEM_GONE);
    return fresh;
}

/* ---- Into the tree, and out of it ---- */

/* A STATE entry with tokens of its own (of a model without KV rows) is the child of another such entry, at its end.
 * Every other entry is the child of a ROWS entry, and may start in the middle of its tokens. */
static enum slab_kind kind_of_parent(enum slab_kind kind, int32_t start, int32_t end)
{
    return kind == SLAB_STATE && start < end ? SLAB_STATE : SLAB_ROWS;
}

bool item_accepts_child(const struct item *parent, const struct space *space, enum slab_kind kind, int32_t start,
                        int32_t end)
{
    const struct entry *entry = &parent->entry;
    enum slab_kind wanted = kind_of_parent(kind, start, end);
    int32_t first = wanted == SLAB_STATE ? entry->end : entry->start + 1;
    return parent->state == ITEM_FOUND && parent->space == space && entry->kind == wanted && first <= start &&
           start <= entry->end;
}

static bool accepts(const struct item *parent, const struct item *item)
{
    const struct entry *entry = &item->entry;
    return item_accepts_child(parent, item->space, entry->kind, entry->start, entry->end);
}

static void unlink_child(struct item *item)
{
    struct item *parent = parent_of(item);
    if (item->next != NULL) item->next->prev = item->prev;
    if (item->prev != NULL)
        item->prev->next = item->next;
    else if (parent != NULL)
        parent->first_child = item->next;
    item->prev = item->next = NULL;
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

static struct item *put_into_tree(struct index *index, struct item *item, struct item *parent)
{
    orphans_leave(index, item);
    item = item_renew(index, item);
    assert(item->refs == 0); /* whoever has one sees it as it was */
    size_t n = item->tokens.len;
    int32_t *scratch = scratch_tokens(index, n);
    packed_copy(&item->tokens, 0, n, scratch);
    packed_release(&item->tokens);
    struct radix_position from = parent == NULL ? (struct radix_position){item->space->root, 0}
                                                : radix_position_at(parent->node, item->entry.start);
    item->radix_entry = (struct radix_entry){.rows = item->entry.kind == SLAB_ROWS};
    item->first_child = item->older = item->newer = item->kept_state = NULL;
    item->followed = NULL;
    item->node = radix_insert(&index->radix, from, scratch, n, &item->radix_entry);
    item->prev = NULL;
    item->next = parent == NULL ? NULL : parent->first_child;
    if (item->next != NULL) item->next->prev = item;
    if (parent != NULL) parent->first_child = item;
    set_parent(index, item, parent);
    item_enter(index, item, ITEM_FOUND);
    if (parent != NULL && item->reused) lru_mark_reused(index, parent);
    kept_follow(index, item);
    follow_added(index, item);
    return item;
}

static void take_from_tree(struct index *index, struct item *item)
{
    struct item *parent = parent_of(item);
    assert(item->first_child == NULL);
    kept_forget(index, item);
    if (parent != NULL && parent->used < item->used) parent->used = item->used;
    follow_removed(index, item);
    unlink_child(item);
    size_t n = (size_t)(item->entry.end - item->entry.start);
    int32_t *scratch = scratch_tokens(index, n);
    radix_copy_tokens(item->node, item->entry.start, scratch);
    radix_remove(&index->radix, item->node, &item->radix_entry);
    item->tokens = packed_of(scratch, n);
    item->orphans = NULL;
    item->retry = (struct heap_link){0};
    if (parent != NULL) orphans_join(index, item, &parent->entry.key);
}

void item_take(struct index *index, struct item *item, enum item_state state)
{
    index_require_held(index);
    if (item->state == ITEM_FOUND) take_from_tree(index, item);
    item_enter(index, item, state);
}

struct item *item_attach(struct index *index, struct item *item, const struct slab_key *key)
{
    if (item->orphans != NULL) key = &item->orphans->key;
    const struct entry *entry = &item->entry;
    assert(key != NULL || entry->start == 0);
    if (entry->start == 0) return put_into_tree(index, item, NULL);
    struct item *parent = item_found(index, key, kind_of_parent(entry->kind, entry->start, entry->end));
    if (parent != NULL && accepts(parent, item)) return put_into_tree(index, item, parent);
    if (item->orphans == NULL) orphans_join(index, item, key);
    if (item->state != ITEM_DETACHED) item_enter(index, item, ITEM_DETACHED);
    return NULL;
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

/* A detached item that can become a child of the entry now. */
static struct item *next_orphan_of(const struct index *index, const struct item *parent)
{
    const struct orphans *orphans = orphans_find(index, &parent->entry.key);
    struct item *item = orphans == NULL ? NULL : orphans->first;
    while (item != NULL && (item->state != ITEM_DETACHED || item->replaced || !accepts(parent, item)))
        item = item->next;
    return item;
}

/* Depth first without recursion. A reference to the current entry, and so to its ancestors, keeps the way back while
 * the mutex is released. */
void attach_below(struct index *index, struct item *top)
{
    struct item *at = top;
    int steps = 0;
    index->n_walks++;
    item_ref(index, at);
    for (;;) {
        struct item *orphan = at->state == ITEM_FOUND ? next_orphan_of(index, at) : NULL;
        struct item *next = orphan != NULL ? item_attach(index, orphan, NULL) : parent_of(at);
        bool done = orphan == NULL && at == top;
        if (!done) item_ref(index, next);
        item_unref(index, at);
        if (done) break;
        at = next;
        yield_mutex(index, &steps);
    }
    index->n_walks--;
}

void item_attach_all(struct index *index, struct item *item, const struct slab_key *key)
{
    struct item *found = item_attach(index, item, key);
    if (found != NULL) attach_below(index, found);
}

/* Leaves first: each hands its time of last use up to its parent. */
void detach_below(struct index *index, struct item *item)
{
    struct item *at = item;
    index->n_walks++;
    for (int steps = 0; item->state == ITEM_FOUND;) {
        if (at->state != ITEM_FOUND) at = item; /* another thread removed it */
        while (at->first_child != NULL) at = at->first_child;
        if (at == item) break;
        struct item *parent = parent_of(at);
        item_ref(index, parent);
        item_take(index, at, ITEM_DETACHED);
        yield_mutex(index, &steps);
        item_unref(index, parent);
        at = parent;
    }
    index->n_walks--;
}

bool item_awaits_ancestor(const struct index *index, const struct item *item)
{
    static const unsigned int known = 1u << ITEM_DETACHED | 1u << ITEM_UNREADABLE;
    while (item->orphans != NULL) {
        const struct entry *entry = &item->entry;
        enum slab_kind kind = kind_of_parent(entry->kind, entry->start, entry->end);
        const struct slab_key *key = &item->orphans->key;
        if (item_writing(index, key, kind) != NULL) return true;
        item = item_in(index, key, kind, known);
        if (item == NULL) return false;
        if (item->state == ITEM_UNREADABLE || item->replaced) return true;
    }
    return false;
}

/* ---- The end ---- */

void items_close(struct index *index)
{
    struct hash_link *link;
    for (size_t bucket = 0; (link = hash_any(&index->items, &bucket)) != NULL;) {
        struct item *item = container_of(struct item, link, link);
        while (item->state == ITEM_FOUND && item->first_child != NULL) item = item->first_child;
        if (item->state == ITEM_FOUND) {
            kept_forget(index, item);
            follow_removed(index, item);
            unlink_child(item);
            radix_remove(&index->radix, item->node, &item->radix_entry);
            item->tokens = (struct packed){0};
            item->orphans = NULL;
        }
        if (item->state != ITEM_VICTIM) lru_uncount(index, item);
        item_close(index, item);
    }
    index->bytes = index->victim_bytes = index->n_reservations = 0;
}
