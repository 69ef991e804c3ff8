/* Which KV cells may be kept and reused, and what sharing them costs. It is decided once, when the context opens: from
 * what the configuration caches, the kind of memory that the model has, and the layout of the cells. All code that
 * plans reuse, cuts, evicts or saves asks this policy, so that each kind of memory is one row here and not a condition
 * everywhere. A value without pointers; the engine's thread reads it. */
#ifndef ENGINE_CACHE_POLICY_H
#define ENGINE_CACHE_POLICY_H

#include "base/media_spans.h"

#include <stdbool.h>
#include <stdint.h>

/* The part of a request that is kept for later ones. */
enum engine_caching {
    ENGINE_CACHES_NOTHING,
    ENGINE_CACHES_SYSTEM,       /* system prompt cache (SPC): a snapshot of the system prompt, outside the cells */
    ENGINE_CACHES_CONVERSATIONS /* incremental message cache (IMC): all its cells */
};

/* How long an idle conversation that is stored stays in the cells. It leaves when room is needed, when staying has cost
 * as much as bringing it back would (idle.c), or when another one is computed. */
enum engine_idle { ENGINE_IDLE_STAYS, ENGINE_IDLE_PRICED, ENGINE_IDLE_LEAVES };

struct cache_policy_facts {
    enum engine_caching caching;
    enum engine_idle idle;
    int32_t min_tokens; /* cache_min_tokens */
    int32_t window;     /* cells of a stream of cells */
    bool deterministic;
    bool unified;       /* one pool of cells for all sequences; else a stream of cells each */
    bool cuts_anywhere; /* no recurrent state, and no sliding window or a full one: llm_cuts_anywhere() */
    bool has_window;    /* a sliding window, full or not: llm_has_window() */
};

struct cache_policy {
    bool keeps_conversations;  /* a request's cells stay resident when it ends (IMC) */
    bool keeps_system_prompts; /* its system prompt stays as a snapshot (SPC) */
    int32_t min_tokens;        /* fewer tokens are computed again rather than reused */
    int32_t chunk; /* what is reused ends at a multiple of it, or at an end of a medium, and was computed in such
                      chunks: PREFILL_CHUNK where replies are deterministic, else 1 */

    bool one_pool;      /* a further sequence takes nobody's cells away, and shares a prefix without copying it */
    bool cuts_anywhere; /* cells can be cut and shared at any position; else at checkpoints */
    bool loads_states;  /* snapshots, checkpoints and stored cells may be loaded. Not where that must give the bits of
                           before and cannot: in one pool they land in other cells, a window that has wrapped around
                           continues in another order */

    /* These follow from the ones above. */
    bool checkpoints;     /* checkpoints are saved where later prompts may diverge */
    bool shares_parts;    /* a prefix of another sequence can be shared; else all of it or nothing */
    bool shares_for_free; /* ... at any position without a copy, so that a fetch begins with what is shared */
    enum engine_idle idle;
    bool queues_for_slot; /* a request may wait for the slot that has its conversation, since another one would be taken
                             from a conversation */
    int32_t sharing_cost; /* of one share, in tokens to compute, since it copies a whole stream; 0 in one pool */
};

struct cache_policy cache_policy_of(const struct cache_policy_facts *facts);

/* Whether anything is kept for later requests. */
bool cache_policy_keeps(const struct cache_policy *policy);

/* The leading tokens, of the first n of a prompt with these media, that may be kept and reused: whole chunks and whole
 * media, which are told from all others. */
int32_t cache_policy_whole(const struct cache_policy *policy, const struct media_spans *media, int32_t n);

/* Where the last chunk of the first n tokens ends. Chunks end at multiples of PREFILL_CHUNK, before each medium and
 * behind it: their ends depend on the tokens alone. */
int32_t prefill_chunk_end(const struct media_spans *media, int32_t n);

/* The leading cells, of n, that are the same whoever computes them; the first n_exact were computed in whole chunks. */
int32_t cache_policy_exact(const struct cache_policy *policy, int32_t n, int32_t n_exact);

/* n, or 0 where that is too few to be worth reusing. */
int32_t cache_policy_worth(const struct cache_policy *policy, int32_t n);

#endif
