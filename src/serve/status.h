/* What is going on: health, models, slots, metrics. Each answers its call at once. HTTP thread only. */
#ifndef SERVE_STATUS_H
#define SERVE_STATUS_H

#include "serve/call.h"

void status_liveness(struct call *call);
void status_health(struct call *call);
void status_models(struct call *call);
void status_model(struct call *call);
void status_slots(struct call *call);
void status_metrics(struct call *call);

#endif
