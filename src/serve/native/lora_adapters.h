/* The routes of a model's LoRA adapters, in llama-server's form. The query parameter `model` names the model;
 * default: the first. HTTP thread only; no state. */
#ifndef SERVE_NATIVE_LORA_ADAPTERS_H
#define SERVE_NATIVE_LORA_ADAPTERS_H

#include "serve/core/call.h"

void adapters_list(struct call *call); /* GET /lora-adapters */
void adapters_set(struct call *call);  /* POST /lora-adapters: sets the scales for requests without "lora" */

#endif
