/* The eviction order: segmented LRU, with a share of the budget for each identity.
 *
 * Only leaves that nobody uses may be evicted, the least recently used first. An entry counts as used when it or a
 * descendant was. An evicted leaf hands its time of last use up to its parent, so that a use costs one move in a heap,
 * however deep the entry lies.
 *
 * Most of what is stored is never asked for again. An entry is fresh until its first use after it was stored. Fresh
 * entries evict reused ones only while they hold less than half of the budget. Beyond that they evict each other, so
 * that one prompt of any length that comes once leaves the reused half as it was. bench/evict.c compares this policy
 * with others.
 *
 * An identity is active if it was used since a whole budget's worth of bytes was written. Active identities have equal
 * shares of the budget; inactive ones have none. Victims come from inactive identities first, then from the active one
 * that is most above its share, then from the identity that asks for room. So an active one loses to others only what
 * it holds above its share.
 *
 * Entries that are kept by order (tips.c) have references, so they are never chosen. They count for no identity, as if
 * the budget were smaller by them.
 *
 * Runs under the index's mutex. Calls items.c to remove what it evicts (see index_parts.h). */
#include "store/index/index_parts.h"

#include "base/memory.h"

#include <assert.h>
#include <stdlib.h>

/* ---- Heaps ---- */

static void put(struct heap *heap, uint32_t i, struct heap_link *item)
{
    heap->v[i] = item;
    item->at = i + 1;
}

static void sift_up(struct heap *heap, uint32_t i, struct heap_link *item)
{
    for (uint32_t above; i > 0 && heap->before(item, heap->v[above = (i - 1) / 2]); i = above)
        put(heap, i, heap->v[above]);
    put(heap, i, item);
}

static void sift_down(struct heap *heap, uint32_t i, struct heap_link *item)
{
    for (uint32_t below; (below = 2 * i + 1) < heap->n; i = below) {
        if (below + 1 < heap->n && heap->before(heap->v[below + 1], heap->v[below])) below++;
        if (!heap->before(heap->v[below], item)) break;
        put(heap, i, heap->v[below]);
    }
    put(heap, i, item);
}

void heap_add(struct heap *heap, struct heap_link *item)
{
    if (item->at != 0) return;
    if (heap->n == heap->cap) {
        heap->cap = heap->cap == 0 ? 16 : heap->cap + heap->cap / 2;
        heap->v = mem_grow(heap->v, heap->cap, sizeof(struct heap_link *));
    }
    heap->n++;
    sift_up(heap, heap->n - 1, item);
}

void heap_remove(struct heap *heap, struct heap_link *item)
{
    if (item->at == 0) return;
    uint32_t i = item->at - 1;
    struct heap_link *last = heap->v[--heap->n];
    item->at = 0;
    if (last == item) return;
    if (i > 0 && heap->before(last, heap->v[(i - 1) / 2]))
        sift_up(heap, i, last);
    else
        sift_down(heap, i, last);
}

struct heap_link *heap_first(const struct heap *heap)
{
    return heap->n == 0 ? NULL : heap->v[0];
}

void heap_release(struct heap *heap)
{
    free(heap->v);
    heap->v = NULL;
    heap->n = heap->cap = 0;
}

/* ---- What may be evicted ---- */

static struct item *item_of_link(const struct heap_link *link)
{
    return container_of(struct item, evictable, link);
}

/* Entries of a detached chain may have one time of use: then the one with the larger end is evicted first, so that
 * children are evicted before parents. */
static bool used_before(const struct heap_link *a, const struct heap_link *b)
{
    const struct item *one = item_of_link(a), *other = item_of_link(b);
    return one->used != other->used ? one->used < other->used : one->entry.end > other->entry.end;
}

static void set_evictable(struct index *index, struct item *item, bool evictable)
{
    index_require_held(index);
    if (evictable == (item->evictable.at != 0)) return;
    struct heap *heap = item->reused ? &item->space->reused : &item->space->fresh;
    if (evictable)
        heap_add(heap, &item->evictable);
    else
        heap_remove(heap, &item->evictable);
}

void lru_update(struct index *index, struct item *item)
{
    bool leaves = item->state == ITEM_FOUND || (item_is_detached(item) && !item->replaced);
    set_evictable(index, item, leaves && item->refs == 0);
}

/* ---- Identities ---- */

static void spaces_append(struct spaces *list, struct space *space)
{
    space->next = NULL;
    space->prev = list->last;
    *(space->prev != NULL ? &space->prev->next : &list->first) = space;
    list->last = space;
}

static void space_unlist(struct index *index, struct space *space)
{
    struct spaces *list = space->active ? &index->active : &index->inactive;
    *(space->next != NULL ? &space->next->prev : &list->last) = space->prev;
    *(space->prev != NULL ? &space->prev->next : &list->first) = space->next;
    if (space->active) index->n_active--;
}

static void space_activate(struct index *index, struct space *space)
{
    space->active = true;
    space->seen = index->written;
    spaces_append(&index->active, space);
    index->n_active++;
}

void lru_space_open(struct index *index, struct space *space)
{
    space->fresh.before = space->reused.before = used_before;
    space_activate(index, space);
}

void lru_space_use(struct index *index, struct space *space)
{
    space_unlist(index, space);
    space_activate(index, space);
}

void lru_space_close(struct index *index, struct space *space)
{
    space_unlist(index, space);
    heap_release(&space->fresh);
    heap_release(&space->reused);
}

void lru_count(struct index *index, struct item *item)
{
    index_require_held(index);
    if (item->n_kept > 0) return;
    item->space->bytes += item->entry.size;
    if (item->reused) return;
    item->space->fresh_bytes += item->entry.size;
    index->fresh_bytes += item->entry.size;
}

void lru_uncount(struct index *index, struct item *item)
{
    index_require_held(index);
    if (item->n_kept > 0) return;
    item->space->bytes -= item->entry.size;
    if (item->reused) return;
    item->space->fresh_bytes -= item->entry.size;
    index->fresh_bytes -= item->entry.size;
}

void lru_keep(struct index *index, struct item *item)
{
    lru_uncount(index, item);
    if (item->n_kept++ == 0) index->kept_bytes += item->entry.size;
}

void lru_unkeep(struct index *index, struct item *item, uint32_t n)
{
    assert(item->n_kept >= n);
    item->n_kept -= n;
    if (item->n_kept > 0) return;
    index->kept_bytes -= item->entry.size;
    lru_count(index, item);
}

/* ---- Uses ---- */

/* A stamp is a time in milliseconds times this: uses within one millisecond, or after the clock was set back, get the
 * numbers in between. */
enum { STAMPS_PER_MS = 1 << 20 };

int64_t lru_stamp(struct index *index, int64_t now_ms)
{
    int64_t stamp = now_ms * STAMPS_PER_MS;
    if (stamp <= index->last_stamp) stamp = index->last_stamp + 1;
    return index->last_stamp = stamp;
}

int64_t lru_stamp_ms(int64_t stamp)
{
    return stamp / STAMPS_PER_MS;
}

int64_t lru_stamp_of_adopted(int64_t used_ms, int64_t now_ms)
{
    int64_t ms = used_ms < now_ms ? used_ms : now_ms;
    return ms > 0 ? ms * STAMPS_PER_MS : 0;
}

static void set_reused(struct index *index, struct item *item)
{
    bool evictable = item->evictable.at != 0;
    set_evictable(index, item, false);
    lru_uncount(index, item);
    item->reused = true;
    lru_count(index, item);
    set_evictable(index, item, evictable);
}

/* Stops at the first ancestor that is marked already: all walks together visit each stored entry once. */
void lru_mark_reused(struct index *index, struct item *item)
{
    for (; item != NULL && item->state == ITEM_FOUND && !item->reused; item = parent_of(item)) set_reused(index, item);
}

void lru_use(struct index *index, struct item *item, int64_t now_ms)
{
    bool evictable = item->evictable.at != 0;
    set_evictable(index, item, false);
    item->used = lru_stamp(index, now_ms);
    set_evictable(index, item, evictable);
    lru_space_use(index, item->space);
    if (item_is_detached(item) && !item->reused) set_reused(index, item);
    lru_mark_reused(index, item);
}

uint32_t index_touch(struct index *index, struct entry *entry, int64_t now_ms)
{
    struct item *item = item_of(entry);
    index_lock(index);
    assert(item->refs > 0);
    uint32_t hits = ++item->hits;
    if (item->state == ITEM_FOUND || item_is_detached(item)) lru_use(index, item, now_ms);
    index_unlock(index);
    return hits;
}

void index_mark_readable(struct index *index, struct entry *entry)
{
    index_lock(index);
    assert(item_of(entry)->refs > 0);
    item_of(entry)->failures = 0;
    index_unlock(index);
}

/* ---- The next victim ---- */

/* The budget of what is not kept by order. */
static uint64_t shared_budget(const struct index *index)
{
    return index->budget > index->kept_bytes ? index->budget - index->kept_bytes : 0;
}

static uint64_t share_of_active(const struct index *index)
{
    return index->n_active == 0 ? 0 : shared_budget(index) / index->n_active;
}

/* On whose behalf something is evicted. Fresh entries are kept from evicting reused ones of their own identity once
 * they hold half of its share. They are kept from evicting those of others once all fresh entries together hold half of
 * the budget, so that new identities do not get around the limit. */
struct requester {
    const struct space *space; /* NULL: no reservation, the budget is exceeded */
    bool for_any;              /* no entry is protected */
};

static struct item *next_victim_of(const struct index *index, const struct space *space, struct requester requester)
{
    uint64_t share = space->active ? share_of_active(index) : 0;
    bool many = space->fresh_bytes > share / 2;
    bool many_of_all = index->fresh_bytes > shared_budget(index) / 2;
    bool takes_reused = requester.for_any || !(space == requester.space ? many : many_of_all);
    struct heap_link *fresh = heap_first(&space->fresh), *reused = takes_reused ? heap_first(&space->reused) : NULL;
    bool first_is_fresh = fresh != NULL && (reused == NULL || many || !used_before(reused, fresh));
    struct heap_link *first = first_is_fresh ? fresh : reused;
    return first == NULL ? NULL : item_of_link(first);
}

/* The next victim of the active identity that holds most, and more than `least` bytes. */
static struct item *next_victim_of_largest(const struct index *index, struct requester requester, uint64_t least)
{
    struct item *next = NULL;
    for (const struct space *space = index->active.first; space != NULL; space = space->next) {
        if (space->bytes <= least) continue;
        struct item *item = next_victim_of(index, space, requester);
        if (item == NULL) continue;
        next = item;
        least = space->bytes;
    }
    return next;
}

/* Inactive identities give first, then those above their share, then the requester itself. A requester below its share
 * also gets fresh entries of others that are below theirs. All other entries may be reused ones of identities that are
 * not active any more. */
static struct item *next_fair_victim(const struct index *index, struct requester requester)
{
    uint64_t fair = share_of_active(index);
    struct item *next = NULL;
    for (const struct space *space = index->inactive.first; space != NULL && next == NULL; space = space->next)
        next = next_victim_of(index, space, requester);
    if (next == NULL) next = next_victim_of_largest(index, requester, requester.for_any ? 0 : fair);
    if (next != NULL || requester.space == NULL) return next;
    next = next_victim_of(index, requester.space, requester);
    if (next != NULL || requester.space->bytes > fair) return next;
    return index->fresh_bytes > shared_budget(index) / 2 ? next_victim_of_largest(index, requester, 0) : NULL;
}

/* ---- Choosing ---- */

/* Choosing and evicting are two steps, so that a reservation that cannot be met evicts nothing. A chosen item has left
 * its heap and given back its reference to its parent, so that the parent may be chosen next. */
struct choices {
    struct item **v;
    size_t n, cap;
    uint64_t bytes;
};

static struct item *parent_in_tree(const struct item *item)
{
    return item->state == ITEM_FOUND ? parent_of(item) : NULL;
}

static struct choices choose_victims(struct index *index, uint64_t need, const struct space *space)
{
    struct choices choices = {0};
    for (struct space *idle; (idle = index->active.first) != NULL;) {
        if (index->written - idle->seen <= index->budget) break;
        space_unlist(index, idle);
        idle->active = false;
        spaces_append(&index->inactive, idle);
    }
    while (choices.bytes < need) {
        struct item *item = next_fair_victim(index, (struct requester){.space = space});
        /* Entries beyond the budget are evicted even where every one is protected. */
        if (item == NULL && space == NULL) item = next_fair_victim(index, (struct requester){.for_any = true});
        if (item == NULL) break;
        choices.v = mem_room(choices.v, choices.n, &choices.cap, sizeof(struct item *));
        choices.v[choices.n++] = item;
        choices.bytes += item->entry.size;
        set_evictable(index, item, false);
        lru_uncount(index, item);
        struct item *parent = parent_in_tree(item);
        if (parent == NULL) continue;
        if (parent->used < item->used) parent->used = item->used;
        parent->refs--;
        lru_update(index, parent);
    }
    return choices;
}

static void unchoose_all(struct index *index, struct choices *choices)
{
    while (choices->n > 0) {
        struct item *item = choices->v[--choices->n], *parent = parent_in_tree(item);
        lru_count(index, item);
        set_evictable(index, item, true);
        if (parent == NULL) continue;
        parent->refs++;
        lru_update(index, parent);
    }
    free(choices->v);
}

/* ---- Evicting ---- */

struct victim *lru_make_victim(struct index *index, struct item *item, struct reservation *reservation)
{
    struct removal *removal = mem_alloc(sizeof *removal);
    removal->victim.key = item->entry.key;
    removal->victim.kind = item->entry.kind;
    removal->item = item;
    removal->reservation = reservation;
    if (reservation != NULL) reservation->n_victims++;
    item_take(index, item, ITEM_VICTIM);
    lru_uncount(index, item);
    index->victim_bytes += item->entry.size;
    return &removal->victim;
}

uint64_t lru_evict(struct index *index, uint64_t need, struct reservation *reservation, struct victim **first)
{
    struct choices choices = choose_victims(index, need, reservation == NULL ? NULL : reservation->item->space);
    uint64_t bytes = choices.bytes;
    if (reservation != NULL && bytes < need) {
        unchoose_all(index, &choices);
        return 0;
    }
    struct victim **end = first;
    for (size_t i = 0; i < choices.n; i++) {
        struct item *item = choices.v[i], *parent = parent_in_tree(item);
        lru_count(index, item);
        if (parent != NULL) parent->refs++;
        *end = lru_make_victim(index, item, reservation);
        end = &(*end)->next;
    }
    free(choices.v);
    return bytes;
}

bool lru_could_evict(struct index *index, uint64_t need, const struct reservation *reservation)
{
    struct choices choices = choose_victims(index, need, reservation == NULL ? NULL : reservation->item->space);
    bool could = choices.bytes >= need;
    unchoose_all(index, &choices);
    return could;
}
