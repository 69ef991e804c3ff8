/* The policy of each kind of memory and layout: see cache_policy.h. */
#include "engine/cache_policy.h"

#include "engine/plan.h"

/* With a stream of cells for each sequence a prefix is shared by copying a whole stream, which takes about as long as
 * computing this part of its tokens. */
#define COPYING_PART 64

struct cache_policy cache_policy_of(const struct cache_policy_facts *facts)
{
    bool conversations = facts->caching == ENGINE_CACHES_CONVERSATIONS;
    bool exact_states = !facts->unified && !facts->has_window;
    bool loads_states = exact_states || !facts->deterministic;
    /* With a stream of cells each, idle cells take nothing from others. There is no price where cells cannot be cut,
     * since a conversation that leaves also loses its checkpoints in memory. */
    bool stays = !conversations || !facts->unified || (facts->idle == ENGINE_IDLE_PRICED && !facts->cuts_anywhere);
    return (struct cache_policy){
        .keeps_conversations = conversations,
        .keeps_system_prompts = facts->caching == ENGINE_CACHES_SYSTEM,
        .min_tokens = facts->min_tokens,
        .chunk = facts->deterministic ? PREFILL_CHUNK : 1,
        .one_pool = facts->unified,
        .cuts_anywhere = facts->cuts_anywhere,
        .loads_states = loads_states,
        .checkpoints = conversations && !facts->cuts_anywhere && loads_states,
        .shares_parts = facts->cuts_anywhere || facts->unified,
        .shares_for_free = facts->cuts_anywhere && facts->unified,
        .idle = stays ? ENGINE_IDLE_STAYS : facts->idle,
        .queues_for_slot = conversations && !facts->unified,
        .sharing_cost = facts->unified ? 0 : facts->window / COPYING_PART,
    };
}

bool cache_policy_keeps(const struct cache_policy *policy)
{
    return policy->keeps_conversations || policy->keeps_system_prompts;
}

int32_t prefill_chunk_end(const struct media_spans *media, int32_t n)
{
    int32_t end = n / PREFILL_CHUNK * PREFILL_CHUNK;
    for (size_t i = 0; i < media->len && media->v[i].at <= n; i++) {
        int32_t behind = media->v[i].at + media->v[i].n, last = behind <= n ? behind : media->v[i].at;
        if (last > end) end = last;
    }
    return end;
}

int32_t cache_policy_whole(const struct cache_policy *policy, const struct media_spans *media, int32_t n)
{
    n = media_spans_told(media, n);
    return media_spans_whole(media, policy->chunk == 1 ? n : prefill_chunk_end(media, n));
}

int32_t cache_policy_exact(const struct cache_policy *policy, int32_t n, int32_t n_exact)
{
    return policy->chunk == 1 || n <= n_exact ? n : n_exact;
}

int32_t cache_policy_worth(const struct cache_policy *policy, int32_t n)
{
    return n >= policy->min_tokens ? n : 0;
}
