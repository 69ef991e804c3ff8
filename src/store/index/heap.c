/* The heap of heap.h: an array of pointers, and each item's index kept up to date. */
#include "store/index/heap.h"

#include "base/memory.h"

#include <stdlib.h>

static void put(struct heap *heap, uint32_t i, struct heap_link *item)
{
    heap->v[i] = item;
    item->at = i + 1;
}

static void sift_up(struct heap *heap, uint32_t i, struct heap_link *item)
{
    for (uint32_t above; i > 0 && heap->before(item, heap->v[above = (i - 1) / 2]); i = above)
        put(heap, i, heap->v[above]);
    put(heap, i, item);
}

static void sift_down(struct heap *heap, uint32_t i, struct heap_link *item)
{
    for (uint32_t below; (below = 2 * i + 1) < heap->n; i = below) {
        if (below + 1 < heap->n && heap->before(heap->v[below + 1], heap->v[below])) below++;
        if (!heap->before(heap->v[below], item)) break;
        put(heap, i, heap->v[below]);
    }
    put(heap, i, item);
}

void heap_add(struct heap *heap, struct heap_link *item)
{
    if (item->at != 0) return;
    if (heap->n == heap->cap) {
        heap->cap = heap->cap == 0 ? 16 : heap->cap + heap->cap / 2;
        heap->v = mem_grow(heap->v, heap->cap, sizeof(struct heap_link *));
    }
    heap->n++;
    sift_up(heap, heap->n - 1, item);
}

void heap_remove(struct heap *heap, struct heap_link *item)
{
    if (item->at == 0) return;
    uint32_t i = item->at - 1;
    struct heap_link *last = heap->v[--heap->n];
    item->at = 0;
    if (last == item) return;
    if (i > 0 && heap->before(last, heap->v[(i - 1) / 2]))
        sift_up(heap, i, last);
    else
        sift_down(heap, i, last);
}

struct heap_link *heap_first(const struct heap *heap)
{
    return heap->n == 0 ? NULL : heap->v[0];
}

void heap_release(struct heap *heap)
{
    free(heap->v);
    heap->v = NULL;
    heap->n = heap->cap = 0;
}
