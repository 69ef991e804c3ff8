/* The order of last use and who makes room. Touching an entry touches what it hangs on after it: so the oldest come
 * first in a single pass, and whoever is reached has been preceded by all that could go before it. */
#include "base/memory.h"
#include "store/node.h"

#include <stdlib.h>

static void add_newest(struct index *index, struct node *node)
{
    node->newer = NULL;
    node->older = index->newest;
    *(node->older != NULL ? &node->older->newer : &index->oldest) = node;
    index->newest = node;
}

void order_add_oldest(struct index *index, struct node *node)
{
    index_require_held(index);
    node->older = NULL;
    node->newer = index->oldest;
    *(node->newer != NULL ? &node->newer->older : &index->newest) = node;
    index->oldest = node;
}

void order_remove(struct index *index, struct node *node)
{
    index_require_held(index);
    *(node->newer != NULL ? &node->newer->older : &index->newest) = node->older;
    *(node->older != NULL ? &node->older->newer : &index->oldest) = node->newer;
}

/* What was dropped has no place in the order any more, but what it hangs on has. */
void order_touch(struct index *index, struct node *node, int64_t now_ms)
{
    for (; node != NULL; node = node_of(node->entry.parent)) {
        if (node->stage != STAGE_THERE) continue;
        order_remove(index, node);
        add_newest(index, node);
        node->used_ms = now_ms;
    }
}

uint32_t index_touch(struct index *index, struct entry *entry, int64_t now_ms)
{
    index_lock(index);
    order_touch(index, node_of(entry), now_ms);
    uint32_t hits = ++node_of(entry)->hits;
    index_unlock(index);
    return hits;
}

/* ---- Making room ---- */

void victims_add(struct victims *victims, struct node *node)
{
    node->victim.next = NULL;
    if (victims->last == NULL)
        victims->first = node;
    else
        victims->last->victim.next = &node->victim;
    victims->last = node;
}

static struct node *next_victim(const struct node *node)
{
    return node->victim.next == NULL ? NULL : hash_item(struct node, victim, node->victim.next);
}

/* Choosing and evicting are two steps, so that a reservation that cannot be met costs nobody anything. */
uint64_t order_choose(struct index *index, uint64_t need, struct victims *victims)
{
    index_require_held(index);
    uint64_t bytes = 0;
    for (struct node *node = index->oldest; node != NULL && bytes < need; node = node->newer) {
        if (node->refs - node->n_chosen > 1) continue;
        victims_add(victims, node);
        bytes += node->entry.size;
        if (node->entry.parent != NULL) node_of(node->entry.parent)->n_chosen++;
    }
    for (struct node *node = victims->first; node != NULL; node = next_victim(node))
        if (node->entry.parent != NULL) node_of(node->entry.parent)->n_chosen = 0;
    return bytes;
}

struct victim *order_evict(struct index *index, const struct victims *victims, struct node *room_for)
{
    index_require_held(index);
    for (struct node *node = victims->first; node != NULL; node = next_victim(node)) {
        node_retire(index, node);
        index->evictions++;
        node->room_for = room_for;
        if (room_for != NULL) room_for->refs++;
    }
    return victims->first == NULL ? NULL : &victims->first->victim;
}

/* ---- After a start ---- */

struct used {
    struct node *node;
    size_t position;
};

static int by_use(const void *a, const void *b)
{
    const struct used *one = a, *other = b;
    if (one->node->used_ms != other->node->used_ms) return one->node->used_ms < other->node->used_ms ? -1 : 1;
    return one->position < other->position ? -1 : 1;
}

/* By the time of last use. Of the same time, those stay as they are, so that what hangs on something, and is older in
 * the order, is never moved behind it. */
static void sort_by_use(struct index *index)
{
    struct used *all = mem_grow(NULL, index->n_entries, sizeof *all);
    size_t n = 0;
    for (struct node *node = index->oldest; node != NULL; node = node->newer) {
        struct node *parent = node_of(node->entry.parent);
        if (parent != NULL && parent->used_ms < node->used_ms) parent->used_ms = node->used_ms;
        all[n] = (struct used){node, n};
        n++;
    }
    if (n > 0) qsort(all, n, sizeof *all, by_use);
    index->oldest = index->newest = NULL;
    for (size_t i = 0; i < n; i++) add_newest(index, all[i].node);
    free(all);
}

struct victim *index_settle(struct index *index)
{
    index_lock(index);
    sort_by_use(index);
    struct victims victims = {0};
    if (index->bytes > index->budget) order_choose(index, index->bytes - index->budget, &victims);
    struct victim *first = order_evict(index, &victims, NULL);
    index_unlock(index);
    return first;
}
