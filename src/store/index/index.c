/* The operations of an index that change it from outside: reserve and publish, adopt what an earlier process left, drop
 * what is damaged, hide what cannot be read for now. Each takes the mutex itself. */
#include "store/index/index.h"

#include "base/clock.h"
#include "base/memory.h"
#include "store/index/index_parts.h"

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
             size = reservation->record->size;
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

static struct reservation *reservation_open(struct index *index, const struct reserve *what)
{
    struct reservation *reservation = mem_alloc(sizeof *reservation);
    struct record *record = record_open(index, &what->key, what->kind, what->identity);
    record->state = RECORD_WRITING;
    record_register(index, record);
    record->start = what->start;
    record->end = what->end;
    record->size = what->size;
    if (what->start > 0) {
        record->parent = what->parent->key;
        reservation->parent = indexed_of(what->parent);
        indexed_ref(index, reservation->parent);
    }
    record->tokens = packed_of(what->tokens, (size_t)(what->end - what->start));
    reservation->record = record;
    index->bytes += what->size;
    lru_count(index, record);
    lru_space_use(index, record->space);
    index->n_reservations++;
    return reservation;
}

/* Returns the record, which the caller owns. */
static struct record *reservation_end(struct index *index, struct reservation *reservation)
{
    struct record *record = reservation->record;
    reservation->record = NULL;
    lru_uncount(index, record);
    index->bytes -= record->size - reservation->owed;
    index->victim_bytes += reservation->owed;
    index->n_reservations--;
    if (reservation->parent != NULL) indexed_unref(index, reservation->parent);
    if (reservation->n_victims == 0) free(reservation);
    return record;
}

/* A detached record whose file is about to be replaced is neither evicted nor indexed meanwhile. */
static void set_replaced(struct index *index, struct record *known, bool replaced)
{
    known->replaced = replaced;
    lru_update_record(index, known);
}

static bool is_orphan(const struct index *index, const struct reserve *what)
{
    if (what->start == 0) return false;
    const struct space *space = space_find(index, what->identity);
    return space == NULL || what->parent == NULL ||
           !indexed_accepts_child(indexed_of(what->parent), space, what->kind, what->start, what->end);
}

static enum reserved reserve(struct index *index, const struct reserve *what, struct reservation **reservation,
                             struct victim **victims)
{
    struct record *known = record_known(index, &what->key, what->kind);
    if (indexed_find(index, &what->key, what->kind) != NULL) return RESERVED_PRESENT;
    if (record_writing(index, &what->key, what->kind) != NULL) return RESERVED_WRITING;
    if (known != NULL && known->state == RECORD_VICTIM) return RESERVED_WRITING;
    if (is_orphan(index, what)) return RESERVED_ORPHAN;
    if (what->size > index->budget) return RESERVED_NO_ROOM;
    struct reservation *opened = reservation_open(index, what);
    if (known != NULL) set_replaced(index, known, true);
    enum reserved result = evict_for(index, opened, what->over, victims);
    if (result == RESERVED) {
        *reservation = opened;
        return RESERVED;
    }
    if (known != NULL) set_replaced(index, known, false);
    record_close(index, reservation_end(index, opened));
    return result;
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

/* ---- Publishing ---- */

static struct indexed *index_or_detach(struct index *index, struct record *record)
{
    struct indexed *indexed = record_index(index, record);
    if (indexed == NULL && record->missing_parent == NULL) record_detach(index, record);
    return indexed;
}

/* With its descendants. */
static void index_or_detach_all(struct index *index, struct record *record)
{
    struct indexed *indexed = index_or_detach(index, record);
    if (indexed != NULL) attach_below(index, indexed);
}

static void close_replaced(struct index *index, struct record *known)
{
    index->bytes -= known->size;
    lru_uncount(index, known);
    record_undetach(index, known);
    record_close(index, known);
}

struct entry *index_publish(struct index *index, struct reservation *reservation, uint64_t size, void *user,
                            int64_t now_ms)
{
    index_lock(index);
    struct record *record = reservation->record;
    struct record *known = record_known(index, &record->victim.key, record->victim.kind);
    if (known != NULL) close_replaced(index, known);
    reservation_end(index, reservation);
    record->size = size;
    index->bytes += size;
    index->written += size;
    lru_count(index, record);
    record->candidate.used = lru_stamp(index, now_ms);
    struct indexed *indexed = index_or_detach(index, record);
    struct entry *entry = indexed == NULL ? NULL : indexed_pin(index, indexed);
    if (entry != NULL) {
        entry->user = user;
        attach_below(index, indexed);
    }
    index_unlock(index);
    return entry;
}

void index_cancel(struct index *index, struct reservation *reservation)
{
    index_lock(index);
    struct record *record = reservation_end(index, reservation);
    struct record *known = record_known(index, &record->victim.key, record->victim.kind);
    record_close(index, record);
    if (known != NULL) {
        set_replaced(index, known, false);
        if (known->state == RECORD_DETACHED) index_or_detach_all(index, known);
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

static bool is_known(const struct index *index, const struct slab_key *key, enum slab_kind kind)
{
    return indexed_find(index, key, kind) != NULL || record_known(index, key, kind) != NULL ||
           record_writing(index, key, kind) != NULL;
}

static void adopt_record(struct index *index, const struct slab_head *head, uint64_t size, int64_t now_ms)
{
    struct record *record = record_open(index, &head->key, head->kind, &head->identity);
    record->parent = head->parent;
    record->start = head->start;
    record->end = head->end;
    record->size = size;
    record->tokens = packed_of(head->tokens.v, head->tokens.len);
    record->candidate.hits = head->hits;
    record->candidate.reused = head->hits > 0;
    record->candidate.used = lru_stamp_of_adopted(head->used_ms, now_ms);
    index->bytes += size;
    lru_count(index, record);
    index_or_detach_all(index, record);
}

bool index_adopt(struct index *index, const struct slab_head *head, uint64_t size, int64_t now_ms)
{
    if (!is_sound(head)) return false;
    index_lock(index);
    bool adopted = !is_known(index, &head->key, head->kind);
    if (adopted) adopt_record(index, head, size, now_ms);
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
static void settle_victim(struct index *index, struct record *record)
{
    struct reservation *reservation = record->reservation;
    index->victim_bytes -= record->size;
    record->reservation = NULL;
    if (reservation == NULL) return;
    uint64_t part = reservation->record == NULL ? 0 : min_u64(record->size, reservation->owed);
    index->bytes += part;
    index->victim_bytes += part;
    reservation->owed -= part;
    if (--reservation->n_victims == 0 && reservation->record == NULL) free(reservation);
}

void index_deleted(struct index *index, struct victim *victim)
{
    struct record *record = record_of(victim);
    index_lock(index);
    settle_victim(index, record);
    index->bytes -= record->size;
    record_close(index, record);
    index_unlock(index);
}

void index_reinstate(struct index *index, struct victim *victim, bool stuck)
{
    struct record *record = record_of(victim);
    index_lock(index);
    settle_victim(index, record);
    lru_count(index, record);
    if (stuck) record->candidate.used = lru_stamp(index, 0);
    victim->next = NULL;
    index_or_detach_all(index, record);
    index_unlock(index);
}

/* Evicts a small part of the budget at a time, and releases the mutex in between. */
static bool trim_some(struct index *index, struct victim **victims)
{
    enum { STEPS = 1024 };
    index_lock(index);
    uint64_t need = excess(index->bytes - index->victim_bytes, index->budget), most = index->budget / STEPS + 1;
    uint64_t bytes = lru_evict(index, min_u64(need, most), NULL, victims);
    index->evictions += count_victims(*victims);
    index_unlock(index);
    return bytes > 0 && bytes < need;
}

struct victim *index_trim(struct index *index)
{
    struct victim *first = NULL, **end = &first;
    while (trim_some(index, end))
        while (*end != NULL) end = &(*end)->next;
    return first;
}

/* ---- Damaged and unreadable slabs ---- */

/* Unlinks a leaf, indexed or detached, and returns its record, in no state. NULL: it has left for good. */
static struct record *unlink_entry(struct index *index, struct indexed *indexed)
{
    struct record *record = indexed->record;
    if (indexed->there) return indexed_remove(index, indexed);
    if (record == NULL || record->missing_parent == NULL || record->replaced) return NULL;
    record_undetach(index, record);
    return record;
}

struct victim *index_drop(struct index *index, struct entry *entry)
{
    index_lock(index);
    detach_below(index, indexed_of(entry));
    struct record *record = unlink_entry(index, indexed_of(entry));
    struct victim *victim = record == NULL ? NULL : lru_make_victim(index, record);
    index_unlock(index);
    return victim;
}

struct victim *index_drop_named(struct index *index, const struct slab_key *key, enum slab_kind kind)
{
    index_lock(index);
    struct indexed *indexed = indexed_find(index, key, kind);
    struct record *record = record_known(index, key, kind);
    if (indexed != NULL) {
        indexed_ref(index, indexed);
        detach_below(index, indexed);
        record = unlink_entry(index, indexed);
        indexed_unref(index, indexed);
    } else if (record != NULL && record->missing_parent != NULL && !record->replaced) {
        record_undetach(index, record);
    } else {
        record = NULL;
    }
    struct victim *victim = record == NULL ? NULL : lru_make_victim(index, record);
    index_unlock(index);
    return victim;
}

enum { MOST_DOUBLINGS = 12 };

static int64_t retry_after(uint8_t failures)
{
    int doublings = failures - 1 < MOST_DOUBLINGS ? failures - 1 : MOST_DOUBLINGS;
    return (int64_t)min_u64((uint64_t)clock_from_ms(1000) << doublings, (uint64_t)clock_from_ms(3600 * 1000));
}

void index_mark_unreadable(struct index *index, struct entry *entry, int64_t now)
{
    index_lock(index);
    detach_below(index, indexed_of(entry));
    const struct record *already = indexed_of(entry)->record;
    bool already_unreadable = already != NULL && already->state == RECORD_UNREADABLE;
    struct record *record = already_unreadable ? NULL : unlink_entry(index, indexed_of(entry));
    if (record != NULL) {
        record_detach(index, record);
        record->state = RECORD_UNREADABLE;
        if (record->candidate.failures < UINT8_MAX) record->candidate.failures++;
        record->retry_at = now + retry_after(record->candidate.failures);
        heap_add(&index->unreadable, &record->retry);
    }
    index_unlock(index);
}

static bool retried_before(const struct heap_link *a, const struct heap_link *b)
{
    return container_of(const struct record, retry, a)->retry_at <
           container_of(const struct record, retry, b)->retry_at;
}

int64_t index_retry_unreadable(struct index *index, int64_t now)
{
    int64_t next = INT64_MAX;
    index_lock(index);
    for (struct heap_link *first; (first = heap_first(&index->unreadable)) != NULL;) {
        struct record *record = container_of(struct record, retry, first);
        next = record->retry_at;
        if (next > now) break;
        next = INT64_MAX;
        heap_remove(&index->unreadable, first);
        record->state = RECORD_DETACHED;
        if (!record->replaced) index_or_detach_all(index, record);
    }
    index_unlock(index);
    return next;
}

struct victim *index_drop_detached(struct index *index)
{
    struct victim *victims = NULL, **end = &victims;
    index_lock(index);
    detached_mark_needed(index);
    struct hash_link *link;
    for (size_t bucket = 0; (link = hash_any(&index->records, &bucket)) != NULL; bucket++) {
        for (; link != NULL; link = link->next) {
            struct record *record = container_of(struct record, link, link);
            if (record->missing_parent == NULL || record->needed || record->pinned != NULL) continue;
            record_undetach(index, record);
            *end = lru_make_victim(index, record);
            end = &(*end)->next;
        }
    }
    index_unlock(index);
    return victims;
}

/* ---- Queries ---- */

void index_pin(struct index *index, struct entry *entry)
{
    index_lock(index);
    indexed_pin(index, indexed_of(entry));
    index_unlock(index);
}

void index_unpin(struct index *index, struct entry *entry)
{
    index_lock(index);
    indexed_unpin(index, indexed_of(entry));
    index_unlock(index);
}

/* Of an entry that is in the tree or has a record. */
static bool has_same_content(const struct indexed *indexed, const struct slab_head *head)
{
    const struct space *space = indexed->there ? indexed->space : indexed->record->space;
    const struct entry *entry = &indexed->entry;
    return head->start == entry->start && head->end == entry->end &&
           identity_equal(&space->identity, &head->identity) && indexed_has_tokens(indexed, head->tokens.v);
}

/* An entry that left the tree may be back as another struct indexed. */
bool index_matches(struct index *index, const struct entry *entry, const struct slab_head *head)
{
    if (!is_sound(head) || head->kind != entry->kind || !slab_key_equal(&head->key, &entry->key)) return false;
    index_lock(index);
    const struct indexed *indexed = indexed_of(entry);
    if (!indexed->there && indexed->record == NULL) indexed = indexed_find(index, &entry->key, entry->kind);
    bool same = indexed != NULL && has_same_content(indexed, head);
    index_unlock(index);
    return same;
}

bool index_has_left(struct index *index, const struct entry *entry)
{
    const struct indexed *indexed = indexed_of(entry);
    index_lock(index);
    bool left = !indexed->there && indexed->record == NULL && indexed_find(index, &entry->key, entry->kind) == NULL;
    index_unlock(index);
    return left;
}

enum index_has index_has(struct index *index, const struct slab_key *key)
{
    static const enum slab_kind kinds[] = {SLAB_ROWS, SLAB_STATE};
    enum index_has result = INDEX_ABSENT;
    index_lock(index);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && result != INDEX_WRITING; i++) {
        if (indexed_find(index, key, kinds[i]) != NULL) result = INDEX_THERE;
        if (record_writing(index, key, kinds[i]) != NULL) result = INDEX_WRITING;
    }
    index_unlock(index);
    return result;
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
                                .entries = index->indexed.n,
                                .detached = index->n_detached,
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
    for (size_t bucket = 0; (link = hash_any(&index->indexed, &bucket)) != NULL; bucket++) {
        for (; link != NULL; link = link->next) {
            const struct indexed *indexed = container_of(const struct indexed, link, link);
            each(ud, &indexed->entry, &indexed->space->identity);
        }
    }
    index_unlock(index);
}

void index_copy_tokens(const struct entry *entry, int32_t *tokens)
{
    radix_copy_tokens(indexed_of(entry)->node, 0, tokens);
}

void index_each_detached(struct index *index, void (*each)(void *ud, const struct slab_key *key, enum slab_kind kind),
                         void *ud)
{
    index_lock(index);
    const struct hash_link *link;
    for (size_t bucket = 0; (link = hash_any(&index->records, &bucket)) != NULL; bucket++) {
        for (; link != NULL; link = link->next) {
            const struct record *record = container_of(const struct record, link, link);
            if (record->missing_parent != NULL) each(ud, &record->victim.key, record->victim.kind);
        }
    }
    index_unlock(index);
}

/* ---- Opening and closing ---- */

/* The mutex is held for about a microsecond: a thread that finds it taken spins, since to sleep and be woken would make
 * a lookup a hundred times as long. */
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
    index->quota = index->budget = budget;
    index->free_user = free_user;
    index->unreadable.before = retried_before;
    init_mutex(&index->mutex);
    return index;
}

static void close_all(struct index *index)
{
    struct hash_link *link;
    index_lock(index);
    indexed_discard_all(index);
    for (size_t bucket = 0; (link = hash_any(&index->records, &bucket)) != NULL;) {
        struct record *record = container_of(struct record, link, link);
        if (record->missing_parent != NULL) record_undetach(index, record);
        record_close(index, record);
    }
    index_unlock(index);
}

void index_close(struct index *index)
{
    if (index == NULL) return;
    close_all(index);
    hash_release(&index->indexed);
    hash_release(&index->records);
    hash_release(&index->missing_parents);
    hash_release(&index->spaces);
    hash_release(&index->radix.edges);
    heap_release(&index->unreadable);
    tokens_release(&index->scratch);
    pthread_mutex_destroy(&index->mutex);
    free(index);
}
