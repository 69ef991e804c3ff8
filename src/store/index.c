/* What others do with an index: they reserve and publish, adopt, drop, ask. */
#include "store/index.h"

#include "base/clock.h"
#include "base/memory.h"
#include "store/node.h"

#include <stdlib.h>

/* ---- Saving ---- */

/* Reservations are nodes under another name. */
static struct node *reserved(struct reservation *reservation)
{
    return (struct node *)(void *)reservation;
}

const struct entry *index_reserved_parent(const struct reservation *reservation)
{
    return ((const struct node *)(const void *)reservation)->entry.parent;
}

/* A STATE with tokens of its own stands without rows, and hangs on another such. */
static enum slab_kind kind_of_parent(enum slab_kind kind, int32_t start, int32_t end)
{
    return kind == SLAB_STATE && start < end ? SLAB_STATE : SLAB_ROWS;
}

/* NULL: it would be an orphan. */
static struct node *find_parent(const struct index *index, const struct reserve *what)
{
    const struct space *space = space_find(index, what->identity);
    if (space == NULL) return NULL;
    struct spot spot = radix_walk(&index->radix, (struct spot){space->root, 0}, what->tokens, (size_t)what->start);
    if (spot.end < what->start) return NULL;
    if (kind_of_parent(what->kind, what->start, what->end) == SLAB_STATE)
        return spot.place->end == what->start ? walk_state(spot.place) : NULL;
    struct spot rows = radix_with_rows(spot);
    return rows.end == what->start ? walk_rows(rows) : NULL;
}

/* False: there is not enough that could go. */
static bool make_room(struct index *index, struct node *node, struct victim **first)
{
    if (index->bytes <= index->budget) return true;
    uint64_t need = index->bytes - index->budget;
    struct victims victims = {0};
    uint64_t bytes = order_choose(index, need, &victims);
    if (bytes < need) return false;
    *first = order_evict(index, &victims, node);
    node->owed = bytes < node->entry.size ? bytes : node->entry.size;
    index->bytes -= node->owed;
    return true;
}

static enum reserved reserve(struct index *index, const struct reserve *what, struct reservation **reservation,
                             struct victim **victims)
{
    const struct node *same = node_find(index, &what->key, what->kind);
    if (same != NULL) return same->stage == STAGE_THERE ? RESERVED_PRESENT : RESERVED_WRITING;
    struct node *parent = what->start > 0 ? find_parent(index, what) : NULL;
    if (what->start > 0 && parent == NULL) return RESERVED_ORPHAN;
    if (what->size > index->budget) return RESERVED_NO_ROOM;
    struct node *node = node_open(index, what, what->tokens + what->start, parent);
    if (!make_room(index, node, victims)) {
        node_cancel(index, node);
        return RESERVED_NO_ROOM;
    }
    *reservation = (struct reservation *)(void *)node;
    return RESERVED;
}

enum reserved index_reserve(struct index *index, const struct reserve *what, struct reservation **reservation,
                            struct victim **victims)
{
    *reservation = NULL;
    *victims = NULL;
    index_lock(index);
    enum reserved result = reserve(index, what, reservation, victims);
    index_unlock(index);
    return result;
}

static bool lost_its_parent(const struct node *node)
{
    return node->entry.parent != NULL && node_of(node->entry.parent)->stage != STAGE_THERE;
}

struct entry *index_publish(struct index *index, struct reservation *reservation, uint64_t size, void *user,
                            int64_t now_ms)
{
    struct node *node = reserved(reservation);
    struct entry *entry = NULL;
    index_lock(index);
    if (!lost_its_parent(node)) {
        index->bytes -= node->entry.size - node->owed - size;
        node->entry.size = size;
        node->entry.user = user;
        node_appear(index, node);
        order_touch(index, node, now_ms);
        entry = node_lease(index, node);
        pthread_cond_broadcast(&index->changed);
    }
    index_unlock(index);
    return entry;
}

void index_cancel(struct index *index, struct reservation *reservation)
{
    index_lock(index);
    node_cancel(index, reserved(reservation));
    pthread_cond_broadcast(&index->changed);
    index_unlock(index);
}

static bool is_sound(const struct slab_head *head)
{
    bool empty = head->start == head->end;
    return head->start >= 0 && head->start <= head->end && head->end > 0 && !(empty && head->kind == SLAB_ROWS) &&
           head->tokens.len == (size_t)(head->end - head->start);
}

static bool fits(const struct node *parent, const struct slab_head *head)
{
    if (parent == NULL || parent->stage != STAGE_THERE) return false;
    const struct entry *entry = &parent->entry;
    bool whole = entry->kind == SLAB_STATE; /* nothing can begin in the middle of it */
    return identity_equal(&parent->space->identity, &head->identity) && head->start <= entry->end &&
           head->start > (whole ? entry->end - 1 : entry->start);
}

bool index_adopt(struct index *index, const struct slab_head *head, uint64_t size)
{
    if (!is_sound(head)) return false;
    struct reserve what = {.identity = &head->identity,
                           .kind = head->kind,
                           .key = head->key,
                           .start = head->start,
                           .end = head->end,
                           .size = size};
    index_lock(index);
    struct node *parent = NULL;
    if (head->start > 0) parent = node_find(index, &head->parent, kind_of_parent(head->kind, head->start, head->end));
    bool adopted = node_find(index, &head->key, head->kind) == NULL && (head->start == 0 || fits(parent, head));
    if (adopted) {
        struct node *node = node_open(index, &what, head->tokens.v, parent);
        node->hits = head->hits;
        node->used_ms = head->used_ms;
        node_appear(index, node);
    }
    index_unlock(index);
    return adopted;
}

/* ---- Leaving ---- */

void index_deleted(struct index *index, struct victim *victim)
{
    struct node *node = hash_item(struct node, victim, victim), *room_for = node->room_for;
    index_lock(index);
    index->bytes -= node->entry.size;
    if (room_for != NULL) {
        uint64_t part = node->entry.size < room_for->owed ? node->entry.size : room_for->owed;
        if (room_for->stage == STAGE_WRITING) index->bytes += part;
        room_for->owed -= part;
        node_unref(index, room_for);
    }
    node_forget(index, node);
    index_unlock(index);
}

struct victim *index_drop(struct index *index, struct entry *entry)
{
    struct victims victims = {0};
    index_lock(index);
    struct node *node = node_of(entry);
    if (node->stage == STAGE_THERE) {
        node_retire(index, node);
        victims_add(&victims, node);
    }
    for (struct victim *at = victims.first == NULL ? NULL : &node->victim; at != NULL; at = at->next) {
        struct node *above = hash_item(struct node, victim, at), *child;
        while ((child = above->first_child) != NULL) {
            node_retire(index, child);
            victims_add(&victims, child);
        }
    }
    index_unlock(index);
    return victims.first == NULL ? NULL : &victims.first->victim;
}

/* Oldest first: what hangs on something has left before it is asked. */
static struct victim *leave(struct index *index, bool leased_too)
{
    struct victims victims = {0};
    index_lock(index);
    for (struct node *node = index->oldest, *newer; node != NULL; node = newer) {
        newer = node->newer;
        if (node->refs > 1 && !leased_too) continue;
        node_retire(index, node);
        victims_add(&victims, node);
    }
    index_unlock(index);
    return victims.first == NULL ? NULL : &victims.first->victim;
}

struct victim *index_clear(struct index *index)
{
    return leave(index, false);
}

/* ---- Asking ---- */

void index_lease(struct index *index, struct entry *entry)
{
    index_lock(index);
    node_lease(index, node_of(entry));
    index_unlock(index);
}

void index_unlease(struct index *index, struct entry *entry)
{
    index_lock(index);
    node_unlease(index, node_of(entry));
    index_unlock(index);
}

static enum index_has has(const struct index *index, const struct key *key)
{
    const struct node *rows = node_find(index, key, SLAB_ROWS), *state = node_find(index, key, SLAB_STATE);
    const struct node *both[] = {rows, state};
    enum index_has result = INDEX_ABSENT;
    for (size_t i = 0; i < 2; i++) {
        if (both[i] == NULL) continue;
        if (both[i]->stage == STAGE_WRITING) return INDEX_WRITING;
        if (both[i]->stage == STAGE_THERE) result = INDEX_THERE;
    }
    return result;
}

enum index_has index_has(struct index *index, const struct key *key)
{
    index_lock(index);
    enum index_has result = has(index, key);
    index_unlock(index);
    return result;
}

enum index_has index_wait(struct index *index, const struct key *key, int64_t deadline)
{
    struct clock *clock = clock_monotonic();
    index_lock(index);
    enum index_has result = has(index, key);
    while (result != INDEX_THERE && index->n_reservations > 0 && clock_now(clock) < deadline) {
        index->held = false;
        clock->wait(clock, &index->changed, &index->mutex, deadline);
        index_note_owner(index);
        result = has(index, key);
    }
    index_unlock(index);
    return result;
}

struct index_usage index_usage(struct index *index)
{
    index_lock(index);
    struct index_usage usage = {.bytes = index->bytes,
                                .budget = index->budget,
                                .evictions = index->evictions,
                                .entries = index->n_entries,
                                .reservations = index->n_reservations,
                                .leases = index->n_leases};
    index_unlock(index);
    return usage;
}

void index_each(struct index *index, void (*each)(void *ud, const struct entry *entry, const struct identity *identity),
                void *ud)
{
    index_lock(index);
    for (const struct node *node = index->oldest; node != NULL; node = node->newer)
        each(ud, &node->entry, &node->space->identity);
    index_unlock(index);
}

/* ---- Opening and closing ---- */

/* It is held for about a microsecond: whoever finds it taken does better to spin than to sleep and be woken, which
 * would make a lookup a hundred times as long. */
static void init_mutex(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

struct index *index_open(int32_t stride, uint64_t budget, void (*free_user)(void *user))
{
    struct index *index = mem_alloc(sizeof *index);
    index->stride = stride;
    index->budget = budget;
    index->free_user = free_user;
    init_mutex(&index->mutex);
    clock_cond_init(&index->changed);
    return index;
}

void index_close(struct index *index)
{
    if (index == NULL) return;
    for (struct victim *victim = leave(index, true), *next; victim != NULL; victim = next) {
        next = victim->next;
        index_deleted(index, victim);
    }
    hash_release(&index->nodes);
    hash_release(&index->spaces);
    hash_release(&index->radix.edges);
    pthread_cond_destroy(&index->changed);
    pthread_mutex_destroy(&index->mutex);
    free(index);
}
