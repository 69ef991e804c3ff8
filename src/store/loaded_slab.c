/* Slabs in memory: one copy for all hits that use its entry, freed with the last of them. Under the store's mutex. */
#include "base/memory.h"
#include "store/store_parts.h"

#include <stdlib.h>

struct loaded_slab *loaded_slab_ref(struct entry *entry)
{
    if (entry->user == NULL) entry->user = mem_alloc(sizeof(struct loaded_slab));
    struct loaded_slab *loaded = entry->user;
    loaded->refs++;
    return loaded;
}

/* Slabs are freed without the mutex: freeing one takes longer than everything that is done under it. */
void loaded_slab_unref(struct entry *entry, struct loaded_slab *loaded, struct loaded_slab **garbage)
{
    if (--loaded->refs > 0) return;
    entry->user = NULL;
    loaded->next = *garbage;
    *garbage = loaded;
}

void loaded_slab_free(void *user)
{
    struct loaded_slab *loaded = user;
    if (loaded == NULL) return;
    slab_bytes_unref(loaded->bytes);
    free(loaded);
}

void loaded_slabs_free(struct loaded_slab *first)
{
    while (first != NULL) {
        struct loaded_slab *next = first->next;
        loaded_slab_free(first);
        first = next;
    }
}
