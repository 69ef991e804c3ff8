/* The end of an order that the library carries out on a thread of its own, and its answer: {"success": true}, or the
 * error. An order that was given is carried out, whether or not its client is still there. HTTP thread only, but for
 * order_end_note(). */
#ifndef SERVE_STATUS_ORDER_END_H
#define SERVE_STATUS_ORDER_END_H

#include "serve/core/call.h"

struct order_end;

struct order_end *order_end_open(struct call *call);

/* A hearth_ordered_fn, whose `ud` is the struct order_end: any thread, once for an order that was given. */
void order_end_note(void *ud, const hearth_error *error);

/* After the order was given: waits for its end, or (`refused`) answers with that. */
void order_end_watch(struct order_end *end, hearth_error *refused);

#endif
