/* The tokenizer cache of a model: the tokens of texts that were tokenised before, chunk by chunk. So only the new part
 * of the next turn of a conversation is tokenised. A chunk is recognised by SHA-256 over its whole text and all that
 * its tokens depend on, so that the cache has the tokens that tokenising it again would give.
 *
 * Any thread. A lock is held while a chunk is looked up and its tokens are copied, never while one is hashed or
 * tokenised. */
#ifndef LLM_TOKENIZER_CACHE_H
#define LLM_TOKENIZER_CACHE_H

#include "base/metrics.h"

#include <stddef.h>

struct llm_tokenizer_cache;

struct llm_tokenizer_stats {
    metric_value tokenised_bytes, cached_bytes; /* of texts that were tokenised, or whose tokens were found */
};

/* For one model. Holds at most so many bytes: the chunks that were used least recently are evicted. `stats` outlives
 * it. */
struct llm_tokenizer_cache *llm_tokenizer_cache_open(size_t bytes, struct llm_tokenizer_stats *stats);
void llm_tokenizer_cache_close(struct llm_tokenizer_cache *cache); /* NULL is fine */

#endif
