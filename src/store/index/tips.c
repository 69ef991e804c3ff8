/* Stored conversations, by their tips: listing them, newest first, and orders about one. Each function takes the mutex
 * of the index itself; listing and dropping release it now and then, since there may be many entries. */
#include "base/memory.h"
#include "store/index/index_parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- Tips ---- */

/* Whether nothing goes on from it: nothing but states of its own rows hangs on it. */
static bool is_last(const struct indexed *indexed)
{
    const struct indexed *child = indexed->first_child;
    while (child != NULL && indexed_is_completion(child)) child = child->next;
    return child == NULL;
}

static bool is_tip(const struct indexed *indexed)
{
    return !indexed_is_completion(indexed) && is_last(indexed);
}

static struct indexed *find_tip(const struct index *index, const struct slab_key *key)
{
    static const enum slab_kind kinds[] = {SLAB_ROWS, SLAB_STATE};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct indexed *indexed = indexed_find(index, key, kinds[i]);
        if (indexed != NULL && is_tip(indexed)) return indexed;
    }
    return NULL;
}

bool tip_comes_before(const struct tip_place *a, const struct tip_place *b)
{
    return a->used != b->used ? a->used > b->used : memcmp(&a->key, &b->key, sizeof a->key) > 0;
}

/* ---- Choosing ---- */

/* The first tips so far, in their order. */
struct first_tips {
    struct tip *v;
    size_t n, max, total;
    const struct tip_query *query;
};

static size_t rank_of(const struct first_tips *first, const struct tip_place *place)
{
    size_t low = 0, high = first->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (tip_comes_before(&first->v[middle].place, place))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_wanted(const struct tip_query *query, const struct tip_place *place)
{
    if (query->after == NULL || tip_comes_before(query->after, place)) return true;
    return query->inclusive && !tip_comes_before(place, query->after);
}

static void offer(struct first_tips *first, const struct tip_place *place)
{
    first->total++;
    if (!is_wanted(first->query, place)) return;
    size_t at = rank_of(first, place);
    if (at == first->max) return;
    if (first->n < first->max) first->n++;
    memmove(first->v + at + 1, first->v + at, (first->n - 1 - at) * sizeof *first->v);
    first->v[at] = (struct tip){.place = *place};
}

/* Some buckets of the table. False: these were the last. */
static bool look_through_some(struct index *index, size_t *bucket, struct first_tips *first)
{
    enum { BUCKETS = 256 };
    const struct hash_link *link = NULL;
    index_lock(index);
    for (size_t end = *bucket + BUCKETS; *bucket < end && (link = hash_any(&index->indexed, bucket)) != NULL; ++*bucket)
        for (; link != NULL; link = link->next) {
            const struct indexed *indexed = container_of(const struct indexed, link, link);
            if (is_tip(indexed)) offer(first, &(struct tip_place){indexed->candidate.used, indexed->entry.key});
        }
    bool more = *bucket < index->indexed.n_buckets;
    index_unlock(index);
    return more;
}

/* ---- Describing ---- */

static uint64_t completions_bytes(const struct indexed *indexed)
{
    uint64_t bytes = 0;
    for (const struct indexed *child = indexed->first_child; child != NULL; child = child->next)
        if (indexed_is_completion(child)) bytes += child->entry.size;
    return bytes;
}

/* Whether another entry goes on from it beside `one`. */
static bool has_others(const struct indexed *indexed, const struct indexed *one)
{
    const struct indexed *child = indexed->first_child;
    while (child != NULL && (child == one || indexed_is_completion(child))) child = child->next;
    return child != NULL;
}

static int32_t mark_of(const struct tip_query *query, const struct slab_key *key)
{
    for (size_t i = 0; i < query->n_marks; i++)
        if (slab_key_equal(&query->marks[i].key, key)) return query->marks[i].n;
    return 0;
}

static void describe(const struct indexed *tip, const struct tip_query *query, struct tip *out)
{
    const struct indexed *from = NULL;
    int32_t own_from = tip->entry.end;
    bool own = true;
    memcpy(out->model, tip->space->identity.model, sizeof out->model);
    out->end = tip->entry.end;
    out->used_ms = lru_stamp_ms(out->place.used);
    for (const struct indexed *at = tip; at != NULL; from = at, at = indexed_of(at->entry.parent)) {
        int32_t marked = mark_of(query, &at->entry.key);
        if (marked > out->marked) out->marked = marked;
        out->kept = out->kept || at->kept;
        own = own && !has_others(at, from);
        if (!own) continue;
        out->own_bytes += at->entry.size + completions_bytes(at);
        own_from = at->entry.start;
    }
    out->own_tokens = out->end - own_from;
}

/* False: it has gone meanwhile. */
static bool describe_place(struct index *index, const struct tip_query *query, struct tip *tip)
{
    index_lock(index);
    const struct indexed *found = find_tip(index, &tip->place.key);
    if (found != NULL) describe(found, query, tip);
    index_unlock(index);
    return found != NULL;
}

/* One that was used in between may have been chosen twice, with two places. */
static bool is_among(const struct tip *tips, size_t n, const struct slab_key *key)
{
    while (n > 0 && !slab_key_equal(&tips[n - 1].place.key, key)) n--;
    return n > 0;
}

/* Describes those that were chosen behind the first `n`, and closes the gaps. Returns how many there are then. */
static size_t describe_chosen(struct index *index, const struct tip_query *query, const struct first_tips *first,
                              struct tip *tips, size_t n)
{
    for (size_t i = 0; i < first->n; i++) {
        struct tip tip = first->v[i];
        if (!is_among(tips, n, &tip.place.key) && describe_place(index, query, &tip)) tips[n++] = tip;
    }
    return n;
}

/* What goes between choosing and describing leaves gaps, which those behind it fill: fewer than `max` are all. */
size_t index_tips(struct index *index, const struct tip_query *query, struct tip *tips, size_t max, size_t *total)
{
    struct tip_query rest = *query;
    struct first_tips first = {.query = &rest};
    struct tip_place last;
    size_t n = 0;
    do {
        first.v = tips + n;
        first.max = max - n;
        first.n = first.total = 0;
        for (size_t bucket = 0; look_through_some(index, &bucket, &first);) {
        }
        if (first.n > 0) last = first.v[first.n - 1].place;
        n = describe_chosen(index, query, &first, tips, n);
        rest.after = &last;
        rest.inclusive = false;
    } while (n < max && first.n == first.max);
    *total = first.total;
    return n;
}

/* ---- Keeping ---- */

enum tip_order index_keep_tip(struct index *index, const struct slab_key *key)
{
    index_lock(index);
    struct indexed *tip = find_tip(index, key);
    enum tip_order result = tip == NULL ? TIP_GONE : kept_begin(index, tip) ? TIP_ORDERED : TIP_NO_ROOM;
    index_unlock(index);
    return result;
}

enum tip_order index_release_tip(struct index *index, const struct slab_key *key)
{
    index_lock(index);
    struct indexed *tip = find_tip(index, key);
    if (tip != NULL) kept_end(index, tip);
    index_unlock(index);
    return tip == NULL ? TIP_GONE : TIP_ORDERED;
}

/* ---- Dropping ---- */

/* Of an entry from which nothing goes on but `one`: whether somebody uses it or its completions, beside `n` references
 * that the caller has. */
static bool is_used(const struct indexed *indexed, uint32_t n)
{
    uint32_t expected = 1 + n;
    for (const struct indexed *child = indexed->first_child; child != NULL; child = child->next) {
        if (indexed_is_completion(child) && child->refs > 1) return true;
        expected++;
    }
    return indexed->refs > expected;
}

/* The first ancestor that another tip has, too; NULL: there is none. */
static struct indexed *find_shared(struct indexed *tip)
{
    const struct indexed *from = NULL;
    struct indexed *at = tip;
    for (; at != NULL && !has_others(at, from); at = indexed_of(at->entry.parent)) from = at;
    return at;
}

static bool any_is_used(const struct indexed *tip, const struct indexed *end)
{
    while (tip != end && !is_used(tip, 0)) tip = indexed_of(tip->entry.parent);
    return tip != end;
}

static void remove_one(struct index *index, struct indexed *indexed, struct victim ***end)
{
    struct victim *victim = lru_make_victim(index, indexed_remove(index, indexed));
    **end = victim;
    *end = &victim->next;
}

/* Removes an entry with its completions, if it is a tip that nobody uses, and gives the caller's reference back.
 * Returns its parent, with a reference. NULL: it stays, or it had none. */
static struct indexed *remove_tip(struct index *index, struct indexed *tip, struct victim ***end)
{
    struct indexed *parent = NULL;
    if (tip->there && is_tip(tip) && !is_used(tip, 1)) {
        while (tip->first_child != NULL) remove_one(index, tip->first_child, end);
        parent = indexed_of(tip->entry.parent);
        if (parent != NULL) indexed_ref(index, parent);
        indexed_unref(index, tip);
        remove_one(index, tip, end);
        return parent;
    }
    indexed_unref(index, tip);
    return NULL;
}

/* The tip with that key, with a reference; what no other tip has of it is no longer kept. */
static enum tip_order begin_drop(struct index *index, const struct slab_key *key, struct indexed **tip)
{
    struct kept_orders orders = {0};
    *tip = find_tip(index, key);
    if (*tip == NULL) return TIP_GONE;
    const struct indexed *shared = find_shared(*tip);
    kept_suspend(index, *tip, shared, &orders);
    bool used = any_is_used(*tip, shared);
    if (used)
        kept_resume(index, &orders);
    else
        indexed_ref(index, *tip);
    free(orders.v);
    return used ? TIP_IN_USE : TIP_ORDERED;
}

enum tip_order index_drop_tip(struct index *index, const struct slab_key *key, struct victim **victims)
{
    struct victim **end = victims;
    struct indexed *tip;
    *victims = NULL;
    index_lock(index);
    enum tip_order result = begin_drop(index, key, &tip);
    while (result == TIP_ORDERED && tip != NULL) {
        tip = remove_tip(index, tip, &end);
        index_unlock(index);
        index_lock(index);
    }
    index_unlock(index);
    return result;
}
