/* The routes of the KV cache: what it has, lookups, stored conversations, and orders about a conversation in the cells
 * or in the store. An order that was given is carried out on a thread of the library's, whether or not its client is
 * still there. HTTP thread only, except parsing, the end of an order, which comes back by a post, and lists, which are
 * made on an answering thread. No state. */
#ifndef SERVE_STATUS_CACHE_ROUTES_H
#define SERVE_STATUS_CACHE_ROUTES_H

#include "serve/core/call.h"

void cache_status(struct call *call);                           /* GET /cache: tiers and counters */
void cache_put_status(struct buf *out, const hearth *instance); /* its body */

/* POST /cache/lookup: how much of a prompt is cached, and where; any API's body. */
void cache_lookup(struct call *call);

/* POST /cache/resident: an order about a conversation in the KV cells. The body is {"model", "seq_id", "hash",
 * "order"}, where GET /cache shows the first three and the last is keep, release or evict; without a model, the one
 * that answers requests without one. */
void resident_orders_give(struct call *call);

/* GET /cache/stored lists stored conversations, newest first: ?limit= of them (50, at most 100), ?after= the `next` of
 * the page before. No text of a conversation is ever shown: the store does not know whose it is. */
void stored_list(struct call *call);

/* POST /cache/stored: an order about a stored one, {"tier", "key", "order"}, where the list shows the first two and the
 * last is keep, release or drop. */
void stored_order(struct call *call);

#endif
