/* Memory that saves are copied out to. Touching fresh pages takes several times as long as copying to them, and whoever
 * copies out has other things to do: a few buffers are kept, the one given back last is taken first, and where there is
 * none left of a size that was asked for, the saver touches one beforehand. A buffer never stands for one of less than
 * half its size. */
#include "base/memory.h"
#include "store/store_parts.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#define POOL_BYTES ((size_t)128 << 20)

/* Smaller ones are touched as fast as anybody could ask for them. */
#define SPARE_BYTES ((size_t)1 << 20)

/* With the mutex: the place of a buffer for that size; n: there is none. */
static size_t find(const struct buffers *buffers, size_t size)
{
    for (size_t i = buffers->n; i-- > 0;) {
        size_t usable = malloc_usable_size(buffers->pool[i]);
        if (usable >= size && usable / 2 <= size) return i;
    }
    return buffers->n;
}

static void *take(struct buffers *buffers, size_t i)
{
    void *buffer = buffers->pool[i];
    buffers->bytes -= malloc_usable_size(buffer);
    buffers->n--;
    memmove(buffers->pool + i, buffers->pool + i + 1, (buffers->n - i) * sizeof(void *));
    return buffer;
}

/* With the mutex: there should be one more of that size soon. */
static void ask_for(struct store *store, size_t size)
{
    struct buffers *buffers = &store->buffers;
    struct tier *tier = save_tier(store);
    if (tier->quota == 0 || size < SPARE_BYTES || size > POOL_BYTES / 2 || find(buffers, size) < buffers->n) return;
    buffers->wanted = size;
    pthread_cond_signal(&tier->saver.work);
}

void *store_buffer(struct store *store, size_t size)
{
    struct buffers *buffers = &store->buffers;
    store_lock(store);
    size_t i = find(buffers, size);
    void *found = i < buffers->n ? take(buffers, i) : NULL;
    ask_for(store, size);
    store_unlock(store);
    return found != NULL ? found : malloc(size);
}

void store_expect(struct store *store, size_t size)
{
    store_lock(store);
    ask_for(store, size);
    store_unlock(store);
}

/* Those kept longest are freed for it. */
void buffers_give_back(struct store *store, void *buffer)
{
    struct buffers *buffers = &store->buffers;
    size_t usable = malloc_usable_size(buffer);
    if (usable > POOL_BYTES) {
        free(buffer);
        return;
    }
    void *gone[POOLED_BUFFERS];
    size_t n_gone = 0;
    store_lock(store);
    while (buffers->n - n_gone == POOLED_BUFFERS || buffers->bytes + usable > POOL_BYTES) {
        gone[n_gone] = buffers->pool[n_gone];
        buffers->bytes -= malloc_usable_size(gone[n_gone++]);
    }
    buffers->n -= n_gone;
    memmove(buffers->pool, buffers->pool + n_gone, buffers->n * sizeof(void *));
    buffers->pool[buffers->n++] = buffer;
    buffers->bytes += usable;
    store_unlock(store);
    while (n_gone > 0) free(gone[--n_gone]);
}

void buffers_make_wanted(struct store *store)
{
    store_lock(store);
    size_t size = store->buffers.wanted;
    store->buffers.wanted = 0;
    store_unlock(store);
    void *buffer = size > 0 ? malloc(size) : NULL;
    if (buffer == NULL) return;
    memset(buffer, 0, size);
    buffers_give_back(store, buffer);
}

void buffers_release(struct buffers *buffers)
{
    while (buffers->n > 0) free(buffers->pool[--buffers->n]);
}
