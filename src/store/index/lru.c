/* The eviction order: segmented LRU, with a share of the budget for each identity.
 *
 * Only leaves that nobody uses may be evicted, the least recently used first. An entry counts as used when it or a
 * descendant was: an evicted leaf hands its time of last use up to its parent, so that a use costs one move in a heap,
 * however deep the entry lies.
 *
 * Most of what is stored is never asked for again. An entry is fresh until its first use after it was stored, and
 * fresh entries evict reused ones only while they hold less than half of the budget; beyond that they evict each other,
 * so that one prompt of any length that comes once leaves the reused half as it was. bench/evict.c compares this policy
 * with others.
 *
 * An identity is active if it was used since a whole budget's worth of bytes was written. Active identities have equal
 * shares of the budget; inactive ones have none. Victims come from inactive identities first, then from the active one
 * that is most above its share, then from the identity that asks for room: an active one loses to others only what it
 * holds above its share.
 *
 * What is kept by order (kept.c) has references, so it is never chosen; and it counts for no identity, as if the budget
 * were smaller by that.
 *
 * Runs under the index's mutex. Calls indexed.c to remove what it evicts (see index_parts.h). */
#include "base/memory.h"
#include "store/index/index_parts.h"

#include <stdlib.h>

/* ---- Candidates ---- */

static struct candidate *candidate_of(const struct heap_link *heap_link)
{
    return (struct candidate *)(void *)heap_link;
}

static struct indexed *indexed_of_candidate(const struct candidate *candidate)
{
    return container_of(struct indexed, candidate, candidate);
}

static struct record *record_of_candidate(const struct candidate *candidate)
{
    return container_of(struct record, candidate, candidate);
}

static int32_t candidate_end(const struct candidate *candidate)
{
    return candidate->is_record ? record_of_candidate(candidate)->end : indexed_of_candidate(candidate)->entry.end;
}

static uint64_t candidate_size(const struct candidate *candidate)
{
    return candidate->is_record ? record_of_candidate(candidate)->size : indexed_of_candidate(candidate)->entry.size;
}

static struct space *candidate_space(const struct candidate *candidate)
{
    return candidate->is_record ? record_of_candidate(candidate)->space : indexed_of_candidate(candidate)->space;
}

static struct indexed *candidate_parent(const struct candidate *candidate)
{
    return candidate->is_record ? NULL : indexed_of(indexed_of_candidate(candidate)->entry.parent);
}

/* Entries of a detached chain may have one time of use: then the one with the larger end is evicted first, so that
 * children are evicted before parents. */
static bool used_before(const struct heap_link *a, const struct heap_link *b)
{
    const struct candidate *one = candidate_of(a), *other = candidate_of(b);
    return one->used != other->used ? one->used < other->used : candidate_end(one) > candidate_end(other);
}

static void set_evictable(struct index *index, struct candidate *candidate, bool evictable)
{
    index_require_held(index);
    if (evictable == (candidate->heap_link.at != 0)) return;
    struct space *space = candidate_space(candidate);
    struct heap *heap = candidate->reused ? &space->reused : &space->fresh;
    if (evictable)
        heap_add(heap, &candidate->heap_link);
    else
        heap_remove(heap, &candidate->heap_link);
}

void lru_update_indexed(struct index *index, struct indexed *indexed)
{
    set_evictable(index, &indexed->candidate, indexed->there && indexed->refs == 1);
}

void lru_update_record(struct index *index, struct record *record)
{
    set_evictable(index, &record->candidate,
                  record->missing_parent != NULL && record->pinned == NULL && !record->replaced);
}

/* ---- Identities ---- */

static void spaces_append(struct spaces *list, struct space *space)
{
    space->next = NULL;
    space->prev = list->last;
    *(space->prev != NULL ? &space->prev->next : &list->first) = space;
    list->last = space;
}

static void spaces_remove(struct spaces *list, struct space *space)
{
    *(space->next != NULL ? &space->next->prev : &list->last) = space->prev;
    *(space->prev != NULL ? &space->prev->next : &list->first) = space->next;
}

static void space_unlist(struct index *index, struct space *space)
{
    spaces_remove(space->active ? &index->active : &index->inactive, space);
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

static void deactivate_idle(struct index *index)
{
    for (struct space *space; (space = index->active.first) != NULL;) {
        if (index->written - space->seen <= index->budget) break;
        space_unlist(index, space);
        space->active = false;
        spaces_append(&index->inactive, space);
    }
}

void lru_space_close(struct index *index, struct space *space)
{
    space_unlist(index, space);
    heap_release(&space->fresh);
    heap_release(&space->reused);
}

static void count_bytes(struct index *index, struct candidate *candidate)
{
    if (candidate->n_kept > 0) return;
    struct space *space = candidate_space(candidate);
    uint64_t size = candidate_size(candidate);
    space->bytes += size;
    if (candidate->reused) return;
    space->fresh_bytes += size;
    index->fresh_bytes += size;
}

static void uncount_bytes(struct index *index, struct candidate *candidate)
{
    if (candidate->n_kept > 0) return;
    struct space *space = candidate_space(candidate);
    uint64_t size = candidate_size(candidate);
    space->bytes -= size;
    if (candidate->reused) return;
    space->fresh_bytes -= size;
    index->fresh_bytes -= size;
}

void lru_count(struct index *index, struct record *record)
{
    index_require_held(index);
    count_bytes(index, &record->candidate);
}

void lru_uncount(struct index *index, struct record *record)
{
    index_require_held(index);
    uncount_bytes(index, &record->candidate);
}

void lru_keep(struct index *index, struct indexed *indexed)
{
    index_require_held(index);
    uncount_bytes(index, &indexed->candidate);
    if (indexed->candidate.n_kept++ == 0) index->kept_bytes += indexed->entry.size;
}

void lru_unkeep(struct index *index, struct indexed *indexed, uint32_t n)
{
    index_require_held(index);
    indexed->candidate.n_kept -= n;
    if (indexed->candidate.n_kept > 0) return;
    index->kept_bytes -= indexed->entry.size;
    count_bytes(index, &indexed->candidate);
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

static void set_reused(struct index *index, struct candidate *candidate)
{
    bool evictable = candidate->heap_link.at != 0;
    set_evictable(index, candidate, false);
    uncount_bytes(index, candidate);
    candidate->reused = true;
    count_bytes(index, candidate);
    set_evictable(index, candidate, evictable);
}

/* Stops at the first ancestor that is marked already: all walks together visit each stored entry once. */
void lru_mark_reused(struct index *index, struct indexed *indexed)
{
    for (; indexed != NULL && indexed->there && !indexed->candidate.reused; indexed = indexed_of(indexed->entry.parent))
        set_reused(index, &indexed->candidate);
}

static void use(struct index *index, struct candidate *candidate, int64_t now_ms)
{
    bool evictable = candidate->heap_link.at != 0;
    set_evictable(index, candidate, false);
    candidate->used = lru_stamp(index, now_ms);
    set_evictable(index, candidate, evictable);
    lru_space_use(index, candidate_space(candidate));
}

void lru_use(struct index *index, struct indexed *indexed, int64_t now_ms)
{
    use(index, &indexed->candidate, now_ms);
    lru_mark_reused(index, indexed);
}

static void use_record(struct index *index, struct record *record, const struct candidate *as, int64_t now_ms)
{
    record->candidate.hits = as->hits;
    use(index, &record->candidate, now_ms);
    if (!record->candidate.reused) set_reused(index, &record->candidate);
}

uint32_t index_touch(struct index *index, struct entry *entry, int64_t now_ms)
{
    struct indexed *indexed = indexed_of(entry);
    index_lock(index);
    uint32_t hits = ++indexed->candidate.hits;
    if (indexed->there) lru_use(index, indexed, now_ms);
    if (indexed->record != NULL && indexed->record->missing_parent != NULL)
        use_record(index, indexed->record, &indexed->candidate, now_ms);
    index_unlock(index);
    return hits;
}

void index_mark_readable(struct index *index, struct entry *entry)
{
    struct indexed *indexed = indexed_of(entry);
    index_lock(index);
    indexed->candidate.failures = 0;
    if (indexed->record != NULL) indexed->record->candidate.failures = 0;
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

static uint64_t share(const struct index *index, const struct space *space)
{
    return space->active ? share_of_active(index) : 0;
}

/* On whose behalf something is evicted. Fresh entries are kept from evicting reused ones: those of their own identity
 * once they hold half of its share, those of other identities once all fresh entries together hold half of the budget,
 * so that new identities do not get around the limit. */
struct requester {
    const struct space *space; /* NULL: no reservation, the budget is exceeded */
    bool for_any;              /* no entry is protected */
};

static bool may_evict_reused(const struct index *index, const struct space *space, struct requester requester)
{
    if (requester.for_any) return true;
    if (space == requester.space) return space->fresh_bytes <= share(index, space) / 2;
    return index->fresh_bytes <= shared_budget(index) / 2;
}

static struct candidate *next_victim_of(const struct index *index, const struct space *space,
                                        struct requester requester)
{
    struct heap_link *fresh = heap_first(&space->fresh), *reused = NULL;
    if (may_evict_reused(index, space, requester)) reused = heap_first(&space->reused);
    bool many = space->fresh_bytes > share(index, space) / 2;
    bool first_is_fresh = fresh != NULL && (reused == NULL || many || !used_before(reused, fresh));
    struct heap_link *first = first_is_fresh ? fresh : reused;
    return first == NULL ? NULL : candidate_of(first);
}

/* The next victim of the active identity that holds most, and more than `least` bytes. */
static struct candidate *next_victim_of_largest(const struct index *index, struct requester requester, uint64_t least)
{
    struct candidate *next = NULL;
    for (const struct space *space = index->active.first; space != NULL; space = space->next) {
        if (space->bytes <= least) continue;
        struct candidate *candidate = next_victim_of(index, space, requester);
        if (candidate == NULL) continue;
        next = candidate;
        least = space->bytes;
    }
    return next;
}

/* Inactive identities give first, then those above their share, then the requester itself. A requester below its share
 * also gets fresh entries of others that are below theirs: it may be that all other entries are reused ones of
 * identities that are not active any more. */
static struct candidate *next_fair_victim(const struct index *index, struct requester requester)
{
    uint64_t fair = share_of_active(index);
    struct candidate *next = NULL;
    for (const struct space *space = index->inactive.first; space != NULL && next == NULL; space = space->next)
        next = next_victim_of(index, space, requester);
    if (next == NULL) next = next_victim_of_largest(index, requester, requester.for_any ? 0 : fair);
    if (next != NULL || requester.space == NULL) return next;
    next = next_victim_of(index, requester.space, requester);
    if (next != NULL || requester.space->bytes > fair) return next;
    return index->fresh_bytes > shared_budget(index) / 2 ? next_victim_of_largest(index, requester, 0) : NULL;
}

/* What exceeds the budget is evicted even where every entry is protected. */
static struct candidate *next_victim(const struct index *index, const struct space *space)
{
    struct candidate *next = next_fair_victim(index, (struct requester){.space = space});
    if (next == NULL && space == NULL) next = next_fair_victim(index, (struct requester){.for_any = true});
    return next;
}

/* ---- Choosing ---- */

/* Choosing and evicting are two steps, so that a reservation that cannot be met evicts nothing. A chosen candidate has
 * left its heap and given back its reference to its parent, so that the parent may be chosen next. */
struct choices {
    struct candidate **v;
    size_t n, cap;
    uint64_t bytes;
};

static void choose_victim(struct index *index, struct choices *choices, struct candidate *candidate)
{
    struct indexed *parent = candidate_parent(candidate);
    if (choices->n == choices->cap) {
        choices->cap = choices->cap == 0 ? 16 : 2 * choices->cap;
        choices->v = mem_grow(choices->v, choices->cap, sizeof(struct candidate *));
    }
    choices->v[choices->n++] = candidate;
    choices->bytes += candidate_size(candidate);
    set_evictable(index, candidate, false);
    uncount_bytes(index, candidate);
    if (parent == NULL) return;
    if (parent->candidate.used < candidate->used) parent->candidate.used = candidate->used;
    parent->refs--;
    lru_update_indexed(index, parent);
}

static struct choices choose_victims(struct index *index, uint64_t need, const struct space *space)
{
    struct choices choices = {0};
    deactivate_idle(index);
    for (struct candidate *next; choices.bytes < need && (next = next_victim(index, space)) != NULL;)
        choose_victim(index, &choices, next);
    return choices;
}

static void unchoose_all(struct index *index, struct choices *choices)
{
    while (choices->n > 0) {
        struct candidate *candidate = choices->v[--choices->n];
        struct indexed *parent = candidate_parent(candidate);
        count_bytes(index, candidate);
        set_evictable(index, candidate, true);
        if (parent == NULL) continue;
        parent->refs++;
        lru_update_indexed(index, parent);
    }
    free(choices->v);
}

/* ---- Evicting ---- */

struct victim *lru_make_victim(struct index *index, struct record *record)
{
    index_require_held(index);
    uncount_bytes(index, &record->candidate);
    record_register(index, record);
    record->state = RECORD_VICTIM;
    index->victim_bytes += record->size;
    return &record->victim;
}

static struct victim *evict_one(struct index *index, struct candidate *candidate, struct reservation *reservation)
{
    struct indexed *parent = candidate_parent(candidate);
    count_bytes(index, candidate);
    struct record *record;
    if (candidate->is_record) {
        record = record_of_candidate(candidate);
        record_undetach(index, record);
    } else {
        if (parent != NULL) parent->refs++;
        record = indexed_remove(index, indexed_of_candidate(candidate));
    }
    record->reservation = reservation;
    if (reservation != NULL) reservation->n_victims++;
    return lru_make_victim(index, record);
}

uint64_t lru_evict(struct index *index, uint64_t need, struct reservation *reservation, struct victim **first)
{
    struct choices choices = choose_victims(index, need, reservation == NULL ? NULL : reservation->record->space);
    uint64_t bytes = choices.bytes;
    if (reservation != NULL && bytes < need) {
        unchoose_all(index, &choices);
        return 0;
    }
    struct victim **end = first;
    for (size_t i = 0; i < choices.n; i++) {
        *end = evict_one(index, choices.v[i], reservation);
        end = &(*end)->next;
    }
    free(choices.v);
    return bytes;
}

bool lru_could_evict(struct index *index, uint64_t need, const struct reservation *reservation)
{
    struct choices choices = choose_victims(index, need, reservation == NULL ? NULL : reservation->record->space);
    bool could = choices.bytes >= need;
    unchoose_all(index, &choices);
    return could;
}
