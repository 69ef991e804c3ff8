/* POST /cache/resident: orders about conversations in the KV cells. The body is {"model", "seq_id", "hash", "order"},
 * where GET /cache shows the first three and the last is keep, release or evict; without a model, the one that answers
 * requests without one. HTTP thread only, except parsing and the end of an order, which comes back by a post. */
#ifndef SERVE_STATUS_RESIDENT_ORDERS_H
#define SERVE_STATUS_RESIDENT_ORDERS_H

#include "serve/core/call.h"

void resident_orders_give(struct call *call);

#endif
