/* The operations of an index that change it from outside: reserve and publish, adopt what an earlier process left, drop
 * what is damaged, hide what cannot be read for now. Each takes the mutex itself. */
#include "store/index/index.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/os.h"
#include "store/index/index_parts.h"

#include <assert.h>
#include <stdlib.h>

/* ---- Reserving ---- */

static size_t count_victims(const struct victim *victim)
{
    size_t n = 0;
    for (; victim != NULL; victim = victim->next) n++;
    return n;
}

static uint64_t excess(uint64_t bytes, uint64_t budget)
{
    return bytes > budget ? bytes - budget : 0;
}

static enum reserved refusal(struct index *index, uint64_t need)
{
    return lru_could_evict(index, need, NULL) ? RESERVED_NOT_ADMITTED : RESERVED_NO_ROOM;
}

/* Victims that others are still deleting count as used, but for a save with `over`, after which index_trim() is called.
 */
static enum reserved evict_for(struct index *index, struct reservation *reservation, bool over, struct victim **victims)
{
    uint64_t need = excess(index->bytes - (over ? index->victim_bytes : 0), index->budget),
             size = reservation->item->entry.size;
    if (need > size) need = size; /* the rest was there before: index_trim() sees to it, in steps */
    if (over) return lru_could_evict(index, need, reservation) ? RESERVED : refusal(index, need);
    if (need == 0) return RESERVED;
    uint64_t bytes = lru_evict(index, need, reservation, victims);
    if (bytes < need) return refusal(index, need);
    index->evictions += count_victims(*victims);
    reservation->owed = bytes < size ? bytes : size;
    index->bytes -= reservation->owed;
    index->victim_bytes -= reservation->owed;
    return RESERVED;
}

/* Returns the item, whose bytes are not counted any more. */
static struct item *reservation_end(struct index *index, struct reservation *reservation)
{
    struct item *item = reservation->item;
    reservation->item = NULL;
    lru_uncount(index, item);
    index->bytes -= item->entry.size - reservation->owed;
    index->victim_bytes += reservation->owed;
    index->n_reservations--;
    if (reservation->n_victims == 0) free(reservation);
    return item;
}

/* A detached one whose file is about to be replaced is neither evicted nor indexed meanwhile. */
static void set_replaced(struct index *index, struct item *known, bool replaced)
{
    known->replaced = replaced;
    lru_update(index, known);
}

static enum reserved reserve(struct index *index, const struct reserve *what, struct reservation **reservation,
                             struct victim **victims)
{
    struct item *known = item_known(index, &what->key, what->kind);
    if (item_found(index, &what->key, what->kind) != NULL) return RESERVED_PRESENT;
    if (item_writing(index, &what->key, what->kind) != NULL) return RESERVED_WRITING;
    if (known != NULL && known->state == ITEM_VICTIM) return RESERVED_WRITING;
    if (what->start > 0) {
        const struct space *space = space_find(index, what->identity);
        bool accepted = space != NULL && what->parent != NULL &&
                        item_accepts_child(item_of(what->parent), space, what->kind, what->start, what->end);
        if (!accepted) return RESERVED_ORPHAN;
    }
    if (what->size > index->budget) return RESERVED_NO_ROOM;
    struct reservation *opened = mem_alloc(sizeof *opened);
    struct item *item = opened->item = item_open(index, what);
    item_enter(index, item, ITEM_WRITING);
    index->bytes += what->size;
    lru_count(index, item);
    lru_space_use(index, item->space);
    index->n_reservations++;
    if (known != NULL) set_replaced(index, known, true);
    enum reserved result = evict_for(index, opened, what->over, victims);
    if (result == RESERVED) {
        *reservation = opened;
        return RESERVED;
    }
    if (known != NULL) set_replaced(index, known, false);
    item_close(index, reservation_end(index, opened));
    return result;
}

enum reserved index_reserve(struct index *index, const struct reserve *what, struct reservation **reservation,
                            struct victim **victims)
{
    assert(0 <= what->start && what->start <= what->end && what->end > 0);
    assert(what->tokens != NULL || what->start == what->end);
    *reservation = NULL;
    *victims = NULL;
    index_lock(index);
    assert(what->parent == NULL || (what->start > 0 && item_of(what->parent)->refs > 0));
    enum reserved result = reserve(index, what, reservation, victims);
    index_unlock(index);
    return result;
}

/* ---- Publishing ---- */

struct entry *index_publish(struct index *index, struct reservation *reservation, uint64_t size, void *user,
                            int64_t now_ms)
{
    assert(reservation->item != NULL && size <= reservation->item->entry.size);
    index_lock(index);
    struct item *item = reservation_end(index, reservation);
    struct item *known = item_known(index, &item->entry.key, item->entry.kind);
    if (known != NULL) {
        index->bytes -= known->entry.size;
        lru_uncount(index, known);
        item_close(index, known);
    }
    item->entry.size = size;
    index->bytes += size;
    index->written += size;
    lru_count(index, item);
    item->used = lru_stamp(index, now_ms);
    item = item_attach(index, item, item->entry.start > 0 ? &item->entry.parent->key : NULL);
    struct entry *entry = item == NULL ? NULL : item_pin(index, item);
    if (entry != NULL) {
        entry->user = user;
        attach_below(index, item);
    }
    index_unlock(index);
    return entry;
}

void index_cancel(struct index *index, struct reservation *reservation)
{
    assert(reservation->item != NULL);
    index_lock(index);
    struct item *item = reservation_end(index, reservation);
    struct item *known = item_known(index, &item->entry.key, item->entry.kind);
    item_close(index, item);
    if (known != NULL) {
        set_replaced(index, known, false);
        if (known->state == ITEM_DETACHED) item_attach_all(index, known, NULL);
    }
    index_unlock(index);
}

/* ---- What an earlier process left ---- */

static bool is_sound(const struct slab_head *head)
{
    bool empty = head->start == head->end;
    return head->start >= 0 && head->start <= head->end && head->end > 0 && !(empty && head->kind == SLAB_ROWS) &&
           head->tokens.len == (size_t)(head->end - head->start);
}

bool index_adopt(struct index *index, const struct slab_head *head, uint64_t size, int64_t now_ms)
{
    if (!is_sound(head)) return false;
    const struct reserve what = {.identity = &head->identity,
                                 .kind = head->kind,
                                 .key = head->key,
                                 .tokens = head->tokens.v,
                                 .start = head->start,
                                 .end = head->end,
                                 .size = size};
    index_lock(index);
    bool adopted = item_in(index, &head->key, head->kind, ~0u) == NULL;
    if (adopted) {
        struct item *item = item_open(index, &what);
        item->hits = head->hits;
        item->reused = head->hits > 0;
        item->used = lru_stamp_of_adopted(head->used_ms, now_ms);
        index->bytes += size;
        lru_count(index, item);
        item_attach_all(index, item, &head->parent);
    }
    index_unlock(index);
    return adopted;
}

/* ---- Victims ---- */

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Its slab was deleted, or is kept after all: the reservation that waited for its bytes counts them itself from now on.
 */
static struct item *settle(struct index *index, struct removal *removal)
{
    struct reservation *reservation = removal->reservation;
    struct item *item = removal->item;
    free(removal);
    assert(item->state == ITEM_VICTIM);
    index->victim_bytes -= item->entry.size;
    if (reservation == NULL) return item;
    uint64_t part = reservation->item == NULL ? 0 : min_u64(item->entry.size, reservation->owed);
    index->bytes += part;
    index->victim_bytes += part;
    reservation->owed -= part;
    if (--reservation->n_victims == 0 && reservation->item == NULL) free(reservation);
    return item;
}

void index_deleted(struct index *index, struct victim *victim)
{
    index_lock(index);
    struct item *item = settle(index, removal_of(victim));
    index->bytes -= item->entry.size;
    item_close(index, item);
    index_unlock(index);
}

void index_reinstate(struct index *index, struct victim *victim, bool stuck)
{
    index_lock(index);
    struct item *item = settle(index, removal_of(victim));
    lru_count(index, item);
    if (stuck) item->used = lru_stamp(index, 0);
    item_attach_all(index, item, NULL);
    index_unlock(index);
}

/* Evicts a small part of the budget at a time, and releases the mutex in between. */
struct victim *index_trim(struct index *index)
{
    enum { STEPS = 1024 };
    struct victim *first = NULL, **end = &first;
    uint64_t need, bytes;
    do {
        while (*end != NULL) end = &(*end)->next;
        index_lock(index);
        need = excess(index->bytes - index->victim_bytes, index->budget);
        bytes = lru_evict(index, min_u64(need, index->budget / STEPS + 1), NULL, end);
        index->evictions += count_victims(*end);
        index_unlock(index);
    } while (bytes > 0 && bytes < need);
    return first;
}

/* ---- Damaged and unreadable slabs ---- */

/* Makes a victim of the item without its descendants. NULL: it has left already, or is about to be replaced. */
static struct victim *drop(struct index *index, struct item *item)
{
    item_ref(index, item);
    detach_below(index, item);
    bool leaves = item->state == ITEM_FOUND || (item_is_detached(item) && !item->replaced);
    struct victim *victim = leaves ? lru_make_victim(index, item, NULL) : NULL;
    item_unref(index, item);
    return victim;
}

struct victim *index_drop(struct index *index, struct entry *entry)
{
    index_lock(index);
    struct victim *victim = drop(index, item_of(entry));
    index_unlock(index);
    return victim;
}

struct victim *index_drop_named(struct index *index, const struct slab_key *key, enum slab_kind kind)
{
    index_lock(index);
    struct item *item = item_found(index, key, kind);
    if (item == NULL) item = item_known(index, key, kind);
    struct victim *victim = item == NULL ? NULL : drop(index, item);
    index_unlock(index);
    return victim;
}

enum { MOST_DOUBLINGS = 12 };

void index_mark_unreadable(struct index *index, struct entry *entry, int64_t now)
{
    index_lock(index);
    struct item *item = item_of(entry);
    assert(item->refs > 0);
    detach_below(index, item);
    if (item->state == ITEM_FOUND || (item->state == ITEM_DETACHED && !item->replaced)) {
        item_take(index, item, ITEM_UNREADABLE);
        if (item->failures < UINT8_MAX) item->failures++;
        int doublings = item->failures - 1 < MOST_DOUBLINGS ? item->failures - 1 : MOST_DOUBLINGS;
        item->retry_at =
            now + (int64_t)min_u64((uint64_t)clock_from_ms(1000) << doublings, (uint64_t)clock_from_ms(3600 * 1000));
        heap_add(&index->unreadable, &item->retry);
    }
    index_unlock(index);
}

static bool retried_before(const struct heap_link *a, const struct heap_link *b)
{
    return container_of(const struct item, retry, a)->retry_at < container_of(const struct item, retry, b)->retry_at;
}

int64_t index_retry_unreadable(struct index *index, int64_t now)
{
    int64_t next = INT64_MAX;
    index_lock(index);
    for (struct heap_link *first; (first = heap_first(&index->unreadable)) != NULL;) {
        struct item *item = container_of(struct item, retry, first);
        next = item->retry_at;
        if (next > now) break;
        next = INT64_MAX;
        item_enter(index, item, ITEM_DETACHED);
        if (!item->replaced) item_attach_all(index, item, NULL);
    }
    index_unlock(index);
    return next;
}

/* All are found before the first one goes, since one may wait for another. */
struct victim *index_drop_detached(struct index *index)
{
    struct victim *victims = NULL, **end = &victims;
    struct item **found = NULL;
    size_t n = 0;
    index_lock(index);
    found = mem_alloc((index->n_states[ITEM_DETACHED] + 1) * sizeof(struct item *));
    const struct hash_link *link;
    for (size_t bucket = 0; (link = hash_any(&index->items, &bucket)) != NULL; bucket++) {
        for (; link != NULL; link = link->next) {
            struct item *item = container_of(struct item, link, link);
            if (item->state == ITEM_DETACHED && !item->replaced && item->refs == 0 &&
                !item_awaits_ancestor(index, item))
                found[n++] = item;
        }
    }
    for (size_t i = 0; i < n; i++) {
        *end = lru_make_victim(index, found[i], NULL);
        end = &(*end)->next;
    }
    index_unlock(index);
    free(found);
    return victims;
}

/* ---- Queries ---- */

void index_pin(struct index *index, struct entry *entry)
{
    index_lock(index);
    assert(item_of(entry)->refs > 0);
    item_pin(index, item_of(entry));
    index_unlock(index);
}

void index_unpin(struct index *index, struct entry *entry)
{
    index_lock(index);
    item_unpin(index, item_of(entry));
    index_unlock(index);
}

/* One that is gone may be back as another item. */
bool index_matches(struct index *index, const struct entry *entry, const struct slab_head *head)
{
    if (!is_sound(head) || head->kind != entry->kind || !slab_key_equal(&head->key, &entry->key)) return false;
    index_lock(index);
    const struct item *item = item_of(entry);
    assert(item->refs > 0);
    if (item->state == ITEM_GONE) item = item_found(index, &entry->key, entry->kind);
    bool same = item != NULL && head->start == item->entry.start && head->end == item->entry.end &&
                identity_equal(&item->space->identity, &head->identity);
    if (same && item->state == ITEM_FOUND)
        same = radix_matches(item->node, head->start, head->tokens.v);
    else if (same)
        same = packed_common(&item->tokens, 0, head->tokens.v, item->tokens.len) == item->tokens.len;
    index_unlock(index);
    return same;
}

bool index_has_left(struct index *index, const struct entry *entry)
{
    index_lock(index);
    assert(item_of(entry)->refs > 0);
    bool left = item_of(entry)->state == ITEM_GONE && item_found(index, &entry->key, entry->kind) == NULL;
    index_unlock(index);
    return left;
}

enum index_has index_has(struct index *index, const struct slab_key *key)
{
    bool writing = false, found = false;
    index_lock(index);
    for (enum slab_kind kind = SLAB_ROWS; kind <= SLAB_STATE; kind++) {
        writing = writing || item_writing(index, key, kind) != NULL;
        found = found || item_found(index, key, kind) != NULL;
    }
    index_unlock(index);
    return writing ? INDEX_WRITING : found ? INDEX_THERE : INDEX_ABSENT;
}

void index_set_foreign(struct index *index, uint64_t bytes)
{
    index_lock(index);
    index->budget = index->quota > bytes ? index->quota - bytes : 0;
    index_unlock(index);
}

struct index_usage index_usage(struct index *index)
{
    index_lock(index);
    struct index_usage usage = {.bytes = index->bytes,
                                .budget = index->budget,
                                .evictions = index->evictions,
                                .entries = index->n_states[ITEM_FOUND],
                                .detached = index->n_states[ITEM_DETACHED] + index->n_states[ITEM_UNREADABLE],
                                .reservations = index->n_reservations,
                                .pins = index->n_pins};
    index_unlock(index);
    return usage;
}

void index_each(struct index *index, void (*each)(void *ud, const struct entry *entry, const struct identity *identity),
                void *ud)
{
    index_lock(index);
    const struct hash_link *link;
    for (size_t bucket = 0; (link = hash_any(&index->items, &bucket)) != NULL; bucket++) {
        for (; link != NULL; link = link->next) {
            const struct item *item = container_of(const struct item, link, link);
            if (item->state == ITEM_FOUND) each(ud, &item->entry, &item->space->identity);
        }
    }
    index_unlock(index);
}

void index_copy_tokens(const struct entry *entry, int32_t *tokens)
{
    assert(item_of(entry)->state == ITEM_FOUND);
    radix_copy_tokens(item_of(entry)->node, 0, tokens);
}

void index_each_detached(struct index *index, void (*each)(void *ud, const struct slab_key *key, enum slab_kind kind),
                         void *ud)
{
    index_lock(index);
    const struct hash_link *link;
    for (size_t bucket = 0; (link = hash_any(&index->items, &bucket)) != NULL; bucket++) {
        for (; link != NULL; link = link->next) {
            const struct item *item = container_of(const struct item, link, link);
            if (item_is_detached(item)) each(ud, &item->entry.key, item->entry.kind);
        }
    }
    index_unlock(index);
}

/* ---- Opening and closing ---- */

struct index *index_open(int32_t stride, uint64_t budget, void (*free_user)(void *user))
{
    assert(stride > 0);
    struct index *index = mem_alloc(sizeof *index);
    index->stride = stride;
    index->quota = index->budget = budget;
    index->free_user = free_user;
    index->unreadable.before = retried_before;
    /* The mutex is held for about a microsecond: a thread that finds it taken spins, since to sleep and be woken would
     * make a lookup a hundred times as long. */
    os_mutex_init_brief(&index->mutex);
    return index;
}

void index_close(struct index *index)
{
    if (index == NULL) return;
    index_lock(index);
    assert(index->n_pins == 0);
    items_close(index);
    index_unlock(index);
    hash_release(&index->items);
    hash_release(&index->orphans);
    hash_release(&index->spaces);
    hash_release(&index->radix.edges);
    heap_release(&index->unreadable);
    tokens_release(&index->scratch);
    pthread_mutex_destroy(&index->mutex);
    free(index);
}
