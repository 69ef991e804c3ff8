/* Nodes from their reservation to their end, and the mutex. */
#include "store/node.h"

#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The mutex ---- */

void index_note_owner(struct index *index)
{
    index->owner = pthread_self();
    index->held = true;
}

void index_lock(struct index *index)
{
    pthread_mutex_lock(&index->mutex);
    index_note_owner(index);
}

/* Memory goes after the mutex: a slab takes longer to free than everything else here. */
void index_unlock(struct index *index)
{
    struct node *dead = index->dead;
    index->dead = NULL;
    index->held = false;
    pthread_mutex_unlock(&index->mutex);
    for (struct node *node = dead, *next; node != NULL; node = next) {
        next = node->newer;
        if (node->entry.user != NULL) index->free_user(node->entry.user);
        tokens_release(&node->entry.tokens);
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

struct node *node_find(const struct index *index, const struct key *key, enum slab_kind kind)
{
    struct hashed *link = hash_first(&index->nodes, first_bytes(key->v));
    for (; link != NULL; link = hash_next(link)) {
        struct node *node = hash_item(struct node, link, link);
        if (node->entry.kind == kind && key_equal(&node->entry.key, key)) return node;
    }
    return NULL;
}

static uint64_t identity_hash(const struct identity *identity)
{
    return first_bytes(identity->model) ^ first_bytes(identity->context);
}

struct space *space_find(const struct index *index, const struct identity *identity)
{
    struct hashed *link = hash_first(&index->spaces, identity_hash(identity));
    for (; link != NULL; link = hash_next(link)) {
        struct space *space = hash_item(struct space, link, link);
        if (identity_equal(&space->identity, identity)) return space;
    }
    return NULL;
}

static struct space *space_enter(struct index *index, const struct identity *identity)
{
    struct space *space = space_find(index, identity);
    if (space == NULL) {
        space = mem_alloc(sizeof *space);
        space->identity = *identity;
        space->root = radix_open();
        hash_add(&index->spaces, &space->link, identity_hash(identity));
    }
    space->n_nodes++;
    return space;
}

static void space_leave(struct index *index, struct node *node)
{
    struct space *space = node->space;
    node->space = NULL;
    if (--space->n_nodes > 0) return;
    hash_remove(&index->spaces, &space->link);
    radix_close(space->root);
    free(space);
}

/* ---- References ---- */

/* What nobody sees any more lets go of what it hangs on. A victim does so before its slab is deleted: it must not keep
 * the next victim from going. */
static void let_go(struct index *index, struct node *node)
{
    while (node != NULL && (node->refs == 0 || (node->refs == 1 && node->stage == STAGE_DELETING))) {
        struct node *parent = node_of(node->entry.parent);
        node->entry.parent = NULL;
        if (node->refs == 0) {
            node->newer = index->dead;
            index->dead = node;
        }
        if (parent != NULL) parent->refs--;
        node = parent;
    }
}

void node_unref(struct index *index, struct node *node)
{
    node->refs--;
    let_go(index, node);
}

struct entry *node_lease(struct index *index, struct node *node)
{
    index_require_held(index);
    node->refs++;
    index->n_leases++;
    return &node->entry;
}

void node_unlease(struct index *index, struct node *node)
{
    index_require_held(index);
    index->n_leases--;
    node_unref(index, node);
}

/* ---- From stage to stage ---- */

struct node *node_open(struct index *index, const struct reserve *what, const int32_t *own, struct node *parent)
{
    struct node *node = mem_alloc(sizeof *node);
    node->entry = (struct entry){.key = what->key,
                                 .kind = what->kind,
                                 .start = what->start,
                                 .end = what->end,
                                 .parent = parent == NULL ? NULL : &parent->entry,
                                 .size = what->size};
    tokens_append(&node->entry.tokens, own, (size_t)(what->end - what->start));
    node->stage = STAGE_WRITING;
    node->refs = 1;
    node->space = space_enter(index, what->identity);
    if (parent != NULL) parent->refs++;
    hash_add(&index->nodes, &node->link, first_bytes(what->key.v));
    index->n_reservations++;
    index->bytes += what->size;
    return node;
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
}

void node_appear(struct index *index, struct node *node)
{
    index_require_held(index);
    const struct entry *entry = &node->entry;
    struct spot from = {node->space->root, 0};
    if (entry->parent != NULL) from = radix_spot(node_of(entry->parent)->place, entry->start);
    node->guest.rows = entry->kind == SLAB_ROWS;
    node->place = radix_enter(&index->radix, from, entry->tokens.v, entry->tokens.len, &node->guest);
    node->stage = STAGE_THERE;
    hang(node);
    order_add_oldest(index, node);
    index->n_reservations--;
    index->n_entries++;
}

void node_retire(struct index *index, struct node *node)
{
    index_require_held(index);
    order_remove(index, node);
    unhang(node);
    radix_leave(&index->radix, node->place, &node->guest);
    space_leave(index, node);
    node->stage = STAGE_DELETING;
    node->victim.key = node->entry.key;
    node->victim.kind = node->entry.kind;
    index->n_entries--;
    let_go(index, node);
}

void node_forget(struct index *index, struct node *node)
{
    index_require_held(index);
    hash_remove(&index->nodes, &node->link);
    node->stage = STAGE_GONE;
    node_unref(index, node);
}

void node_cancel(struct index *index, struct node *node)
{
    index->bytes -= node->entry.size - node->owed;
    index->n_reservations--;
    space_leave(index, node);
    node_forget(index, node);
}
