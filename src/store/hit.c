/* Lookups: the longest stored prefix of a prompt in every tier, and the best of them. The result, a store_hit, belongs
 * to the caller's thread until fetcher.c fetches it. Its slabs are pinned. Looking up calls saver.c, for prompts whose
 * parent is still in the queue of saves. */
#include "base/memory.h"
#include "store/store_struct.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- Slabs in memory: one copy for all hits that use its entry, freed with the last of them ---- */

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

/* ---- Waiting ---- */

static const struct identity *identity_of(const struct store_query *query)
{
    return query->identity != NULL ? query->identity : &query->user->identity;
}

/* With the mutex: whether the job saves a prefix of these tokens under the same identity, as a parent's save does. A
 * save of another identity must not delay the request, which would reveal it. */
static bool is_prefix(const struct save_job *job, const struct store_query *query)
{
    if (job == NULL || job->tokens.len > (size_t)query->n) return false;
    return identity_equal(&job->identity, identity_of(query)) &&
           memcmp(job->tokens.v, query->tokens, job->tokens.len * sizeof *query->tokens) == 0;
}

static bool is_queued(struct store *store, const struct store_query *query)
{
    const struct saver *saver = &save_tier(store)->saver;
    if (is_prefix(saver->current, query)) return true;
    const struct save_job *job = saver->first;
    while (job != NULL && !is_prefix(job, query)) job = job->next;
    return job != NULL;
}

bool store_parent_is_coming(struct store *store, const struct store_query *query, const struct store_user *waiter,
                            uint64_t *ticket)
{
    assert(query->parent_key != NULL && waiter != NULL && ticket != NULL);
    struct tier *tier = save_tier(store);
    store_lock(store);
    if (*ticket == 0) *ticket = tier->saver.last_ticket;
    bool coming = tier_takes_saves(tier) && tier->saver.done < *ticket && is_queued(store, query) &&
                  index_has(tier->index, query->parent_key) != INDEX_THERE;
    if (coming) saver_add_waiter(&tier->saver, waiter);
    store_unlock(store);
    return coming;
}

/* A scan that has just begun nearly always ends soon, and what it finds is worth waiting for; but only until
 * scan_grace_ns after the tier was first opened. */
void store_wait_scan(struct store *store, int64_t deadline)
{
    int64_t grace = store->params.scan_grace_ns;
    for (enum store_tier i = 0; i < STORE_TIERS; i++) {
        struct tier *tier = &store->tiers[i];
        if (tier->settled) continue; /* nearly always, and then without a lock that a writer might hold */
        int64_t until = tier->began + grace < deadline ? tier->began + grace : deadline;
        store_lock(store);
        while (!tier->settled && !tier->stalled && store_wait_changed(store, until)) {
        }
        store_unlock(store);
    }
}

/* ---- Finding ---- */

/* With recurrent/SWA state a prefix can be reused only up to a STATE entry. */
static bool needs_state(const struct store_codec *codec)
{
    return codec->has_state || !codec->rows;
}

static int32_t usable_tokens(const struct store_hit *hit, enum store_tier tier)
{
    const struct match *match = &hit->matches[tier];
    return needs_state(&hit->user->codec) ? match->n_state : match->n_rows;
}

/* Of equally long prefixes that of the first tier is chosen: the tiers are in the order of preference. */
static void choose_tier(struct store_hit *hit)
{
    hit->n = 0;
    for (enum store_tier i = 0; i < STORE_TIERS; i++) {
        if (!hit->searched[i] || usable_tokens(hit, i) <= hit->n) continue;
        hit->tier = i;
        hit->n = usable_tokens(hit, i);
    }
}

static struct index_lookup lookup_of(const struct store_hit *hit, const struct slab_key *keys, int64_t now_ms)
{
    return (struct index_lookup){.identity = &hit->identity,
                                 .tokens = hit->tokens.v,
                                 .n = (int32_t)hit->tokens.len,
                                 .keys = keys,
                                 .states = needs_state(&hit->user->codec),
                                 .now_ms = now_ms};
}

static void set_tokens(struct store_hit *hit, const int32_t *tokens, int32_t n)
{
    hit->tokens.len = 0;
    tokens_append(&hit->tokens, tokens, (size_t)n);
}

struct store_hit *store_find(struct store *store, const struct store_query *query)
{
    assert(query->n >= 0 && (query->tokens != NULL || query->n == 0));
    struct store_hit *hit = mem_alloc(sizeof *hit);
    hit->store = store;
    hit->user = query->user;
    hit->identity = *identity_of(query);
    hit->has_parent_key = query->parent_key != NULL;
    if (hit->has_parent_key) hit->parent_key = *query->parent_key;
    set_tokens(hit, query->tokens, query->n);
    store_wait_scan(store, query->deadline);
    for (enum store_tier i = 0; i < STORE_TIERS; i++) hit->searched[i] = tier_serves(&store->tiers[i]);
    size_t stride = (size_t)store->params.stride;
    struct slab_key *keys = mem_alloc((hit->tokens.len / stride + 1) * sizeof *keys);
    slab_keys_at_strides(&hit->identity, hit->tokens.v, hit->tokens.len, stride, keys);
    const struct index_lookup lookup = lookup_of(hit, keys, clock_unix_ms());
    for (enum store_tier i = 0; i < STORE_TIERS; i++) {
        if (!hit->searched[i]) continue;
        index_find(store->tiers[i].index, &lookup, &hit->matches[i]);
        metric_add(&store->stats.longest_prefix_probes, hit->matches[i].probes);
    }
    free(keys);
    choose_tier(hit);
    return hit;
}

void store_find_again(struct store_hit *hit, const int32_t *tokens, int32_t n)
{
    assert(!hit->fetching);
    assert(n >= 0 && (tokens != NULL || n == 0));
    set_tokens(hit, tokens, n);
    struct index_lookup lookup = lookup_of(hit, NULL, 0);
    for (enum store_tier i = 0; i < STORE_TIERS; i++)
        if (hit->searched[i]) index_find_again(hit->store->tiers[i].index, &lookup, &hit->matches[i]);
    choose_tier(hit);
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
    assert(tier < STORE_TIERS);
    return hit->searched[tier] ? usable_tokens(hit, tier) : 0;
}

int32_t store_hit_common(const struct store_hit *hit, enum store_tier *tier)
{
    assert(tier != NULL);
    int32_t most = 0;
    for (enum store_tier i = 0; i < STORE_TIERS; i++) {
        const struct match *match = &hit->matches[i];
        int32_t common = match->n_rows > match->n_state ? match->n_rows : match->n_state;
        if (!hit->searched[i] || common <= most) continue;
        *tier = i;
        most = common;
    }
    return most;
}

bool store_note_divergence(struct store *store, const struct store_query *query, struct divergence *divergence,
                           enum store_tier *tier)
{
    assert(divergence != NULL && tier != NULL);
    bool nearer = false;
    for (enum store_tier i = 0; i < STORE_TIERS; i++) {
        if (!tier_serves(&store->tiers[i]) ||
            !index_note_divergence(store->tiers[i].index, identity_of(query), query->tokens, query->n, divergence))
            continue;
        *tier = i;
        nearer = true;
    }
    return nearer;
}

int32_t store_common(struct store *store, const struct store_query *query)
{
    int32_t most = 0;
    for (enum store_tier i = 0; i < STORE_TIERS; i++) {
        if (!tier_serves(&store->tiers[i])) continue;
        int32_t common = index_common(store->tiers[i].index, identity_of(query), query->tokens, query->n);
        if (common > most) most = common;
    }
    return most;
}

/* Tokens of one way that are copied at once, with the index's mutex. */
#define WAY_TOKENS 1024

size_t store_ways_on(struct store *store, const struct store_query *query, struct tokens *ways, size_t max)
{
    size_t n = 0;
    for (enum store_tier i = 0; i < STORE_TIERS; i++)
        if (tier_serves(&store->tiers[i]))
            n += index_ways_on(store->tiers[i].index, identity_of(query), query->tokens, query->n, ways + n, max - n,
                               WAY_TOKENS);
    return n;
}

bool store_hit_key(const struct store_hit *hit, enum store_tier tier, struct slab_key *key)
{
    assert(tier < STORE_TIERS && key != NULL);
    const struct match *match = &hit->matches[tier];
    const struct entry *entry = needs_state(&hit->user->codec) ? match->state : match->rows;
    if (!hit->searched[tier] || entry == NULL) return false;
    *key = entry->key;
    return true;
}

/* The part of the prompt that the tier of saves has; the caller releases the match. False: there is no index yet. The
 * index knows what is stored, also while the tier is out of service. */
static bool find_covered(struct store *store, const struct store_query *query, bool states, struct match *match)
{
    struct tier *tier = save_tier(store);
    struct index_lookup lookup = {
        .identity = identity_of(query), .tokens = query->tokens, .n = query->n, .states = states};
    *match = (struct match){0};
    if (tier->index == NULL) return false;
    index_find(tier->index, &lookup, match);
    return true;
}

int32_t store_block_start(struct store *store, const struct store_query *query, int32_t from)
{
    assert(from >= 0);
    struct tier *tier = upload_tier(store);
    int32_t stride = store->params.stride, start = from - from % stride;
    bool whole = query->n - start >= stride, tail = query->user->codec.has_state && query->n % stride > 0;
    if (tier == NULL || start == from || (!whole && !tail)) return from;
    int32_t end = whole ? start + stride : query->n;
    struct match match;
    struct index_lookup lookup = {.identity = identity_of(query), .tokens = query->tokens, .n = end};
    index_find(tier->index, &lookup, &match);
    int32_t uploaded = match.n_rows;
    index_release(tier->index, &match);
    return uploaded == end ? from : start;
}

int32_t store_covered(struct store *store, const struct store_query *query)
{
    struct slab_key last;
    return store_covered_key(store, query, &last);
}

int32_t store_covered_key(struct store *store, const struct store_query *query, struct slab_key *key)
{
    bool rows = query->user->codec.rows;
    struct match match;
    if (!find_covered(store, query, !rows, &match)) return 0;
    const struct entry *entry = rows ? match.rows : match.state;
    int32_t n = rows ? match.n_rows : match.n_state;
    if (entry != NULL) *key = entry->key;
    index_release(save_tier(store)->index, &match);
    return n;
}

bool store_has_state(struct store *store, const struct store_query *query)
{
    struct match match;
    bool known = find_covered(store, query, true, &match), has = match.n_state == query->n;
    if (known) index_release(save_tier(store)->index, &match);
    return has;
}

enum store_tier store_hit_tier(const struct store_hit *hit)
{
    return hit->tier;
}

/* Of the slabs of a match that hold tokens from `from` on, each read whole. */
static double read_ns(struct tier *tier, const struct store_codec *codec, const struct match *match, int32_t from,
                      int32_t to)
{
    const struct entry *state = needs_state(codec) ? match->state : NULL;
    const struct entry *rows = !codec->rows ? NULL : state != NULL ? state->parent : match->rows;
    double requests = state != NULL, bytes = state != NULL ? (double)state->size : 0;
    for (; rows != NULL && rows->end > from; rows = rows->parent) {
        if (rows->start >= to) continue;
        requests++;
        bytes += (double)rows->size;
    }
    store_lock(tier->store);
    double ns = read_cost_ns(&tier->read_cost, requests, bytes, clock_now(clock_monotonic()));
    store_unlock(tier->store);
    return ns;
}

double store_hit_read_ns(const struct store_hit *hit, int32_t from, int32_t to)
{
    assert(0 <= from && from <= to);
    return read_ns(&hit->store->tiers[hit->tier], &hit->user->codec, &hit->matches[hit->tier], from, to);
}

void store_choose_tier(struct store_hit *hit, double token_ns)
{
    assert(!hit->fetching);
    double least = 0;
    int32_t most = 0;
    for (enum store_tier i = 0; i < STORE_TIERS; i++)
        most = store_hit_tokens_in(hit, i) > most ? store_hit_tokens_in(hit, i) : most;
    for (enum store_tier i = 0; i < STORE_TIERS && token_ns > 0; i++) {
        int32_t n = store_hit_tokens_in(hit, i);
        if (n == 0) continue;
        double ns = read_ns(&hit->store->tiers[i], &hit->user->codec, &hit->matches[i], 0, n) + (most - n) * token_ns;
        if (least > 0 && ns >= least) continue;
        least = ns;
        hit->tier = i;
        hit->n = n;
    }
}

double store_read_back_ns(struct store *store, const struct store_query *query, int32_t n_tokens)
{
    struct tier *tier = save_tier(store);
    const struct store_codec *codec = &query->user->codec;
    struct match match;
    if (!find_covered(store, query, needs_state(codec), &match)) return -1;
    int32_t covered = needs_state(codec) ? match.n_state : match.n_rows;
    double ns = covered < query->n ? -1 : read_ns(tier, codec, &match, query->n - n_tokens, query->n);
    index_release(tier->index, &match);
    return ns;
}

uint64_t store_save_quota(const struct store *store)
{
    return store->params.tiers[store->params.save_tier].quota;
}

static bool descends_from(const struct entry *entry, const struct slab_key *key)
{
    while (entry != NULL && !slab_key_equal(&entry->key, key)) entry = entry->parent;
    return entry != NULL;
}

void store_hit_count(struct store_hit *hit, int32_t used)
{
    assert(used <= (int32_t)hit->tokens.len);
    struct store_stats *stats = &hit->store->stats;
    const struct match *match = &hit->matches[hit->tier];
    if (used <= 0)
        metric_add(&stats->misses, 1);
    else if (hit->has_parent_key &&
             (descends_from(match->state, &hit->parent_key) || descends_from(match->rows, &hit->parent_key)))
        metric_add(&stats->hits_resume, 1);
    else if (used == (int32_t)hit->tokens.len)
        metric_add(&stats->hits_exact, 1);
    else
        metric_add(&stats->hits_longest_prefix, 1);
}
