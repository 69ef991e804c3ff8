/* The adapters of a model, in llama-server's form; of which model says the query `model`, without it it is the first.
 * HTTP thread only; no state. */
#ifndef SERVE_ADAPTERS_H
#define SERVE_ADAPTERS_H

#include "serve/call.h"

void adapters_list(struct call *call); /* GET /lora-adapters */
void adapters_set(struct call *call);  /* POST /lora-adapters: scales of requests that name no adapters */

#endif
