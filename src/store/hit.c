/* Looking for the longest stored prefix, in every tier. */
#include "base/memory.h"
#include "store/private.h"

#include <stdlib.h>
#include <string.h>

/* ---- Waiting ---- */

static bool is_there(struct store *store, const struct key *key)
{
    struct tier *tier = &store->tiers[store->params.save_tier];
    return tier->index != NULL && index_has(tier->index, key) == INDEX_THERE;
}

/* With the mutex: whether the save is of a prefix of these tokens, as a parent's is. */
static bool is_prefix(const struct job *job, const struct store_query *query)
{
    const struct tokens asked = {.v = (int32_t *)(uintptr_t)query->tokens, .len = (size_t)query->n};
    return job != NULL && tokens_common_prefix(&job->tokens, &asked) == job->tokens.len;
}

static bool may_be_coming(const struct store *store, const struct store_query *query)
{
    if (is_prefix(store->saver.current, query)) return true;
    const struct job *job = store->saver.first;
    while (job != NULL && !is_prefix(job, query)) job = job->next;
    return job != NULL;
}

/* For the folders; and for the parent, as long as it may be among the saves that were queued when it was asked for.
 * Some key that nobody is writing holds nobody up. */
static void wait_for_query(struct store *store, const struct store_query *query)
{
    bool waiting = true;
    if (query->parent_key == NULL && store_is_ready(store))
        return; /* as nearly always: no lock that a writer might hold */
    store_lock(store);
    for (enum store_tier i = 0; i < STORE_TIERS; i++)
        while (!store->tiers[i].ready && waiting) waiting = store_wait_changed(store, query->deadline);
    uint64_t ticket = store->saver.last_ticket;
    while (query->parent_key != NULL && waiting && store->saver.done < ticket && may_be_coming(store, query) &&
           !is_there(store, query->parent_key))
        waiting = store_wait_changed(store, query->deadline);
    store_unlock(store);
}

/* ---- Finding ---- */

/* Where a part cannot be cut, a prefix can be gone on from only at a state. */
static bool uses_states(const struct store_hit *hit)
{
    return hit->user->codec.moves || !hit->user->codec.rows;
}

static int32_t usable(const struct store_hit *hit, enum store_tier tier)
{
    const struct match *match = &hit->matches[tier];
    return uses_states(hit) ? match->n_state : match->n_rows;
}

/* The tiers stand in the order of preference. */
static void choose(struct store_hit *hit)
{
    hit->n = 0;
    for (enum store_tier i = 0; i < STORE_TIERS; i++) {
        if (!hit->searched[i] || usable(hit, i) <= hit->n) continue;
        hit->tier = i;
        hit->n = usable(hit, i);
    }
}

static struct wanted wanted_of(const struct store_hit *hit, const struct key *keys)
{
    return (struct wanted){.identity = &hit->identity,
                           .tokens = hit->tokens.v,
                           .n = (int32_t)hit->tokens.len,
                           .keys = keys,
                           .states = uses_states(hit)};
}

static void set_tokens(struct store_hit *hit, const int32_t *tokens, int32_t n)
{
    hit->tokens.len = 0;
    tokens_append(&hit->tokens, tokens, (size_t)n);
}

static void search(struct store_hit *hit)
{
    struct store *store = hit->store;
    size_t stride = (size_t)store->params.stride;
    struct key *keys = mem_alloc((hit->tokens.len / stride + 1) * sizeof *keys);
    keys_at_strides(&hit->identity, hit->tokens.v, hit->tokens.len, stride, keys);
    struct wanted wanted = wanted_of(hit, keys);
    for (enum store_tier i = 0; i < STORE_TIERS; i++) {
        if (!hit->searched[i]) continue;
        index_find(store->tiers[i].index, &wanted, &hit->matches[i]);
        metric_add(&store->stats.longest_prefix_probes, hit->matches[i].probes);
    }
    free(keys);
}

struct store_hit *store_find(struct store *store, const struct store_query *query)
{
    struct store_hit *hit = mem_alloc(sizeof *hit);
    hit->store = store;
    hit->user = query->user;
    hit->identity = query->identity != NULL ? *query->identity : query->user->identity;
    hit->has_parent_key = query->parent_key != NULL;
    if (hit->has_parent_key) hit->parent_key = *query->parent_key;
    set_tokens(hit, query->tokens, query->n);
    wait_for_query(store, query);
    for (enum store_tier i = 0; i < STORE_TIERS; i++) hit->searched[i] = store->tiers[i].on;
    search(hit);
    choose(hit);
    return hit;
}

void store_find_again(struct store_hit *hit, const int32_t *tokens, int32_t n)
{
    set_tokens(hit, tokens, n);
    struct wanted wanted = wanted_of(hit, NULL);
    for (enum store_tier i = 0; i < STORE_TIERS; i++)
        if (hit->searched[i]) index_find_again(hit->store->tiers[i].index, &wanted, &hit->matches[i]);
    choose(hit);
}

void hit_release(struct store_hit *hit)
{
    for (enum store_tier i = 0; i < STORE_TIERS; i++)
        if (hit->searched[i]) index_release(hit->store->tiers[i].index, &hit->matches[i]);
    tokens_release(&hit->tokens);
    buf_release(&hit->joined);
    free(hit->parts);
    free(hit);
}

/* ---- What was found ---- */

int32_t store_hit_tokens(const struct store_hit *hit)
{
    return hit->n;
}

int32_t store_hit_covered(const struct store_hit *hit)
{
    enum store_tier tier = hit->store->params.save_tier;
    if (!hit->searched[tier]) return 0;
    return hit->user->codec.rows ? hit->matches[tier].n_rows : hit->matches[tier].n_state;
}

int32_t store_hit_tokens_in(const struct store_hit *hit, enum store_tier tier)
{
    return hit->searched[tier] ? usable(hit, tier) : 0;
}

bool store_hit_key(const struct store_hit *hit, enum store_tier tier, struct key *key)
{
    const struct match *match = &hit->matches[tier];
    const struct entry *entry = uses_states(hit) ? match->state : match->rows;
    if (!hit->searched[tier] || entry == NULL) return false;
    *key = entry->key;
    return true;
}

int32_t store_covered(struct store *store, const struct store_query *query)
{
    struct store_hit *hit = store_find(store, query);
    int32_t covered = store_hit_covered(hit);
    store_hit_close(hit);
    return covered;
}

enum store_tier store_hit_tier(const struct store_hit *hit)
{
    return hit->tier;
}

static bool hangs_on(const struct entry *entry, const struct key *key)
{
    while (entry != NULL && !key_equal(&entry->key, key)) entry = entry->parent;
    return entry != NULL;
}

void store_hit_count(struct store_hit *hit, int32_t used)
{
    struct store_stats *stats = &hit->store->stats;
    const struct match *match = &hit->matches[hit->tier];
    if (used <= 0)
        metric_add(&stats->misses, 1);
    else if (hit->has_parent_key &&
             (hangs_on(match->state, &hit->parent_key) || hangs_on(match->rows, &hit->parent_key)))
        metric_add(&stats->hits_resume, 1);
    else if (used == (int32_t)hit->tokens.len)
        metric_add(&stats->hits_exact, 1);
    else
        metric_add(&stats->hits_longest_prefix, 1);
}
