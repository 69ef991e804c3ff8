/* What others do with an index: they reserve and publish, adopt, drop, ask. */
#include "store/index.h"

#include "base/clock.h"
#include "base/memory.h"
#include "store/node.h"

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
    return order_could_evict(index, need, NULL) ? RESERVED_NOT_ADMITTED : RESERVED_NO_ROOM;
}

/* What others still delete is nothing to rely on; index_trim() is called when it is gone. */
static enum reserved make_room(struct index *index, struct reservation *reservation, bool over, struct victim **victims)
{
    uint64_t need = excess(index->bytes - (over ? index->leaving : 0), index->budget);
    if (over) return order_could_evict(index, need, reservation) ? RESERVED : refusal(index, need);
    if (need == 0) return RESERVED;
    uint64_t bytes = order_evict(index, need, reservation, victims), size = reservation->record->size;
    if (bytes < need) return refusal(index, need);
    index->evictions += count_victims(*victims);
    reservation->owed = bytes < size ? bytes : size;
    index->bytes -= reservation->owed;
    index->leaving -= reservation->owed;
    return RESERVED;
}

static struct reservation *reservation_open(struct index *index, const struct reserve *what)
{
    struct reservation *reservation = mem_alloc(sizeof *reservation);
    struct record *record = record_open(index, &what->key, what->kind, what->identity);
    record->state = RECORD_WRITING;
    record_list(index, record);
    record->start = what->start;
    record->end = what->end;
    record->size = what->size;
    if (what->start > 0) {
        record->parent = what->parent->key;
        reservation->parent = node_of(what->parent);
        node_ref(index, reservation->parent);
    }
    record->tokens = packed_of(what->tokens, (size_t)(what->end - what->start));
    reservation->record = record;
    index->bytes += what->size;
    order_count(index, record);
    order_space_use(index, record->space);
    index->n_reservations++;
    return reservation;
}

/* The record is the caller's. */
static struct record *reservation_end(struct index *index, struct reservation *reservation)
{
    struct record *record = reservation->record;
    reservation->record = NULL;
    order_uncount(index, record);
    index->bytes -= record->size - reservation->owed;
    index->leaving += reservation->owed;
    index->n_reservations--;
    if (reservation->parent != NULL) node_unref(index, reservation->parent);
    if (reservation->n_victims == 0) free(reservation);
    return record;
}

/* What is detached under the same key and kind may not leave or appear as long as its file is about to be replaced. */
static void set_replaced(struct index *index, struct record *known, bool replaced)
{
    known->replaced = replaced;
    order_record(index, known);
}

static bool is_orphan(const struct index *index, const struct reserve *what)
{
    if (what->start == 0) return false;
    const struct space *space = space_find(index, what->identity);
    return space == NULL || what->parent == NULL ||
           !node_fits(node_of(what->parent), space, what->kind, what->start, what->end);
}

static enum reserved reserve(struct index *index, const struct reserve *what, struct reservation **reservation,
                             struct victim **victims)
{
    struct record *known = record_known(index, &what->key, what->kind);
    if (node_find(index, &what->key, what->kind) != NULL) return RESERVED_PRESENT;
    if (record_writing(index, &what->key, what->kind) != NULL) return RESERVED_WRITING;
    if (known != NULL && known->state == RECORD_LEAVING) return RESERVED_WRITING;
    if (is_orphan(index, what)) return RESERVED_ORPHAN;
    if (what->size > index->budget) return RESERVED_NO_ROOM;
    struct reservation *opened = reservation_open(index, what);
    if (known != NULL) set_replaced(index, known, true);
    enum reserved result = make_room(index, opened, what->over, victims);
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

static struct node *appear_or_detach(struct index *index, struct record *record)
{
    struct node *node = record_appear(index, record);
    if (node == NULL && record->awaited == NULL) record_detach(index, record);
    return node;
}

/* With all that hangs on it. */
static void attach_or_detach(struct index *index, struct record *record)
{
    struct node *node = appear_or_detach(index, record);
    if (node != NULL) attach_below(index, node);
}

static void forget_replaced(struct index *index, struct record *known)
{
    index->bytes -= known->size;
    order_uncount(index, known);
    record_take_out(index, known);
    record_close(index, known);
}

struct entry *index_publish(struct index *index, struct reservation *reservation, uint64_t size, void *user,
                            int64_t now_ms)
{
    index_lock(index);
    struct record *record = reservation->record;
    struct record *known = record_known(index, &record->victim.key, record->victim.kind);
    if (known != NULL) forget_replaced(index, known);
    reservation_end(index, reservation);
    record->size = size;
    index->bytes += size;
    index->written += size;
    order_count(index, record);
    record->candidate.used = order_stamp(index, now_ms);
    struct node *node = appear_or_detach(index, record);
    struct entry *entry = node == NULL ? NULL : node_lease(index, node);
    if (entry != NULL) {
        entry->user = user;
        attach_below(index, node);
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
        if (known->state == RECORD_DETACHED) attach_or_detach(index, known);
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
    return node_find(index, key, kind) != NULL || record_known(index, key, kind) != NULL ||
           record_writing(index, key, kind) != NULL;
}

static void adopt(struct index *index, const struct slab_head *head, uint64_t size, int64_t now_ms)
{
    struct record *record = record_open(index, &head->key, head->kind, &head->identity);
    record->parent = head->parent;
    record->start = head->start;
    record->end = head->end;
    record->size = size;
    record->tokens = packed_of(head->tokens.v, head->tokens.len);
    record->candidate.hits = head->hits;
    record->candidate.reused = head->hits > 0;
    record->candidate.used = order_adopted(head->used_ms, now_ms);
    index->bytes += size;
    order_count(index, record);
    attach_or_detach(index, record);
}

bool index_adopt(struct index *index, const struct slab_head *head, uint64_t size, int64_t now_ms)
{
    if (!is_sound(head)) return false;
    index_lock(index);
    bool adopted = !is_known(index, &head->key, head->kind);
    if (adopted) adopt(index, head, size, now_ms);
    index_unlock(index);
    return adopted;
}

/* ---- Victims ---- */

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* It does not leave any more, or has left: the reservation that waits for its bytes counts them itself. */
static void settle(struct index *index, struct record *record)
{
    struct reservation *room_for = record->room_for;
    index->leaving -= record->size;
    record->room_for = NULL;
    if (room_for == NULL) return;
    uint64_t part = room_for->record == NULL ? 0 : smaller(record->size, room_for->owed);
    index->bytes += part;
    index->leaving += part;
    room_for->owed -= part;
    if (--room_for->n_victims == 0 && room_for->record == NULL) free(room_for);
}

void index_deleted(struct index *index, struct victim *victim)
{
    struct record *record = record_of(victim);
    index_lock(index);
    settle(index, record);
    index->bytes -= record->size;
    record_close(index, record);
    index_unlock(index);
}

void index_spare(struct index *index, struct victim *victim, bool stuck)
{
    struct record *record = record_of(victim);
    index_lock(index);
    settle(index, record);
    order_count(index, record);
    if (stuck) record->candidate.used = order_stamp(index, 0);
    victim->next = NULL;
    attach_or_detach(index, record);
    index_unlock(index);
}

/* A small part of the budget at a time: others have the mutex in between. */
static bool trim_some(struct index *index, struct victim **victims)
{
    enum { STEPS = 1024 };
    index_lock(index);
    uint64_t need = excess(index->bytes - index->leaving, index->budget), most = index->budget / STEPS + 1;
    uint64_t bytes = order_evict(index, smaller(need, most), NULL, victims);
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

/* ---- Damage, and what cannot be read for now ---- */

/* The record that an entry is from now on, in no state; NULL: it has left for good. Nothing hangs on it any more. */
static struct record *take_out(struct index *index, struct node *node)
{
    struct record *record = node->record;
    if (node->there) return node_leave(index, node);
    if (record == NULL || record->awaited == NULL || record->replaced) return NULL;
    record_take_out(index, record);
    return record;
}

struct victim *index_drop(struct index *index, struct entry *entry)
{
    index_lock(index);
    detach_below(index, node_of(entry));
    struct record *record = take_out(index, node_of(entry));
    struct victim *victim = record == NULL ? NULL : order_retire(index, record);
    index_unlock(index);
    return victim;
}

struct victim *index_drop_named(struct index *index, const struct slab_key *key, enum slab_kind kind)
{
    index_lock(index);
    struct node *node = node_find(index, key, kind);
    struct record *record = record_known(index, key, kind);
    if (node != NULL) {
        node_ref(index, node);
        detach_below(index, node);
        record = take_out(index, node);
        node_unref(index, node);
    } else if (record != NULL && record->awaited != NULL && !record->replaced) {
        record_take_out(index, record);
    } else {
        record = NULL;
    }
    struct victim *victim = record == NULL ? NULL : order_retire(index, record);
    index_unlock(index);
    return victim;
}

enum { MOST_DOUBLINGS = 12 };

static int64_t retry_after(uint8_t failures)
{
    int doublings = failures - 1 < MOST_DOUBLINGS ? failures - 1 : MOST_DOUBLINGS;
    return (int64_t)smaller((uint64_t)clock_from_ms(1000) << doublings, (uint64_t)clock_from_ms(3600 * 1000));
}

void index_set_aside(struct index *index, struct entry *entry, int64_t now)
{
    index_lock(index);
    detach_below(index, node_of(entry));
    const struct record *already = node_of(entry)->record;
    bool is_aside = already != NULL && already->state == RECORD_ASIDE;
    struct record *record = is_aside ? NULL : take_out(index, node_of(entry));
    if (record != NULL) {
        record_detach(index, record);
        record->state = RECORD_ASIDE;
        if (record->candidate.failures < UINT8_MAX) record->candidate.failures++;
        record->retry_at = now + retry_after(record->candidate.failures);
        heap_add(&index->aside, &record->retry);
    }
    index_unlock(index);
}

static bool retried_before(const struct heaped *a, const struct heaped *b)
{
    return container_of(const struct record, retry, a)->retry_at <
           container_of(const struct record, retry, b)->retry_at;
}

int64_t index_take_back(struct index *index, int64_t now)
{
    int64_t next = INT64_MAX;
    index_lock(index);
    for (struct heaped *first; (first = heap_first(&index->aside)) != NULL;) {
        struct record *record = container_of(struct record, retry, first);
        next = record->retry_at;
        if (next > now) break;
        next = INT64_MAX;
        heap_remove(&index->aside, first);
        record->state = RECORD_DETACHED;
        if (!record->replaced) attach_or_detach(index, record);
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
            if (record->awaited == NULL || record->needed || record->leased != NULL) continue;
            record_take_out(index, record);
            *end = order_retire(index, record);
            end = &(*end)->next;
        }
    }
    index_unlock(index);
    return victims;
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

/* Of the node, which is there or has a record. */
static bool stands_for(const struct node *node, const struct slab_head *head)
{
    const struct space *space = node->there ? node->space : node->record->space;
    const struct entry *entry = &node->entry;
    return head->start == entry->start && head->end == entry->end &&
           identity_equal(&space->identity, &head->identity) && node_has_tokens(node, head->tokens.v);
}

/* One that left may be there again, as another node. */
bool index_matches(struct index *index, const struct entry *entry, const struct slab_head *head)
{
    if (!is_sound(head) || head->kind != entry->kind || !slab_key_equal(&head->key, &entry->key)) return false;
    index_lock(index);
    const struct node *node = node_of(entry);
    if (!node->there && node->record == NULL) node = node_find(index, &entry->key, entry->kind);
    bool same = node != NULL && stands_for(node, head);
    index_unlock(index);
    return same;
}

enum index_has index_has(struct index *index, const struct slab_key *key)
{
    static const enum slab_kind kinds[] = {SLAB_ROWS, SLAB_STATE};
    enum index_has result = INDEX_ABSENT;
    index_lock(index);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && result != INDEX_WRITING; i++) {
        if (node_find(index, key, kinds[i]) != NULL) result = INDEX_THERE;
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
                                .entries = index->nodes.n,
                                .detached = index->n_detached,
                                .reservations = index->n_reservations,
                                .leases = index->n_leases};
    index_unlock(index);
    return usage;
}

void index_each(struct index *index, void (*each)(void *ud, const struct entry *entry, const struct identity *identity),
                void *ud)
{
    index_lock(index);
    const struct hash_link *link;
    for (size_t bucket = 0; (link = hash_any(&index->nodes, &bucket)) != NULL; bucket++) {
        for (; link != NULL; link = link->next) {
            const struct node *node = container_of(const struct node, link, link);
            each(ud, &node->entry, &node->space->identity);
        }
    }
    index_unlock(index);
}

void index_copy_tokens(const struct entry *entry, int32_t *tokens)
{
    radix_copy(node_of(entry)->place, 0, tokens);
}

void index_each_detached(struct index *index, void (*each)(void *ud, const struct slab_key *key, enum slab_kind kind),
                         void *ud)
{
    index_lock(index);
    const struct hash_link *link;
    for (size_t bucket = 0; (link = hash_any(&index->records, &bucket)) != NULL; bucket++) {
        for (; link != NULL; link = link->next) {
            const struct record *record = container_of(const struct record, link, link);
            if (record->awaited != NULL) each(ud, &record->victim.key, record->victim.kind);
        }
    }
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
    index->quota = index->budget = budget;
    index->free_user = free_user;
    index->aside.before = retried_before;
    init_mutex(&index->mutex);
    return index;
}

static void close_all(struct index *index)
{
    struct hash_link *link;
    index_lock(index);
    node_discard_all(index);
    for (size_t bucket = 0; (link = hash_any(&index->records, &bucket)) != NULL;) {
        struct record *record = container_of(struct record, link, link);
        if (record->awaited != NULL) record_take_out(index, record);
        record_close(index, record);
    }
    index_unlock(index);
}

void index_close(struct index *index)
{
    if (index == NULL) return;
    close_all(index);
    hash_release(&index->nodes);
    hash_release(&index->records);
    hash_release(&index->awaited);
    hash_release(&index->spaces);
    hash_release(&index->radix.edges);
    heap_release(&index->aside);
    tokens_release(&index->own);
    pthread_mutex_destroy(&index->mutex);
    free(index);
}
