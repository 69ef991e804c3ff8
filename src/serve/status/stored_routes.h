/* Stored conversations. GET /cache/stored lists them, newest first: ?limit= of them (50, at most 100), ?after= the
 * `next` of the page before. POST /cache/stored gives an order about one: {"tier", "key", "order"}, where the list
 * shows the first two and the last is keep, release or drop. No text of a conversation is ever shown: the store does
 * not know whose it is. The list is made on an answering thread. */
#ifndef SERVE_STATUS_STORED_ROUTES_H
#define SERVE_STATUS_STORED_ROUTES_H

#include "serve/core/call.h"

void stored_list(struct call *call);
void stored_order(struct call *call);

#endif
