/* Devices of other machines: llama.cpp's RPC servers (ggml-rpc-server), which take layers of a model as a GPU does.
 *
 * llama.cpp ends the process when a server does not answer, or goes away while a model uses it: so each is asked first,
 * here. docs/models.md describes the failures that no check can prevent. Any thread. */
#ifndef LLM_RPC_H
#define LLM_RPC_H

#include "hearth.h"

#include <ggml-backend.h>
#include <stddef.h>

/* Says that one more model uses these servers ("host:port"), and greets those that no model of this process uses. Fails
 * with HEARTH_UNAVAILABLE where one does not answer within seconds, speaks another version of the protocol, or has no
 * devices. Fails with HEARTH_INVALID where one has no address or they are more than llama.cpp has room for. After a
 * failure the model uses none of them. */
int llm_rpc_open(const char *const *endpoints, size_t n, hearth_error *error);

/* The devices of these servers, in their order, then the machine's own: each card once, those within processors only
 * where there is no other. As llama.cpp chooses them by itself. A NULL ends them, and free() frees them. The servers
 * are in use. */
ggml_backend_dev_t *llm_rpc_devices(const char *const *endpoints, size_t n);

/* The model that used them is gone. */
void llm_rpc_close(const char *const *endpoints, size_t n);

#endif
