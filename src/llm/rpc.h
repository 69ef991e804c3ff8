/* Devices of other machines: llama.cpp's RPC servers (ggml-rpc-server), which take layers of a model as a GPU does.
 *
 * llama.cpp ends the process when a server does not answer, or goes away while a model uses it: so each is asked
 * first, here. What no check can prevent is told in docs/models.md. Any thread. */
#ifndef LLM_RPC_H
#define LLM_RPC_H

#include "hearth.h"

#include <ggml-backend.h>
#include <stddef.h>

/* The devices of these servers ("host:port"), in their order, then the machine's own GPUs; a NULL ends them, and free()
 * frees them. NULL: a server does not answer within seconds, or speaks another version of the protocol; the error
 * names it. */
ggml_backend_dev_t *llm_rpc_devices(const char *const *endpoints, size_t n, hearth_error *error);

#endif
