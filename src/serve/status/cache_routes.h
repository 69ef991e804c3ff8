/* The routes of the KV cache: status of the tiers, and cache lookups. No state; the status on an answering thread. */
#ifndef SERVE_STATUS_CACHE_ROUTES_H
#define SERVE_STATUS_CACHE_ROUTES_H

#include "serve/core/call.h"

void cache_status(struct call *call);                           /* GET /cache: tiers and counters */
void cache_put_status(struct buf *out, const hearth *instance); /* its body */
void cache_lookup(
    struct call *call); /* POST /cache/lookup: how much of a prompt is cached, and where; any API's body */

#endif
