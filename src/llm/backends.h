/* Backends of llama.cpp. The usual build has them in the program. A portable one has them in files beside llama.cpp's
 * library: one for each kind of processor, one of RPC servers, and those of GPUs that the user puts there. Any thread,
 * after llm_init(). */
#ifndef LLM_BACKENDS_H
#define LLM_BACKENDS_H

#include "hearth.h"

#include <ggml-backend.h>
#include <stdbool.h>

/* Loads the backends that lie in the folder, or beside llama.cpp's library (NULL). Of those for processors it takes the
 * fastest that runs here. */
void llm_load_backends(const char *folder);

/* The backend that computes on the processor; NULL: it is missing. */
ggml_backend_reg_t llm_processor(void);

/* HEARTH_UNSUPPORTED: it is missing, without which llama.cpp loads no model, or ends the process. */
int llm_check_processor(hearth_error *error);

/* A function of the backend of that name ("CPU", "RPC"), which a portable build does not link; NULL: there is none.
 * `function` points to a pointer to a function of the right type. */
bool llm_find_function(const char *backend, const char *name, void *function);

#endif
