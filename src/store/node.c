/* Nodes, the tables, and the mutex. */
#include "store/node.h"

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

/* Memory goes after the mutex: a slab takes longer to free than everything else here. */
void index_unlock(struct index *index)
{
    struct node *dead = index->dead;
    index->dead = NULL;
    index->held = false;
    pthread_mutex_unlock(&index->mutex);
    for (struct node *node = dead, *next; node != NULL; node = next) {
        next = node->next;
        if (node->entry.user != NULL) index->free_user(node->entry.user);
        free(node);
    }
}

void index_require_held(const struct index *index)
{
    if (index->held && pthread_equal(index->owner, pthread_self())) return;
    fputs("hearth: the index of a tier was about to be changed without its mutex\n", stderr);
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

struct node *node_find(const struct index *index, const struct slab_key *key, enum slab_kind kind)
{
    struct hash_link *link = hash_first(&index->nodes, key_hash(key));
    for (; link != NULL; link = hash_next(link)) {
        struct node *node = container_of(struct node, link, link);
        if (node->entry.kind == kind && slab_key_equal(&node->entry.key, key)) return node;
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
        order_space_open(index, space);
        hash_add(&index->spaces, &space->link, identity_hash(identity));
    }
    space->n++;
    return space;
}

void space_leave(struct index *index, struct space *space)
{
    if (--space->n > 0) return;
    hash_remove(&index->spaces, &space->link);
    order_space_close(index, space);
    radix_close(space->root);
    free(space);
}

/* ---- References ---- */

void node_ref(struct index *index, struct node *node)
{
    index_require_held(index);
    node->refs++;
    order_node(index, node);
}

static void bury(struct index *index, struct node *node)
{
    if (node->record != NULL) {
        node->record->leased = NULL;
        order_record(index, node->record);
    }
    node->next = index->dead;
    index->dead = node;
}

/* What nobody sees any more lets go of what it hangs on. */
void node_unref(struct index *index, struct node *node)
{
    index_require_held(index);
    while (node != NULL) {
        node->refs--;
        order_node(index, node);
        if (node->refs > 0) break;
        struct node *parent = node_of(node->entry.parent);
        bury(index, node);
        node = parent;
    }
}

struct entry *node_lease(struct index *index, struct node *node)
{
    node_ref(index, node);
    index->n_leases++;
    return &node->entry;
}

void node_unlease(struct index *index, struct node *node)
{
    index->n_leases--;
    node_unref(index, node);
}

/* ---- Coming and leaving ---- */

/* A STATE with tokens of its own stands without rows, and hangs on another such, whole. */
bool node_fits(const struct node *parent, const struct space *space, enum slab_kind kind, int32_t start, int32_t end)
{
    const struct entry *entry = &parent->entry;
    enum slab_kind wanted = kind == SLAB_STATE && start < end ? SLAB_STATE : SLAB_ROWS;
    int32_t first = wanted == SLAB_STATE ? entry->end : entry->start + 1;
    return parent->there && parent->space == space && entry->kind == wanted && first <= start && start <= entry->end;
}

static void hang(struct node *node)
{
    struct node *parent = node_of(node->entry.parent);
    if (parent == NULL) return;
    node->next = parent->first_child;
    if (node->next != NULL) node->next->prev = node;
    parent->first_child = node;
}

static void unhang(struct node *node)
{
    struct node *parent = node_of(node->entry.parent);
    if (node->next != NULL) node->next->prev = node->prev;
    if (node->prev != NULL)
        node->prev->next = node->next;
    else if (parent != NULL)
        parent->first_child = node->next;
    node->prev = node->next = NULL;
}

static int32_t *room_for_own(struct index *index, size_t n)
{
    struct tokens *own = &index->own;
    if (own->cap <= n) {
        own->cap = n + 1;
        own->v = mem_grow(own->v, own->cap, sizeof *own->v);
    }
    return own->v;
}

struct node *node_appear(struct index *index, struct record *record, struct node *parent)
{
    index_require_held(index);
    struct node *node = mem_alloc(sizeof *node);
    node->entry = (struct entry){.key = record->victim.key,
                                 .kind = record->victim.kind,
                                 .start = record->start,
                                 .end = record->end,
                                 .parent = parent == NULL ? NULL : &parent->entry,
                                 .size = record->size};
    node->candidate = record->candidate;
    node->candidate.is_record = false;
    node->space = record->space;
    node->space->n++;
    node->there = true;
    node->guest.rows = node->entry.kind == SLAB_ROWS;
    struct spot from = parent == NULL ? (struct spot){node->space->root, 0} : radix_spot(parent->place, record->start);
    size_t n = record->tokens.len;
    int32_t *own = room_for_own(index, n);
    packed_copy(&record->tokens, 0, n, own);
    node->place = radix_enter(&index->radix, from, own, n, &node->guest);
    record_close(index, record);
    hang(node);
    hash_add(&index->nodes, &node->link, key_hash(&node->entry.key));
    if (parent != NULL) node_ref(index, parent);
    if (parent != NULL && node->candidate.reused) order_reused(index, parent);
    node_ref(index, node);
    return node;
}

static struct record *record_of_node(struct index *index, const struct node *node)
{
    const struct entry *entry = &node->entry;
    struct record *record = record_open(index, &entry->key, entry->kind, &node->space->identity);
    record->start = entry->start;
    record->end = entry->end;
    record->size = entry->size;
    record->candidate = (struct candidate){.is_record = true,
                                           .reused = node->candidate.reused,
                                           .failures = node->candidate.failures,
                                           .hits = node->candidate.hits,
                                           .used = node->candidate.used};
    if (entry->parent != NULL) record->parent = entry->parent->key;
    size_t n = (size_t)(entry->end - entry->start);
    int32_t *own = room_for_own(index, n);
    radix_copy(node->place, entry->start, own);
    record->tokens = packed_of(own, n);
    return record;
}

static void remove_node(struct index *index, struct node *node)
{
    struct node *parent = node_of(node->entry.parent);
    if (parent != NULL && parent->candidate.used < node->candidate.used) parent->candidate.used = node->candidate.used;
    unhang(node);
    radix_leave(&index->radix, node->place, &node->guest);
    hash_remove(&index->nodes, &node->link);
    node->there = false;
    order_node(index, node);
    space_leave(index, node->space);
    node->space = NULL;
    node_unref(index, node);
}

struct record *node_leave(struct index *index, struct node *node)
{
    index_require_held(index);
    struct record *record = record_of_node(index, node);
    if (node->refs > 1) {
        node->record = record;
        record->leased = node;
    }
    remove_node(index, node);
    return record;
}

void node_discard_all(struct index *index)
{
    struct hash_link *link;
    for (size_t bucket = 0; (link = hash_any(&index->nodes, &bucket)) != NULL;) {
        struct node *node = container_of(struct node, link, link);
        while (node->first_child != NULL) node = node->first_child;
        for (struct node *parent; node != NULL && node->first_child == NULL; node = parent) {
            parent = node_of(node->entry.parent);
            remove_node(index, node);
        }
    }
}

bool node_has_tokens(const struct node *node, const int32_t *tokens)
{
    const struct entry *entry = &node->entry;
    if (node->there) return radix_has(node->place, entry->start, tokens);
    return packed_common(&node->record->tokens, 0, tokens, node->record->tokens.len) == node->record->tokens.len;
}
