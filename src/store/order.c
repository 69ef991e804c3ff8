/* The order of last use, and who is evicted. Only leaves that nobody uses are candidates, in a heap. An entry was last
 * used when it or anything that hung on it was: a leaf that leaves hands its last use up, so that a use costs what it
 * costs to move one leaf, however long its chain is. */
#include "base/memory.h"
#include "store/node.h"

#include <stdlib.h>

/* ---- The order ---- */

static struct candidate *candidate_of(const struct heaped *heaped)
{
    return (struct candidate *)(void *)heaped;
}

static struct node *node_of_candidate(struct candidate *candidate)
{
    return hash_item(struct node, candidate, candidate);
}

static struct record *record_of_candidate(struct candidate *candidate)
{
    return hash_item(struct record, candidate, candidate);
}

static int32_t end_of(const struct candidate *candidate)
{
    if (candidate->is_record) return hash_item(const struct record, candidate, candidate)->end;
    return hash_item(const struct node, candidate, candidate)->entry.end;
}

/* Of a detached chain that was used at once, the end goes first. */
bool candidate_before(const struct heaped *a, const struct heaped *b)
{
    const struct candidate *one = candidate_of(a), *other = candidate_of(b);
    return one->used != other->used ? one->used < other->used : end_of(one) > end_of(other);
}

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

static void order(struct index *index, struct candidate *candidate, bool evictable)
{
    index_require_held(index);
    if (evictable)
        heap_add(&index->candidates, &candidate->heaped);
    else
        heap_remove(&index->candidates, &candidate->heaped);
}

void order_node(struct index *index, struct node *node)
{
    order(index, &node->candidate, node->there && node->refs == 1);
}

void order_record(struct index *index, struct record *record)
{
    order(index, &record->candidate, record->awaited != NULL && record->leased == NULL && !record->replaced);
}

void order_use(struct index *index, struct candidate *candidate, int64_t now_ms)
{
    bool was = candidate->heaped.at != 0;
    order(index, candidate, false);
    candidate->used = order_stamp(index, now_ms);
    order(index, candidate, was);
}

uint32_t index_touch(struct index *index, struct entry *entry, int64_t now_ms)
{
    struct node *node = node_of(entry);
    index_lock(index);
    uint32_t hits = ++node->candidate.hits;
    node->candidate.failures = 0;
    if (node->there) order_use(index, &node->candidate, now_ms);
    if (node->record != NULL) {
        node->record->candidate.hits = hits;
        node->record->candidate.failures = 0;
        order_use(index, &node->record->candidate, now_ms);
    }
    index_unlock(index);
    return hits;
}

/* ---- Choosing ---- */

/* Choosing and evicting are two steps, so that a reservation that cannot be met costs nobody anything. What is chosen
 * has left the heap and given back its reference, so that what it hangs on may be chosen next. */
struct choice {
    struct candidate *candidate;
    int64_t parent_used; /* as it was before */
};

struct choices {
    struct choice *v;
    size_t n, cap;
    uint64_t bytes;
};

static struct node *parent_of(struct candidate *candidate)
{
    return candidate->is_record ? NULL : node_of(node_of_candidate(candidate)->entry.parent);
}

static uint64_t size_of(struct candidate *candidate)
{
    return candidate->is_record ? record_of_candidate(candidate)->size : node_of_candidate(candidate)->entry.size;
}

static void choose(struct index *index, struct choices *choices, struct candidate *candidate)
{
    struct node *parent = parent_of(candidate);
    if (choices->n == choices->cap) {
        choices->cap = choices->cap == 0 ? 16 : 2 * choices->cap;
        choices->v = mem_grow(choices->v, choices->cap, sizeof *choices->v);
    }
    choices->v[choices->n++] = (struct choice){candidate, parent == NULL ? 0 : parent->candidate.used};
    choices->bytes += size_of(candidate);
    order(index, candidate, false);
    if (parent == NULL) return;
    if (parent->candidate.used < candidate->used) parent->candidate.used = candidate->used;
    parent->refs--;
    order_node(index, parent);
}

static struct choices choose_all(struct index *index, uint64_t need)
{
    struct choices choices = {0};
    for (struct heaped *first; choices.bytes < need && (first = heap_first(&index->candidates)) != NULL;)
        choose(index, &choices, candidate_of(first));
    return choices;
}

static void give_back(struct index *index, struct choices *choices)
{
    while (choices->n > 0) {
        struct choice choice = choices->v[--choices->n];
        struct node *parent = parent_of(choice.candidate);
        order(index, choice.candidate, true);
        if (parent == NULL) continue;
        parent->refs++;
        order_node(index, parent);
        parent->candidate.used = choice.parent_used;
    }
    free(choices->v);
}

/* ---- Evicting ---- */

static struct record *leave(struct index *index, struct candidate *candidate)
{
    struct node *parent = parent_of(candidate);
    if (candidate->is_record) {
        record_take_out(index, record_of_candidate(candidate));
        return record_of_candidate(candidate);
    }
    if (parent != NULL) parent->refs++;
    return node_leave(index, node_of_candidate(candidate));
}

struct victim *order_retire(struct index *index, struct record *record)
{
    index_require_held(index);
    record->state = RECORD_LEAVING;
    index->leaving += record->size;
    return &record->victim;
}

static struct victim *evict(struct index *index, struct choices *choices, struct reservation *room_for)
{
    struct victim *first = NULL, **end = &first;
    for (size_t i = 0; i < choices->n; i++) {
        struct record *record = leave(index, choices->v[i].candidate);
        record->room_for = room_for;
        if (room_for != NULL) room_for->n_victims++;
        *end = order_retire(index, record);
        end = &(*end)->next;
    }
    free(choices->v);
    return first;
}

uint64_t order_evict(struct index *index, uint64_t need, struct reservation *room_for, struct victim **first)
{
    struct choices choices = choose_all(index, need);
    uint64_t bytes = choices.bytes;
    if (room_for != NULL && bytes < need) {
        give_back(index, &choices);
        return 0;
    }
    *first = evict(index, &choices, room_for);
    return bytes;
}

bool order_could_evict(struct index *index, uint64_t need)
{
    struct choices choices = choose_all(index, need);
    bool could = choices.bytes >= need;
    give_back(index, &choices);
    return could;
}
