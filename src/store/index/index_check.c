/* The invariants of an index, whenever its mutex is released. index_check() looks at every item, and compares the
 * lists, tables, heaps and sums that speak of it with its state. Only builds with assertions have it; there it also
 * runs by itself, as often as costs little more than what is done between two of its runs. */
#include "store/index/index_parts.h"

#include <assert.h>

#ifndef NDEBUG

/* Of the items of one identity, or of all. */
struct sums {
    size_t n, n_evictable, n_states[ITEM_STATES];
    uint64_t bytes, fresh_bytes, kept_bytes, victim_bytes;
};

/* ---- One item ---- */

/* In the list that begins with `first`: its children's, or those of its parent's orphans. */
static void check_links(const struct item *item, const struct item *first)
{
    assert(item->prev == NULL ? first == item : item->prev->next == item);
    assert(item->next == NULL || item->next->prev == item);
}

static void check_found(const struct index *index, const struct item *item)
{
    const struct entry *entry = &item->entry;
    const struct item *parent = item_of(entry->parent);
    assert((parent == NULL) == (entry->start == 0));
    assert(parent == NULL || item_accepts_child(parent, item->space, entry->kind, entry->start, entry->end));
    if (parent != NULL) check_links(item, parent->first_child);
    assert(parent == NULL || parent->reused || !item->reused);
    uint32_t n = 0, n_kept = item->kept;
    for (const struct item *child = item->first_child; child != NULL; child = child->next, n++) {
        assert(child->state == ITEM_FOUND && child->entry.parent == entry);
        n_kept += child->n_kept;
    }
    assert(item->refs >= n + item->kept);
    assert(item->n_kept >= n_kept && (item->n_kept == 0 || item->refs > 0));
    assert(item->kept || item->kept_state == NULL);
    assert(item->kept_state == NULL || item->kept_state->refs > 0);
    const struct radix_entry *at = item->node->entries;
    while (at != NULL && at != &item->radix_entry) at = at->next;
    assert(at != NULL && item->node->end == entry->end);
    assert(item->older == NULL ? index->oldest == item : item->older->newer == item);
    assert(item->newer == NULL ? index->newest == item : item->newer->older == item);
}

/* Where nobody is attaching or detaching, whatever can be found is. */
static void check_not_found(const struct index *index, const struct item *item)
{
    const struct entry *entry = &item->entry;
    assert((int32_t)item->tokens.len == entry->end - entry->start);
    assert((item->orphans == NULL) == (entry->start == 0 || item->state == ITEM_WRITING));
    if (item->orphans != NULL) check_links(item, item->orphans->first);
    assert(item->n_kept == 0 && !item->kept);
    assert((item->state == ITEM_UNREADABLE) == (item->retry.at != 0));
    assert(item->retry.at == 0 || index->unreadable.v[item->retry.at - 1] == &item->retry);
    assert(entry->parent == NULL || item->refs > 0 || item->state == ITEM_WRITING);
    assert(entry->parent == NULL || entry->start > 0);
    if (item->state != ITEM_DETACHED || item->replaced || index->n_walks > 0) return;
    assert(entry->start > 0);
    for (enum slab_kind kind = SLAB_ROWS; kind <= SLAB_STATE; kind++) {
        const struct item *parent = item_found(index, &item->orphans->key, kind);
        assert(parent == NULL || !item_accepts_child(parent, item->space, entry->kind, entry->start, entry->end));
    }
}

static void check_item(const struct index *index, const struct item *item)
{
    const struct entry *entry = &item->entry;
    assert(item->state != ITEM_NEW && item->state < ITEM_GONE);
    assert(0 <= entry->start && entry->start <= entry->end && entry->end > 0);
    /* Its name is that of no other one, but of one that is being written and will replace it. */
    const struct item *found = item_found(index, &entry->key, entry->kind);
    const struct item *writing = item_writing(index, &entry->key, entry->kind);
    const struct item *known = item_known(index, &entry->key, entry->kind);
    assert(item == found || item == writing || item == known);
    assert(found == NULL || (writing == NULL && known == NULL));
    assert(!item->replaced || (item_is_detached(item) && writing != NULL));
    assert(writing == NULL || known == NULL || known->replaced);
    assert(item->space == space_find(index, &item->space->identity));
    if (item->state == ITEM_FOUND)
        check_found(index, item);
    else
        check_not_found(index, item);
    bool leaves = item->state == ITEM_FOUND || (item_is_detached(item) && !item->replaced);
    const struct heap *heap = item->reused ? &item->space->reused : &item->space->fresh;
    uint32_t at = item->evictable.at;
    assert((at != 0) == (leaves && item->refs == 0));
    assert(at == 0 || (at <= heap->n && heap->v[at - 1] == &item->evictable));
    assert(at <= 1 || !heap->before(&item->evictable, heap->v[at / 2 - 1]));
}

/* ---- Sums ---- */

static void sum_up(struct sums *sums, const struct item *item)
{
    uint64_t size = item->entry.size;
    sums->n_states[item->state]++;
    sums->n++;
    sums->n_evictable += item->evictable.at != 0;
    if (item->state == ITEM_VICTIM) {
        sums->victim_bytes += size;
    } else if (item->n_kept > 0) {
        sums->kept_bytes += size;
    } else {
        sums->bytes += size;
        sums->fresh_bytes += item->reused ? 0 : size;
    }
}

/* `space`: NULL: of all, each of which is checked as well. */
static struct sums look_at_items(const struct index *index, const struct space *space)
{
    struct sums sums = {0};
    const struct hash_link *link;
    for (size_t bucket = 0; (link = hash_any(&index->items, &bucket)) != NULL; bucket++) {
        for (; link != NULL; link = link->next) {
            const struct item *item = container_of(const struct item, link, link);
            if (space == NULL) check_item(index, item);
            if (space == NULL || item->space == space) sum_up(&sums, item);
        }
    }
    return sums;
}

static void check_list(const struct spaces *list, bool active, size_t n)
{
    const struct space *last = NULL;
    for (const struct space *space = list->first; space != NULL; last = space, space = space->next, n--)
        assert(n > 0 && space->active == active && space->prev == last);
    assert(n == 0 && list->last == last);
}

/* Each by itself only where there are few items: else this would be quadratic. */
static void check_spaces(const struct index *index, const struct sums *all)
{
    enum { FEW = 300 };
    struct sums sums = {0};
    const struct hash_link *link;
    check_list(&index->active, true, index->n_active);
    check_list(&index->inactive, false, index->spaces.n - index->n_active);
    for (size_t bucket = 0; (link = hash_any(&index->spaces, &bucket)) != NULL; bucket++) {
        for (; link != NULL; link = link->next) {
            const struct space *space = container_of(const struct space, link, link);
            if (index->items.n <= FEW) {
                struct sums own = look_at_items(index, space);
                assert(own.n > 0 && space->n == own.n);
                assert(space->bytes == own.bytes && space->fresh_bytes == own.fresh_bytes);
                assert(space->fresh.n + space->reused.n == own.n_evictable);
            }
            sums.n += space->n;
            sums.n_evictable += space->fresh.n + space->reused.n;
            sums.bytes += space->bytes;
            sums.fresh_bytes += space->fresh_bytes;
        }
    }
    assert(sums.n == all->n && sums.n_evictable == all->n_evictable);
    assert(sums.bytes == all->bytes && sums.fresh_bytes == all->fresh_bytes);
}

/* Returns how many there are. */
static size_t check_orphans(const struct index *index)
{
    const struct hash_link *link;
    size_t n = 0;
    for (size_t bucket = 0; (link = hash_any(&index->orphans, &bucket)) != NULL; bucket++) {
        for (; link != NULL; link = link->next) {
            const struct orphans *orphans = container_of(const struct orphans, link, link);
            assert(orphans->first != NULL && orphans->first->prev == NULL);
            for (const struct item *item = orphans->first; item != NULL; item = item->next, n++)
                assert(item->orphans == orphans && item->state != ITEM_FOUND);
        }
    }
    return n;
}

/* ---- All ---- */

static void check_all(const struct index *index)
{
    const struct sums all = look_at_items(index, NULL);
    index_require_held(index);
    for (enum item_state state = ITEM_NEW; state < ITEM_STATES; state++)
        assert(index->n_states[state] == all.n_states[state]);
    assert(all.n == index->items.n);
    assert(index->bytes - index->victim_bytes == all.bytes + all.kept_bytes);
    assert(index->victim_bytes <= all.victim_bytes); /* less what reservations wait for */
    assert(index->fresh_bytes == all.fresh_bytes && index->kept_bytes == all.kept_bytes);
    assert(index->n_reservations == all.n_states[ITEM_WRITING]);
    assert(index->unreadable.n == all.n_states[ITEM_UNREADABLE]);
    size_t n = 0;
    for (const struct item *item = index->oldest; item != NULL; item = item->newer) n++;
    assert(n == all.n_states[ITEM_FOUND]);
    assert(check_orphans(index) <= all.n - all.n_states[ITEM_FOUND]);
    radix_check(&index->radix, all.n_states[ITEM_FOUND]);
    check_spaces(index, &all);
}

void index_check(struct index *index)
{
    index_lock(index);
    check_all(index);
    index_unlock(index);
}

/* Looking at n items takes as long as some changes of one each; at many, which no cache holds, as long as more. */
void index_check_some(struct index *index)
{
    enum { FEW = 100, RARELY = 64 };
    size_t n = index->items.n;
    if (++index->since_check < (n <= FEW ? n : RARELY * n)) return;
    index->since_check = 0;
    check_all(index);
}

#else

void index_check(struct index *index)
{
    (void)index;
}

void index_check_some(struct index *index)
{
    (void)index;
}

#endif
