/* Stored conversations, by their tips: listing them, newest first, and orders to keep or drop one. Each function of
 * index.h takes the mutex of the index itself; listing and dropping release it now and then, since there may be many
 * entries. */
#include "base/memory.h"
#include "store/index/index_parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- Tips ---- */

static bool is_tip(const struct item *item)
{
    const struct item *child = item->first_child;
    while (child != NULL && item_is_completion(child)) child = child->next;
    return !item_is_completion(item) && child == NULL;
}

static struct item *find_tip(const struct index *index, const struct slab_key *key)
{
    for (enum slab_kind kind = SLAB_ROWS; kind <= SLAB_STATE; kind++) {
        struct item *item = item_found(index, key, kind);
        if (item != NULL && is_tip(item)) return item;
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

static void offer(struct first_tips *first, const struct tip_place *place)
{
    const struct tip_query *query = first->query;
    first->total++;
    if (query->after != NULL && !tip_comes_before(query->after, place) &&
        (!query->inclusive || tip_comes_before(place, query->after)))
        return;
    size_t at = 0;
    for (size_t high = first->n; at < high;) {
        size_t middle = (at + high) / 2;
        if (tip_comes_before(&first->v[middle].place, place))
            at = middle + 1;
        else
            high = middle;
    }
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
    for (size_t end = *bucket + BUCKETS; *bucket < end && (link = hash_any(&index->items, bucket)) != NULL; ++*bucket)
        for (; link != NULL; link = link->next) {
            const struct item *item = container_of(const struct item, link, link);
            if (item->state == ITEM_FOUND && is_tip(item))
                offer(first, &(struct tip_place){item->used, item->entry.key});
        }
    bool more = *bucket < index->items.n_buckets;
    index_unlock(index);
    return more;
}

/* ---- Describing ---- */

/* Whether another entry goes on from it beside `one`. */
static bool has_others(const struct item *item, const struct item *one)
{
    const struct item *child = item->first_child;
    while (child != NULL && (child == one || item_is_completion(child))) child = child->next;
    return child != NULL;
}

static void describe(const struct item *tip, const struct tip_query *query, struct tip *out)
{
    const struct item *from = NULL;
    int32_t own_from = tip->entry.end;
    bool own = true;
    memcpy(out->model, tip->space->identity.model, sizeof out->model);
    out->end = tip->entry.end;
    out->used_ms = lru_stamp_ms(out->place.used);
    for (const struct item *at = tip; at != NULL; from = at, at = parent_of(at)) {
        size_t mark = 0;
        while (mark < query->n_marks && !slab_key_equal(&query->marks[mark].key, &at->entry.key)) mark++;
        if (mark < query->n_marks && query->marks[mark].n > out->marked) out->marked = query->marks[mark].n;
        out->kept = out->kept || at->kept;
        own = own && !has_others(at, from);
        if (!own) continue;
        out->own_bytes += at->entry.size;
        for (const struct item *child = at->first_child; child != NULL; child = child->next)
            if (item_is_completion(child)) out->own_bytes += child->entry.size;
        own_from = at->entry.start;
    }
    out->own_tokens = out->end - own_from;
}

/* Tips that go between choosing and describing leave gaps, which those behind them fill: fewer than `max` are all. */
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
        for (size_t i = 0; i < first.n; i++) {
            struct tip tip = first.v[i];
            /* One that was used in between may have been chosen twice, with two places. */
            size_t same = 0;
            while (same < n && !slab_key_equal(&tips[same].place.key, &tip.place.key)) same++;
            if (same < n) continue;
            index_lock(index);
            const struct item *found = find_tip(index, &tip.place.key);
            if (found != NULL) describe(found, query, &tip);
            index_unlock(index);
            if (found != NULL) tips[n++] = tip;
        }
        rest.after = &last;
        rest.inclusive = false;
    } while (n < max && first.n == first.max);
    *total = first.total;
    return n;
}

/* ---- Kept entries ---- A kept entry is not evicted until the order ends. It has a reference more, so that it is no
 * unused leaf; its ancestors have those of their children. With it the last recurrent/SWA state on the way to it is
 * kept, without which the rows would be of no use. An entry that goes on from a kept one takes its place. Nothing of
 * this is written down: a restart ends every order.
 *
 * Kept entries count for no identity (lru.c), and may have a quarter of the budget: so there is always room to save the
 * rest. Where what goes on from a kept entry would have more, the order stays where it is. */

enum { PART_OF_BUDGET = 4 };

static void protect(struct index *index, struct item *item)
{
    item_ref(index, item);
    for (; item != NULL; item = parent_of(item)) lru_keep(index, item);
}

/* One that has left the tree protects nothing any more: kept_forget(). */
static void unprotect(struct index *index, struct item *item)
{
    for (struct item *at = item; item->state == ITEM_FOUND && at != NULL; at = parent_of(at)) lru_unkeep(index, at, 1);
    item_unref(index, item);
}

static bool fits(const struct index *index, uint64_t bytes)
{
    uint64_t most = index->budget / PART_OF_BUDGET;
    return index->kept_bytes <= most && bytes <= most - index->kept_bytes;
}

static void keep_state(struct index *index, struct item *item, struct item *state)
{
    struct item *former = item->kept_state;
    item->kept_state = state;
    protect(index, state);
    if (former != NULL) unprotect(index, former);
}

/* False: kept entries would have more than their part of the budget. */
static bool kept_begin(struct index *index, struct item *item)
{
    struct item *state = state_before((struct radix_position){item->node, item->entry.end});
    if (state == item) state = NULL;
    if (item->kept) return true;
    /* Where an entry is kept, its ancestors are. Those of the state are the entry's. */
    uint64_t bytes = state != NULL && state->n_kept == 0 ? state->entry.size : 0;
    for (const struct item *at = item; at != NULL && at->n_kept == 0; at = parent_of(at)) bytes += at->entry.size;
    if (!fits(index, bytes)) return false;
    item->kept = true;
    protect(index, item);
    if (state != NULL) keep_state(index, item, state);
    return true;
}

static void end_one(struct index *index, struct item *item)
{
    struct item *state = item->kept_state;
    item->kept = false;
    item->kept_state = NULL;
    if (state != NULL) unprotect(index, state);
    unprotect(index, item);
}

/* ---- Kept entries that come and go ---- */

void kept_follow(struct index *index, struct item *item)
{
    struct item *parent = parent_of(item);
    if (parent == NULL || !parent->kept || !fits(index, item->entry.size)) return;
    if (!item_is_completion(item)) {
        item->kept = true;
        protect(index, item);
        item->kept_state = parent->kept_state;
        parent->kept_state = NULL;
        end_one(index, parent);
    } else if (parent->kept_state == NULL || parent->kept_state->entry.end < item->entry.end) {
        keep_state(index, parent, item);
    }
}

void kept_forget(struct index *index, struct item *item)
{
    if (item->kept) end_one(index, item);
    uint32_t n = item->n_kept; /* as the state of others */
    for (struct item *at = item; n > 0 && at != NULL; at = parent_of(at)) lru_unkeep(index, at, n);
}

/* ---- Orders: keeping ---- */

enum tip_order index_keep_tip(struct index *index, const struct slab_key *key)
{
    index_lock(index);
    struct item *tip = find_tip(index, key);
    enum tip_order result = tip == NULL ? TIP_GONE : kept_begin(index, tip) ? TIP_ORDERED : TIP_NO_ROOM;
    index_unlock(index);
    return result;
}

enum tip_order index_release_tip(struct index *index, const struct slab_key *key)
{
    index_lock(index);
    struct item *tip = find_tip(index, key);
    for (struct item *at = tip; at != NULL; at = parent_of(at))
        if (at->kept) end_one(index, at);
    index_unlock(index);
    return tip == NULL ? TIP_GONE : TIP_ORDERED;
}

/* ---- Orders: dropping ---- */

/* Of an entry from which nothing goes on but `one`: whether somebody uses it or its completions, beside `n` references
 * that the caller has. */
static bool is_used(const struct item *item, uint32_t n)
{
    uint32_t expected = n;
    for (const struct item *child = item->first_child; child != NULL; child = child->next) {
        if (item_is_completion(child) && child->refs > 0) return true;
        expected++;
    }
    return item->refs > expected;
}

static void remove_one(struct index *index, struct item *item, struct victim ***end)
{
    struct victim *victim = lru_make_victim(index, item, NULL);
    **end = victim;
    *end = &victim->next;
}

/* Removes an entry with its completions, if it is a tip that nobody uses, and gives the caller's reference back.
 * Returns its parent, with a reference. NULL: it stays, or it had none. */
static struct item *remove_tip(struct index *index, struct item *tip, struct victim ***end)
{
    struct item *parent = NULL;
    if (tip->state == ITEM_FOUND && is_tip(tip) && !is_used(tip, 1)) {
        while (tip->first_child != NULL) remove_one(index, tip->first_child, end);
        parent = parent_of(tip);
        if (parent != NULL) item_ref(index, parent);
        item_unref(index, tip);
        remove_one(index, tip, end);
        return parent;
    }
    item_unref(index, tip);
    return NULL;
}

/* The tip with that key, with a reference. Its entries are no longer kept, but for those of other kept tips. */
static enum tip_order begin_drop(struct index *index, const struct slab_key *key, struct item **tip)
{
    struct {
        struct item *item, *state;
    } *orders = NULL;
    size_t n = 0;
    *tip = find_tip(index, key);
    if (*tip == NULL) return TIP_GONE;
    /* The first ancestor that another tip has, too; NULL: there is none. */
    const struct item *shared = *tip;
    for (const struct item *from = NULL; shared != NULL && !has_others(shared, from); shared = parent_of(shared))
        from = shared;
    /* Orders are references as well: they end, at least for now. */
    for (struct item *at = *tip; at != shared; at = parent_of(at)) {
        if (!at->kept) continue;
        orders = mem_grow(orders, n + 1, sizeof *orders);
        orders[n].item = at;
        orders[n++].state = at->kept_state;
        end_one(index, at);
    }
    const struct item *used = *tip;
    while (used != shared && !is_used(used, 0)) used = parent_of(used);
    bool in_use = used != shared;
    /* Where it is in use they are taken up again, whatever they cost: no entry has come or gone in between. */
    for (size_t i = 0; in_use && i < n; i++) {
        orders[i].item->kept = true;
        protect(index, orders[i].item);
        if (orders[i].state != NULL) keep_state(index, orders[i].item, orders[i].state);
    }
    free(orders);
    if (!in_use) item_ref(index, *tip);
    return in_use ? TIP_IN_USE : TIP_ORDERED;
}

enum tip_order index_drop_tip(struct index *index, const struct slab_key *key, struct victim **victims)
{
    struct victim **end = victims;
    struct item *tip;
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
