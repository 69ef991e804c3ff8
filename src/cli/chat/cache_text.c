/* The text of /cache: see cache_text.h. */
#include "cli/chat/cache_text.h"

void cache_text_put_lookup(struct buf *out, const hearth_cache_lookup *lookup)
{
    buf_printf(out, "%d of %d tokens of this conversation are cached: %d in KV cells", lookup->reusable, lookup->prompt,
               lookup->resident);
    for (size_t i = 0; hearth_tier_name(i) != NULL; i++)
        if (lookup->tiers[i] > 0) buf_printf(out, ", %d in %s", lookup->tiers[i], hearth_tier_name(i));
    buf_puts(out, "\n");
}

void cache_text_put_tiers(struct buf *out, const hearth_cache *cache)
{
    for (size_t i = 0; i < HEARTH_TIERS; i++)
        if (cache->tiers[i].on)
            buf_printf(out, "%s: %llu entries, %.1f of %.0f MB%s%s\n", cache->tiers[i].name,
                       (unsigned long long)cache->tiers[i].entries, (double)cache->tiers[i].bytes / 1e6,
                       (double)cache->tiers[i].quota_bytes / 1e6, cache->tiers[i].trouble[0] != '\0' ? ": " : "",
                       cache->tiers[i].trouble);
}
