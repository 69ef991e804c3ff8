/* Slabs in memory, each once for all hits that use its entry. With the store's mutex. */
#include "base/memory.h"
#include "store/store_parts.h"

#include <stdlib.h>

struct image *image_use(struct entry *entry)
{
    if (entry->user == NULL) entry->user = mem_alloc(sizeof(struct image));
    struct image *image = entry->user;
    image->users++;
    return image;
}

/* A slab is freed without the mutex: that takes longer than all that is done with it. */
void image_drop(struct entry *entry, struct image *image, struct image **garbage)
{
    if (--image->users > 0) return;
    entry->user = NULL;
    image->next = *garbage;
    *garbage = image;
}

void image_free(void *user)
{
    struct image *image = user;
    if (image == NULL) return;
    slab_bytes_unref(image->bytes);
    free(image);
}

void images_free(struct image *first)
{
    while (first != NULL) {
        struct image *next = first->next;
        image_free(first);
        first = next;
    }
}
