/* The adapters of a model, in llama-server's form; of which model says the query `model`, without it it is the first.
 * HTTP thread only; no state. */
#ifndef SERVE_NATIVE_LORA_ADAPTERS_H
#define SERVE_NATIVE_LORA_ADAPTERS_H

#include "serve/core/call.h"

void adapters_list(struct call *call); /* GET /lora-adapters */
void adapters_set(struct call *call);  /* POST /lora-adapters: scales of requests that name no adapters */

#endif
