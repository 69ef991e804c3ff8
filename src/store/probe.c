/* Probes: what a server that others put slabs into as well (backend.h) has of some tokens. Its index knows what this
 * process has put there or found there, so before a lookup the server is asked for all blocks of the prompt in one
 * batch: blocks that it has are indexed, and blocks that it has evicted leave the index. Runs on threads that prepare
 * requests and, for what is about to be uploaded, on the tier's saver; never on an engine's thread. */
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "store/remote_backend.h"
#include "store/store_parts.h"

#include <stdlib.h>

void tier_adopt(struct tier *tier, const struct slab_head *head, uint64_t size)
{
    struct store *store = tier->store;
    index_adopt(tier->index, head, size, clock_unix_ms());
    struct index_usage usage = index_usage(tier->index);
    if (usage.bytes <= usage.budget) return;
    store_lock(store);
    tier->to_trim = true;
    pthread_cond_signal(&tier->saver.work);
    store_unlock(store);
}

/* The tokens stay the caller's. */
static struct slab_head head_of_block(const struct tier *tier, const struct block_range *range, int32_t block)
{
    int32_t stride = tier->store->params.stride;
    struct slab_head head = {.kind = SLAB_ROWS,
                             .reason = SLAB_COLD,
                             .identity = *range->identity,
                             .key = range->keys[block],
                             .start = block * stride,
                             .end = (block + 1) * stride,
                             .used_ms = clock_unix_ms()};
    head.tokens.v = (int32_t *)(uintptr_t)(range->tokens + head.start);
    head.tokens.len = (size_t)stride;
    if (block > 0) head.parent = range->keys[block - 1];
    return head;
}

static void note_block(struct tier *tier, const struct block_range *range, int32_t block,
                       const struct backend_probed *probed)
{
    if (probed->there) {
        struct slab_head head = head_of_block(tier, range, block);
        tier_adopt(tier, &head, probed->size);
        return;
    }
    struct victim *victim = index_drop_named(tier->index, &range->keys[block], SLAB_ROWS);
    if (victim != NULL) index_deleted(tier->index, victim);
}

int tier_probe(struct tier *tier, const struct block_range *range, struct backend_probed *probed)
{
    struct store *store = tier->store;
    size_t n = (size_t)(range->last - range->first);
    hearth_error error = {0};
    struct slab_name *names = mem_alloc((n + 1) * sizeof *names);
    for (size_t i = 0; i < n; i++) names[i] = (struct slab_name){range->keys[(size_t)range->first + i], SLAB_ROWS};
    int64_t deadline = clock_now(clock_monotonic()) + store->params.tiers[tier->id].probe_timeout_ns;
    int result = tier->backend->probe(tier->backend, names, n, probed, deadline, &error);
    free(names);
    metric_add(&store->stats.probes, 1);
    metric_add(&store->stats.probes_failed, result != 0);
    if (result != 0) tier_lose(tier, error.message);
    for (size_t i = 0; result == 0 && i < n; i++) note_block(tier, range, range->first + (int32_t)i, &probed[i]);
    return result;
}

/* How much of the query the other tiers have. */
static int32_t held_elsewhere(struct store *store, const struct block_range *range, int32_t n)
{
    int32_t most = 0;
    const struct index_lookup lookup = {.identity = range->identity, .tokens = range->tokens, .n = n};
    for (enum store_tier i = 0; i < STORE_TIERS; i++) {
        struct tier *tier = &store->tiers[i];
        struct match match;
        if (tier->index == NULL || tier_is_shared(tier) || !tier_serves(tier)) continue;
        index_find(tier->index, &lookup, &match);
        if (match.n_rows > most) most = match.n_rows;
        index_release(tier->index, &match);
    }
    return most;
}

void store_probe(struct store *store, const struct store_query *query)
{
    struct tier *tier = shared_tier(store);
    const struct store_codec *codec = &query->user->codec;
    if (tier == NULL || !codec->rows || codec->has_state) return;
    int32_t stride = store->params.stride;
    struct block_range range = {.identity = query->identity != NULL ? query->identity : &query->user->identity,
                                .tokens = query->tokens,
                                .last = query->n / stride};
    if (held_elsewhere(store, &range, query->n) / stride >= range.last) return;
    struct slab_key *keys = mem_alloc((size_t)(range.last + 1) * sizeof *keys);
    struct backend_probed *probed = mem_alloc((size_t)(range.last + 1) * sizeof *probed);
    slab_keys_at_strides(range.identity, range.tokens, (size_t)query->n, (size_t)stride, keys);
    range.keys = keys;
    tier_probe(tier, &range, probed);
    free(keys);
    free(probed);
}
