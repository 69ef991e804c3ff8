/* Who is evicted: segmented LRU, and a share for each identity.
 *
 * Only leaves that nobody uses can be evicted, in the order of their last use. An entry was last used when it or
 * anything that hung on it was: a leaf that leaves hands its last use up, so that a use costs what it costs to move one
 * leaf, however long its chain is.
 *
 * Most of what is stored once is never asked for again. What was not is fresh, and fresh entries drive out what was
 * used again only as long as they have less than half of the budget; beyond that they drive out each other, so that a
 * prompt of any length that comes once leaves the better half as it was. bench/evict.c compares this with other
 * policies.
 *
 * An identity that was used since a budget's worth was written is active, and has an equal share of the budget. Others
 * take only what exceeds the share, first from whoever has most; those that are not active have none. */
#include "base/memory.h"
#include "store/node.h"

#include <stdlib.h>

/* ---- Candidates ---- */

static struct candidate *candidate_of(const struct heaped *heaped)
{
    return (struct candidate *)(void *)heaped;
}

static struct node *node_of_candidate(const struct candidate *candidate)
{
    return container_of(struct node, candidate, candidate);
}

static struct record *record_of_candidate(const struct candidate *candidate)
{
    return container_of(struct record, candidate, candidate);
}

static int32_t end_of(const struct candidate *candidate)
{
    return candidate->is_record ? record_of_candidate(candidate)->end : node_of_candidate(candidate)->entry.end;
}

static uint64_t size_of(const struct candidate *candidate)
{
    return candidate->is_record ? record_of_candidate(candidate)->size : node_of_candidate(candidate)->entry.size;
}

static struct space *space_of(const struct candidate *candidate)
{
    return candidate->is_record ? record_of_candidate(candidate)->space : node_of_candidate(candidate)->space;
}

static struct node *parent_of(const struct candidate *candidate)
{
    return candidate->is_record ? NULL : node_of(node_of_candidate(candidate)->entry.parent);
}

/* Of a detached chain that was used at once, the end goes first. */
static bool used_before(const struct heaped *a, const struct heaped *b)
{
    const struct candidate *one = candidate_of(a), *other = candidate_of(b);
    return one->used != other->used ? one->used < other->used : end_of(one) > end_of(other);
}

static void set_evictable(struct index *index, struct candidate *candidate, bool evictable)
{
    index_require_held(index);
    if (evictable == (candidate->heaped.at != 0)) return;
    struct space *space = space_of(candidate);
    struct heap *heap = candidate->reused ? &space->reused : &space->fresh;
    if (evictable)
        heap_add(heap, &candidate->heaped);
    else
        heap_remove(heap, &candidate->heaped);
}

void order_node(struct index *index, struct node *node)
{
    set_evictable(index, &node->candidate, node->there && node->refs == 1);
}

void order_record(struct index *index, struct record *record)
{
    set_evictable(index, &record->candidate, record->awaited != NULL && record->leased == NULL && !record->replaced);
}

/* ---- Identities ---- */

static void list_append(struct spaces *list, struct space *space)
{
    space->next = NULL;
    space->prev = list->last;
    *(space->prev != NULL ? &space->prev->next : &list->first) = space;
    list->last = space;
}

static void list_remove(struct spaces *list, struct space *space)
{
    *(space->next != NULL ? &space->next->prev : &list->last) = space->prev;
    *(space->prev != NULL ? &space->prev->next : &list->first) = space->next;
}

static void unlist(struct index *index, struct space *space)
{
    list_remove(space->active ? &index->active : &index->inactive, space);
    if (space->active) index->n_active--;
}

static void list_active(struct index *index, struct space *space)
{
    space->active = true;
    space->seen = index->written;
    list_append(&index->active, space);
    index->n_active++;
}

void order_space_open(struct index *index, struct space *space)
{
    space->fresh.before = space->reused.before = used_before;
    list_active(index, space);
}

void order_space_use(struct index *index, struct space *space)
{
    unlist(index, space);
    list_active(index, space);
}

static void retire_idle(struct index *index)
{
    for (struct space *space; (space = index->active.first) != NULL;) {
        if (index->written - space->seen <= index->budget) break;
        unlist(index, space);
        space->active = false;
        list_append(&index->inactive, space);
    }
}

void order_space_close(struct index *index, struct space *space)
{
    unlist(index, space);
    heap_release(&space->fresh);
    heap_release(&space->reused);
}

static void count(struct index *index, struct candidate *candidate)
{
    struct space *space = space_of(candidate);
    uint64_t size = size_of(candidate);
    space->bytes += size;
    if (candidate->reused) return;
    space->fresh_bytes += size;
    index->fresh_bytes += size;
}

static void uncount(struct index *index, struct candidate *candidate)
{
    struct space *space = space_of(candidate);
    uint64_t size = size_of(candidate);
    space->bytes -= size;
    if (candidate->reused) return;
    space->fresh_bytes -= size;
    index->fresh_bytes -= size;
}

void order_count(struct index *index, struct record *record)
{
    index_require_held(index);
    count(index, &record->candidate);
}

void order_uncount(struct index *index, struct record *record)
{
    index_require_held(index);
    uncount(index, &record->candidate);
}

/* ---- Uses ---- */

/* Milliseconds, with room behind each for uses at the same time, and for those of a clock that was set back. */
enum { STAMPS_A_MS = 1 << 20 };

int64_t order_stamp(struct index *index, int64_t now_ms)
{
    int64_t stamp = now_ms * STAMPS_A_MS;
    if (stamp <= index->last_stamp) stamp = index->last_stamp + 1;
    return index->last_stamp = stamp;
}

int64_t order_adopted(int64_t used_ms, int64_t now_ms)
{
    int64_t ms = used_ms < now_ms ? used_ms : now_ms;
    return ms > 0 ? ms * STAMPS_A_MS : 0;
}

static void set_reused(struct index *index, struct candidate *candidate)
{
    bool evictable = candidate->heaped.at != 0;
    set_evictable(index, candidate, false);
    uncount(index, candidate);
    candidate->reused = true;
    count(index, candidate);
    set_evictable(index, candidate, evictable);
}

/* Each entry becomes so once: all of these walks together are no longer than what was stored. */
void order_reused(struct index *index, struct node *node)
{
    for (; node != NULL && node->there && !node->candidate.reused; node = node_of(node->entry.parent))
        set_reused(index, &node->candidate);
}

static void use(struct index *index, struct candidate *candidate, int64_t now_ms)
{
    bool evictable = candidate->heaped.at != 0;
    set_evictable(index, candidate, false);
    candidate->used = order_stamp(index, now_ms);
    set_evictable(index, candidate, evictable);
    order_space_use(index, space_of(candidate));
}

void order_use(struct index *index, struct node *node, int64_t now_ms)
{
    use(index, &node->candidate, now_ms);
    order_reused(index, node);
}

static void use_record(struct index *index, struct record *record, const struct candidate *as, int64_t now_ms)
{
    record->candidate.hits = as->hits;
    use(index, &record->candidate, now_ms);
    if (!record->candidate.reused) set_reused(index, &record->candidate);
}

uint32_t index_touch(struct index *index, struct entry *entry, int64_t now_ms)
{
    struct node *node = node_of(entry);
    index_lock(index);
    uint32_t hits = ++node->candidate.hits;
    if (node->there) order_use(index, node, now_ms);
    if (node->record != NULL && node->record->awaited != NULL)
        use_record(index, node->record, &node->candidate, now_ms);
    index_unlock(index);
    return hits;
}

void index_was_read(struct index *index, struct entry *entry)
{
    struct node *node = node_of(entry);
    index_lock(index);
    node->candidate.failures = 0;
    if (node->record != NULL) node->record->candidate.failures = 0;
    index_unlock(index);
}

/* ---- Whose turn it is ---- */

static uint64_t share_of_active(const struct index *index)
{
    return index->n_active == 0 ? 0 : index->budget / index->n_active;
}

static uint64_t share(const struct index *index, const struct space *space)
{
    return space->active ? share_of_active(index) : 0;
}

/* Who asks, and what fresh entries are kept from driving out: their own identity's reused ones by what they have of its
 * share, those of others by what all fresh ones have of the budget, so that new identities do not get around it. */
struct asking {
    const struct space *space; /* NULL: nobody, the budget is exceeded */
    bool for_any;              /* nothing is kept from anybody */
};

static bool may_take_reused(const struct index *index, const struct space *space, struct asking asking)
{
    if (asking.for_any) return true;
    if (space == asking.space) return space->fresh_bytes <= share(index, space) / 2;
    return index->fresh_bytes <= index->budget / 2;
}

static struct candidate *next_of(const struct index *index, const struct space *space, struct asking asking)
{
    struct heaped *fresh = heap_first(&space->fresh), *reused = NULL;
    if (may_take_reused(index, space, asking)) reused = heap_first(&space->reused);
    bool many = space->fresh_bytes > share(index, space) / 2;
    bool first_is_fresh = fresh != NULL && (reused == NULL || many || !used_before(reused, fresh));
    struct heaped *first = first_is_fresh ? fresh : reused;
    return first == NULL ? NULL : candidate_of(first);
}

/* Of the active identity that has most, and more than `least`. */
static struct candidate *next_of_largest(const struct index *index, struct asking asking, uint64_t least)
{
    struct candidate *next = NULL;
    for (const struct space *space = index->active.first; space != NULL; space = space->next) {
        if (space->bytes <= least) continue;
        struct candidate *candidate = next_of(index, space, asking);
        if (candidate == NULL) continue;
        next = candidate;
        least = space->bytes;
    }
    return next;
}

/* Whoever asks and has less than a share gets it also from others who have, as far as that was not used again: it may
 * be that all else was, by those who are not active any more. */
static struct candidate *next_candidate(const struct index *index, struct asking asking)
{
    uint64_t fair = share_of_active(index);
    struct candidate *next = NULL;
    for (const struct space *space = index->inactive.first; space != NULL && next == NULL; space = space->next)
        next = next_of(index, space, asking);
    if (next == NULL) next = next_of_largest(index, asking, asking.for_any ? 0 : fair);
    if (next != NULL || asking.space == NULL) return next;
    next = next_of(index, asking.space, asking);
    if (next != NULL || asking.space->bytes > fair) return next;
    return index->fresh_bytes > index->budget / 2 ? next_of_largest(index, asking, 0) : NULL;
}

/* What exceeds the budget goes, if need be at the cost of anybody. */
static struct candidate *next_to_go(const struct index *index, const struct space *asks)
{
    struct candidate *next = next_candidate(index, (struct asking){.space = asks});
    if (next == NULL && asks == NULL) next = next_candidate(index, (struct asking){.for_any = true});
    return next;
}

/* ---- Choosing ---- */

/* Choosing and evicting are two steps, so that a reservation that cannot be met costs nobody anything. What is chosen
 * has left its heap and given back its reference, so that what it hangs on may be chosen next. */
struct choices {
    struct candidate **v;
    size_t n, cap;
    uint64_t bytes;
};

static void choose(struct index *index, struct choices *choices, struct candidate *candidate)
{
    struct node *parent = parent_of(candidate);
    if (choices->n == choices->cap) {
        choices->cap = choices->cap == 0 ? 16 : 2 * choices->cap;
        choices->v = mem_grow(choices->v, choices->cap, sizeof(struct candidate *));
    }
    choices->v[choices->n++] = candidate;
    choices->bytes += size_of(candidate);
    set_evictable(index, candidate, false);
    uncount(index, candidate);
    if (parent == NULL) return;
    if (parent->candidate.used < candidate->used) parent->candidate.used = candidate->used;
    parent->refs--;
    order_node(index, parent);
}

static struct choices choose_all(struct index *index, uint64_t need, const struct space *asks)
{
    struct choices choices = {0};
    retire_idle(index);
    for (struct candidate *next; choices.bytes < need && (next = next_to_go(index, asks)) != NULL;)
        choose(index, &choices, next);
    return choices;
}

static void give_back(struct index *index, struct choices *choices)
{
    while (choices->n > 0) {
        struct candidate *candidate = choices->v[--choices->n];
        struct node *parent = parent_of(candidate);
        count(index, candidate);
        set_evictable(index, candidate, true);
        if (parent == NULL) continue;
        parent->refs++;
        order_node(index, parent);
    }
    free(choices->v);
}

/* ---- Evicting ---- */

struct victim *order_retire(struct index *index, struct record *record)
{
    index_require_held(index);
    uncount(index, &record->candidate);
    record_list(index, record);
    record->state = RECORD_LEAVING;
    index->leaving += record->size;
    return &record->victim;
}

static struct victim *evict_one(struct index *index, struct candidate *candidate, struct reservation *room_for)
{
    struct node *parent = parent_of(candidate);
    count(index, candidate);
    struct record *record;
    if (candidate->is_record) {
        record = record_of_candidate(candidate);
        record_take_out(index, record);
    } else {
        if (parent != NULL) parent->refs++;
        record = node_leave(index, node_of_candidate(candidate));
    }
    record->room_for = room_for;
    if (room_for != NULL) room_for->n_victims++;
    return order_retire(index, record);
}

uint64_t order_evict(struct index *index, uint64_t need, struct reservation *room_for, struct victim **first)
{
    struct choices choices = choose_all(index, need, room_for == NULL ? NULL : room_for->record->space);
    uint64_t bytes = choices.bytes;
    if (room_for != NULL && bytes < need) {
        give_back(index, &choices);
        return 0;
    }
    struct victim **end = first;
    for (size_t i = 0; i < choices.n; i++) {
        *end = evict_one(index, choices.v[i], room_for);
        end = &(*end)->next;
    }
    free(choices.v);
    return bytes;
}

bool order_could_evict(struct index *index, uint64_t need, const struct reservation *room_for)
{
    struct choices choices = choose_all(index, need, room_for == NULL ? NULL : room_for->record->space);
    bool could = choices.bytes >= need;
    give_back(index, &choices);
    return could;
}
