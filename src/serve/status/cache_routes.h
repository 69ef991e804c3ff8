/* What is warm, and where. HTTP thread only; no state. */
#ifndef SERVE_STATUS_CACHE_ROUTES_H
#define SERVE_STATUS_CACHE_ROUTES_H

#include "serve/core/call.h"

void cache_status(struct call *call); /* GET /cache: tiers and counters, at once */
void cache_lookup(struct call *call); /* POST /cache/lookup: of one prompt, in any API's body */

#endif
