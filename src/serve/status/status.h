/* Status routes: health, models, slots, Prometheus metrics. HTTP thread, or answering threads where
 * the table of routes says so. */
#ifndef SERVE_STATUS_STATUS_H
#define SERVE_STATUS_STATUS_H

#include "serve/core/call.h"

void status_root(struct call *call);
void status_liveness(struct call *call);
void status_health(struct call *call);
void status_models(struct call *call);
void status_model(struct call *call);
void status_slots(struct call *call);
void status_put_slots(struct buf *out, const hearth *instance); /* the body of GET /slots */
void status_slot_action(struct call *call);                     /* POST /slots/{id} */
void status_metrics(struct call *call);

/* Finds a model by name (NULL: the first) and its index. False: the call has been answered with 404. */
bool status_find_model(struct call *call, const char *name, size_t *index, hearth_model_info *info);

#endif
