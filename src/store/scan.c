/* The scanner: what earlier processes left in the folders becomes known, in an order in which parents come before what
 * hangs on them. What hangs on nothing can never be found again and goes. */
#include "base/log.h"
#include "base/memory.h"
#include "store/private.h"

#include <stdlib.h>
#include <string.h>

struct found {
    struct slab_head head;
    uint64_t size;
};

struct look {
    struct found *v;
    size_t n, cap;
};

static void take(void *ud, struct slab_head *head, uint64_t size)
{
    struct look *look = ud;
    if (look->n == look->cap) {
        look->cap = look->cap == 0 ? 256 : 2 * look->cap;
        look->v = mem_grow(look->v, look->cap, sizeof *look->v);
    }
    free(head->regions); /* most of the head, and of no use to the index */
    head->regions = NULL;
    head->n_regions = 0;
    look->v[look->n++] = (struct found){.head = *head, .size = size};
    memset(head, 0, sizeof *head);
}

static int by_start(const void *a, const void *b)
{
    const struct slab_head *x = &((const struct found *)a)->head, *y = &((const struct found *)b)->head;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    return (x->kind > y->kind) - (x->kind < y->kind);
}

/* Returns how many hang on nothing. */
static size_t adopt_all(struct tier *tier, struct look *look)
{
    size_t orphans = 0;
    hearth_error error = {0};
    if (look->n > 0) qsort(look->v, look->n, sizeof *look->v, by_start);
    for (size_t i = 0; i < look->n; i++) {
        const struct slab_head *head = &look->v[i].head;
        if (index_adopt(tier->index, head, look->v[i].size, clock_unix_ms())) continue;
        folder_remove(tier->folder, &head->key, head->kind, &error);
        orphans++;
    }
    return orphans;
}

static void settle(struct store *store, struct tier *tier)
{
    hearth_error error = {0};
    tier_doom(store, tier, index_drop_detached(tier->index));
    tier_doom(store, tier, index_trim(tier->index));
    if (tier_tidy(store, tier, &error) != 0) tier_trouble(store, tier, error.message);
}

/* A folder that cannot be listed may hold anything: nothing is added to it. */
static void give_up(struct store *store, struct tier *tier, const hearth_error *error)
{
    store_lock(store);
    tier->on = false;
    store_unlock(store);
    tier_trouble(store, tier, error->message);
}

static void look_through(struct store *store, struct tier *tier)
{
    struct look look = {0};
    struct folder_scan scan = {.each = take, .ud = &look, .stop = &store->stop_scan};
    hearth_error error = {0};
    int64_t started = clock_now(clock_monotonic());
    int result = folder_scan(tier->folder, &scan, &error);
    if (result != 0) {
        give_up(store, tier, &error);
    } else if (atomic_load(&store->stop_scan)) {
        tier->on = false; /* what it holds is not known: nothing may be added */
    } else {
        size_t orphans = adopt_all(tier, &look);
        settle(store, tier);
        metric_add(&store->stats.corrupt_files, (int64_t)scan.n_bad);
        log_event(LOG_INFO, LOG_GROUP, "looked through a tier", log_str("tier", store_tier_names[tier->id]),
                  log_int("slabs", (int64_t)scan.n_slabs), log_int("damaged", (int64_t)scan.n_bad),
                  log_int("orphans", (int64_t)orphans), log_int("foreign", (int64_t)scan.n_strange),
                  log_num("took_ms", clock_to_ms(clock_now(clock_monotonic()) - started)));
    }
    for (size_t i = 0; i < look.n; i++) slab_head_release(&look.v[i].head);
    free(look.v);
}

void *scan_main(void *ud)
{
    struct store *store = ud;
    for (enum store_tier i = 0; i < STORE_TIERS; i++) {
        struct tier *tier = &store->tiers[i];
        if (tier->ready) continue; /* nobody else makes it so */
        look_through(store, tier);
        store_lock(store);
        tier->ready = true;
        pthread_cond_broadcast(&store->changed);
        store_unlock(store);
    }
    return NULL;
}
