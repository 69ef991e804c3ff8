/* What /cache prints: how much of a conversation is cached, and what the cache holds. Pure functions. */
#ifndef CLI_CHAT_CACHE_TEXT_H
#define CLI_CHAT_CACHE_TEXT_H

#include "base/buf.h"
#include "hearth.h"

/* Appends a line. */
void cache_text_put_lookup(struct buf *out, const hearth_cache_lookup *lookup);

/* Appends a line for each tier that is on. */
void cache_text_put_tiers(struct buf *out, const hearth_cache *cache);

#endif
