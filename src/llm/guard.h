/* llama_decode() and llama_encode() with their C++ exceptions caught: an exception that reached a C function would end
 * the process. llama.cpp throws where it reserves its compute buffers anew, as after a change of adapters, and lacks
 * memory. */
#ifndef LLM_GUARD_H
#define LLM_GUARD_H

#include <llama.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A result beside llama_decode()'s own: it threw, and any sequence may hold other cells now. */
#define LLM_THREW (-100)

/* As llama_decode() and llama_encode(); `fault`, of `size` bytes, gets the exception's message. */
int32_t llm_guarded_decode(struct llama_context *context, struct llama_batch batch, char *fault, size_t size);
int32_t llm_guarded_encode(struct llama_context *context, struct llama_batch batch, char *fault, size_t size);

#ifdef __cplusplus
}
#endif

#endif
