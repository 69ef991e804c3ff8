/* A binary heap whose items know where they are in it: any of them can be taken out, or moved after its rank changed,
 * in O(log n).
 *
 * Belongs to whoever owns the items. */
#ifndef STORE_HEAP_H
#define STORE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct heap_link {
    uint32_t at; /* 1 + its index in the heap; 0: it is in none */
};

struct heap {
    bool (*before)(const struct heap_link *a, const struct heap_link *b);
    struct heap_link **v;
    uint32_t n, cap;
};

/* Each does nothing where there is nothing to do: add, if it is there already; remove, if it is in no heap. */
void heap_add(struct heap *heap, struct heap_link *item);
void heap_remove(struct heap *heap, struct heap_link *item);

struct heap_link *heap_first(const struct heap *heap); /* NULL: the heap is empty */
void heap_release(struct heap *heap);                  /* not the items */

#endif
