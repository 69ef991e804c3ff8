/* A binary heap whose items know their index in it: any item can be removed, or moved after its rank changed, in O(log
 * n). Whoever owns the items guards the heap. */
#ifndef STORE_INDEX_HEAP_H
#define STORE_INDEX_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct heap_link {
    uint32_t at; /* 1 + its index in the heap; 0: it is in no heap */
};

struct heap {
    bool (*before)(const struct heap_link *a, const struct heap_link *b);
    struct heap_link **v;
    uint32_t n, cap;
};

/* Adding an item that is in the heap, or removing one that is not, does nothing. */
void heap_add(struct heap *heap, struct heap_link *item);
void heap_remove(struct heap *heap, struct heap_link *item);

struct heap_link *heap_first(const struct heap *heap); /* NULL: the heap is empty */
void heap_release(struct heap *heap);                  /* not the items */

#endif
