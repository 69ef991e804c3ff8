/* A pool of buffers that saves are copied out to. Touching fresh pages takes several times as long as copying to them,
 * and the copying thread is the engine's: so a few buffers are kept, the one given back last is handed out first, and
 * where none of a requested size is left, the saver thread allocates and touches one beforehand. A buffer is never
 * handed out for a size below half of its own. Guarded by the store's mutex. */
#include "base/memory.h"
#include "store/store_parts.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#define POOL_BYTES ((size_t)128 << 20)

/* Smaller ones are not prepared beforehand: touching them takes no time that counts. */
#define SPARE_BYTES ((size_t)1 << 20)

/* With the mutex: the number of a buffer for that size; n: there is none. */
static size_t buffers_find(const struct buffers *buffers, size_t size)
{
    for (size_t i = buffers->n; i-- > 0;) {
        size_t usable = malloc_usable_size(buffers->pool[i]);
        if (usable >= size && usable / 2 <= size) return i;
    }
    return buffers->n;
}

static void *buffers_take(struct buffers *buffers, size_t i)
{
    void *buffer = buffers->pool[i];
    buffers->bytes -= malloc_usable_size(buffer);
    buffers->n--;
    memmove(buffers->pool + i, buffers->pool + i + 1, (buffers->n - i) * sizeof(void *));
    return buffer;
}

/* With the mutex: has the saver prepare one of that size, if none is left. */
static void request_buffer(struct store *store, size_t size)
{
    struct buffers *buffers = &store->buffers;
    struct tier *tier = save_tier(store);
    if (tier->quota == 0 || size < SPARE_BYTES || size > POOL_BYTES / 2 || buffers_find(buffers, size) < buffers->n)
        return;
    buffers->wanted = size;
    pthread_cond_signal(&tier->saver.work);
}

void *store_buffer(struct store *store, size_t size)
{
    struct buffers *buffers = &store->buffers;
    store_lock(store);
    size_t i = buffers_find(buffers, size);
    void *found = i < buffers->n ? buffers_take(buffers, i) : NULL;
    request_buffer(store, size);
    store_unlock(store);
    return found != NULL ? found : malloc(size);
}

void store_expect(struct store *store, size_t size)
{
    store_lock(store);
    request_buffer(store, size);
    store_unlock(store);
}

/* Frees the buffers kept longest, as far as the pool would be too large. */
void buffers_give_back(struct store *store, void *buffer)
{
    struct buffers *buffers = &store->buffers;
    size_t usable = malloc_usable_size(buffer);
    if (usable > POOL_BYTES) {
        free(buffer);
        return;
    }
    void *evicted[POOLED_BUFFERS];
    size_t n_evicted = 0;
    store_lock(store);
    while (buffers->n - n_evicted == POOLED_BUFFERS || buffers->bytes + usable > POOL_BYTES) {
        evicted[n_evicted] = buffers->pool[n_evicted];
        buffers->bytes -= malloc_usable_size(evicted[n_evicted++]);
    }
    buffers->n -= n_evicted;
    memmove(buffers->pool, buffers->pool + n_evicted, buffers->n * sizeof(void *));
    buffers->pool[buffers->n++] = buffer;
    buffers->bytes += usable;
    store_unlock(store);
    while (n_evicted > 0) free(evicted[--n_evicted]);
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
