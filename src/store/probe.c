/* Probes ask a server that others put slabs into as well (backend.h) how much of some tokens it has. Its index knows
 * only slabs that this process has put there or found there, so before a lookup the server is asked. It is asked for
 * all blocks of the prompt in one batch. Where a model needs states it is asked for hints at these, and for the longest
 * that are named. Slabs that it has are indexed, and those that it has evicted leave the index. Runs on threads that
 * prepare requests or encode media and, for what is about to be uploaded, on the tier's saver; never on an engine's
 * thread. */
#include "base/memory.h"
#include "store/store_struct.h"

#include <stdlib.h>

/* States that are asked for, the longest first. */
enum { MOST_CANDIDATES = 16 };

/* ---- The index ---- */

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

static void note_probed(struct tier *tier, const struct slab_head *head, const struct backend_probed *probed)
{
    if (probed->there) {
        tier_adopt(tier, head, probed->size);
        return;
    }
    struct victim *victim = index_drop_named(tier->index, &head->key, head->kind);
    if (victim != NULL) index_deleted(tier->index, victim);
}

/* ---- Asking ---- */

static int64_t answer_until(const struct tier *tier, int64_t until)
{
    int64_t times_out = clock_now(clock_monotonic()) + tier->store->params.tiers[tier->id].probe_timeout_ns;
    return until != 0 && until < times_out ? until : times_out;
}

static bool is_too_late(int64_t until)
{
    return until != 0 && clock_now(clock_monotonic()) >= until;
}

/* A caller that could not wait for the server's time-out does not know that it is away. */
static int count_probe(struct tier *tier, int result, int64_t until, const hearth_error *error)
{
    metric_add(&tier->store->stats.probes, 1);
    metric_add(&tier->store->stats.probes_failed, result != 0);
    if (result != 0 && !is_too_late(until)) tier_lose(tier, error->message);
    return result;
}

/* Once the time is over no server is asked: a command that is sent and not waited for would cost a good connection. */
int tier_ask(struct tier *tier, const struct slab_name *names, size_t n, struct backend_probed *probed, int64_t until)
{
    hearth_error error = {0};
    if (is_too_late(until)) return HEARTH_UNAVAILABLE;
    int result = tier->backend->probe(tier->backend, names, n, probed, answer_until(tier, until), &error);
    return count_probe(tier, result, until, &error);
}

/* ---- Blocks ---- */

struct slab_key key_before_block(const struct block_range *range, int32_t block)
{
    return block > 0 ? range->keys[block - 1] : slab_key_of(range->identity, range->tokens, 0);
}

/* The tokens stay the caller's. */
static struct slab_head head_of_slab(const struct block_range *range, enum slab_kind kind, int32_t start, int32_t end)
{
    struct slab_head head = {.kind = kind,
                             .reason = SLAB_COLD,
                             .identity = *range->identity,
                             .start = start,
                             .end = end,
                             .used_ms = clock_unix_ms()};
    head.tokens.v = (int32_t *)(uintptr_t)(range->tokens + start);
    head.tokens.len = (size_t)(end - start);
    return head;
}

int tier_probe(struct tier *tier, const struct block_range *range, struct backend_probed *probed)
{
    size_t n = (size_t)(range->last - range->first);
    struct slab_name *names = mem_alloc((n + 1) * sizeof *names);
    for (size_t i = 0; i < n; i++) names[i] = (struct slab_name){range->keys[(size_t)range->first + i], SLAB_ROWS};
    int result = n == 0 ? 0 : tier_ask(tier, names, n, probed, range->until);
    free(names);
    for (size_t i = 0; result == 0 && i < n; i++) {
        int32_t block = range->first + (int32_t)i, stride = tier->store->params.stride;
        struct slab_head head = head_of_slab(range, SLAB_ROWS, block * stride, (block + 1) * stride);
        head.key = range->keys[block];
        if (block > 0) head.parent = range->keys[block - 1];
        note_probed(tier, &head, &probed[i]);
    }
    return result;
}

/* ---- States ---- */

/* A prefix at whose end there may be a state. */
struct candidate {
    int32_t end;
    struct slab_key key;
};

struct candidates {
    struct candidate v[MOST_CANDIDATES];
    size_t n;
};

static int by_offset_down(const void *a, const void *b)
{
    uint32_t one = *(const uint32_t *)a, other = *(const uint32_t *)b;
    return (one < other) - (one > other);
}

/* The positions that are named of the blocks [0, reach] of n tokens, the longest first. */
static int find_candidates(struct tier *tier, const struct block_range *range, int32_t reach, int32_t n,
                           struct candidates *found)
{
    int32_t stride = tier->store->params.stride, blocks = (n + stride - 1) / stride;
    if (blocks > reach + 1) blocks = reach + 1;
    hearth_error error = {0};
    if (is_too_late(range->until)) return HEARTH_UNAVAILABLE;
    struct backend_hints *hints = mem_alloc((size_t)(blocks + 1) * sizeof *hints);
    struct slab_key *before = mem_alloc((size_t)(blocks + 1) * sizeof *before);
    for (int32_t i = 0; i < blocks; i++) before[i] = key_before_block(range, i);
    int result = tier->backend->read_hints(tier->backend, before, (size_t)blocks, hints,
                                           answer_until(tier, range->until), &error);
    count_probe(tier, result, range->until, &error);
    for (int32_t block = blocks; result == 0 && block-- > 0;) {
        uint32_t *offsets = hints[block].offsets;
        qsort(offsets, hints[block].n, sizeof *offsets, by_offset_down);
        for (size_t i = 0; i < hints[block].n && found->n < MOST_CANDIDATES; i++) {
            bool again = i > 0 && offsets[i - 1] == offsets[i];
            if (offsets[i] == 0 || offsets[i] > (uint32_t)stride || again) continue;
            if ((int32_t)offsets[i] > n - block * stride) continue;
            int32_t end = block * stride + (int32_t)offsets[i];
            found->v[found->n++] = (struct candidate){end, slab_key_of(range->identity, range->tokens, (size_t)end)};
        }
    }
    free(before);
    free(hints);
    return result;
}

/* Asks for the candidates' states and, of a model with rows, for the rows that lead to them. */
static void probe_candidates(struct tier *tier, const struct block_range *range, const struct candidates *found,
                             bool rows)
{
    struct slab_name names[2 * MOST_CANDIDATES];
    struct backend_probed probed[2 * MOST_CANDIDATES];
    size_t each = rows ? 2 : 1;
    for (size_t i = 0; i < found->n; i++) {
        names[each * i] = (struct slab_name){found->v[i].key, SLAB_STATE};
        if (rows) names[each * i + 1] = (struct slab_name){found->v[i].key, SLAB_ROWS};
    }
    if (found->n == 0 || tier_ask(tier, names, each * found->n, probed, range->until) != 0) return;
    for (size_t i = 0; i < found->n; i++) {
        const struct candidate *at = &found->v[i];
        struct slab_head state = head_of_slab(range, SLAB_STATE, rows ? at->end : 0, at->end);
        state.key = at->key;
        if (rows) state.parent = at->key;
        /* The rows between the last block before the state and the state. */
        int32_t stride = tier->store->params.stride, block = (at->end - 1) / stride;
        struct slab_head tail = head_of_slab(range, SLAB_ROWS, block * stride, at->end);
        tail.key = at->key;
        if (block > 0) tail.parent = range->keys[block - 1];
        if (rows) note_probed(tier, &tail, &probed[each * i + 1]);
        note_probed(tier, &state, &probed[each * i]);
    }
}

/* ---- A lookup ---- */

/* How much of the query the other tiers have. */
static int32_t held_elsewhere(struct store *store, const struct block_range *range, int32_t n, bool states)
{
    int32_t most = 0;
    const struct index_lookup lookup = {.identity = range->identity, .tokens = range->tokens, .n = n, .states = states};
    for (enum store_tier i = 0; i < STORE_TIERS; i++) {
        struct tier *tier = &store->tiers[i];
        struct match match;
        if (tier->index == NULL || tier_is_shared(tier) || !tier_serves(tier)) continue;
        index_find(tier->index, &lookup, &match);
        int32_t held = states ? match.n_state : match.n_rows;
        if (held > most) most = held;
        index_release(tier->index, &match);
    }
    return most;
}

void store_probe(struct store *store, const struct store_query *query)
{
    struct tier *tier = shared_tier(store);
    const struct store_codec *codec = &query->user->codec;
    int32_t stride = store->params.stride, n = query->n;
    bool states = codec->has_state || !codec->rows;
    if (tier == NULL || n <= 0) return;
    struct block_range range = {.identity = query->identity != NULL ? query->identity : &query->user->identity,
                                .tokens = query->tokens,
                                .last = n / stride,
                                .until = query->probe_until};
    /* Less than a block is not worth a question; but a state may be all that there is. */
    int32_t held = held_elsewhere(store, &range, n, states);
    bool pays = states ? held == 0 || n - held >= stride : n / stride > held / stride;
    if (!pays) return;
    struct slab_key *keys = mem_alloc((size_t)(range.last + 1) * sizeof *keys);
    slab_keys_at_strides(range.identity, range.tokens, (size_t)n, (size_t)stride, keys);
    range.keys = keys;
    struct backend_probed *probed = mem_alloc((size_t)(range.last + 1) * sizeof *probed);
    int result = codec->rows ? tier_probe(tier, &range, probed) : 0;
    int32_t reach = codec->rows ? 0 : range.last;
    while (reach < range.last && probed[reach].there) reach++;
    free(probed);
    struct candidates found = {.n = 0};
    if (result == 0 && states && find_candidates(tier, &range, reach, n, &found) == 0)
        probe_candidates(tier, &range, &found, codec->rows);
    free(keys);
}
