/* Layouts of media, remembered in a table of a few hundred: see layouts.h. One mutex guards it. */
#include "lib/media/layouts.h"

#include "base/memory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* A layout has some kilobytes, most of them in places of rows. */
#define REMEMBERED 256

/* ---- One layout ---- */

static struct llm_place *places_of(const struct llm_medium *medium, size_t chunk, int32_t n)
{
    struct llm_place *places = mem_alloc((size_t)n * sizeof *places);
    for (int32_t i = 0; i < n; i++) places[i] = llm_medium_place(medium, chunk, 0, i);
    return places;
}

struct media_layout *layout_of(const struct llm_medium *medium, bool mrope)
{
    size_t n = llm_medium_chunks(medium);
    struct media_layout *layout = mem_alloc(sizeof *layout + n * sizeof *layout->v);
    atomic_init(&layout->refs, 1);
    layout->n = n;
    for (size_t i = 0; i < n; i++) {
        struct llm_chunk chunk = llm_medium_chunk(medium, i);
        layout->v[i] = (struct layout_chunk){.n = chunk.n, .n_pos = chunk.n_pos, .causal = chunk.causal};
        if (chunk.tokens == NULL) {
            if (mrope) layout->v[i].places = places_of(medium, i, chunk.n);
            continue;
        }
        layout->v[i].tokens = mem_alloc(((size_t)chunk.n + 1) * sizeof(int32_t));
        memcpy(layout->v[i].tokens, chunk.tokens, (size_t)chunk.n * sizeof(int32_t));
    }
    return layout;
}

static struct media_layout *hold(struct media_layout *layout)
{
    if (layout != NULL) atomic_fetch_add(&layout->refs, 1);
    return layout;
}

void layout_release(struct media_layout *layout)
{
    if (layout == NULL || atomic_fetch_sub(&layout->refs, 1) > 1) return;
    for (size_t i = 0; i < layout->n; i++) {
        free(layout->v[i].tokens);
        free(layout->v[i].places);
    }
    free(layout);
}

/* ---- The table ---- */

struct entry {
    uint8_t digest[SHA256_BYTES];
    struct media_layout *layout; /* NULL: the entry is free */
    uint64_t used;
};

struct layouts {
    pthread_mutex_t mutex; /* guards what follows */
    struct entry v[REMEMBERED];
    uint64_t uses;
};

struct layouts *layouts_open(void)
{
    struct layouts *layouts = mem_alloc(sizeof *layouts);
    pthread_mutex_init(&layouts->mutex, NULL);
    return layouts;
}

void layouts_close(struct layouts *layouts)
{
    if (layouts == NULL) return;
    for (size_t i = 0; i < REMEMBERED; i++) layout_release(layouts->v[i].layout);
    pthread_mutex_destroy(&layouts->mutex);
    free(layouts);
}

/* The entry with that digest, else a free one, else the one that was used least recently. */
static struct entry *entry_for(struct layouts *layouts, const uint8_t digest[SHA256_BYTES])
{
    struct entry *oldest = &layouts->v[0];
    for (size_t i = 0; i < REMEMBERED; i++) {
        struct entry *entry = &layouts->v[i];
        if (entry->layout != NULL && memcmp(entry->digest, digest, SHA256_BYTES) == 0) return entry;
        if (entry->used < oldest->used) oldest = entry;
    }
    return oldest;
}

struct media_layout *layouts_find(struct layouts *layouts, const uint8_t digest[SHA256_BYTES])
{
    pthread_mutex_lock(&layouts->mutex);
    struct entry *entry = entry_for(layouts, digest);
    bool known = entry->layout != NULL && memcmp(entry->digest, digest, SHA256_BYTES) == 0;
    if (known) entry->used = ++layouts->uses;
    struct media_layout *layout = known ? hold(entry->layout) : NULL;
    pthread_mutex_unlock(&layouts->mutex);
    return layout;
}

void layouts_add(struct layouts *layouts, const uint8_t digest[SHA256_BYTES], struct media_layout *layout)
{
    pthread_mutex_lock(&layouts->mutex);
    struct entry *entry = entry_for(layouts, digest);
    struct media_layout *former = entry->layout;
    memcpy(entry->digest, digest, SHA256_BYTES);
    entry->layout = hold(layout);
    entry->used = ++layouts->uses;
    pthread_mutex_unlock(&layouts->mutex);
    layout_release(former);
}
