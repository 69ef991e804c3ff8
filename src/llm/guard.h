/* llama.cpp's calls that may throw, for C: an exception that reached a C function would end the process. Setting its
 * buffers up again, as after a change of adapters, throws where there is no memory for them. */
#ifndef LLM_GUARD_H
#define LLM_GUARD_H

#include <llama.h>

#ifdef __cplusplus
extern "C" {
#endif

/* llama_decode()'s results, and one that it does not have: it threw, and any sequence may have other cells now. */
#define LLM_THREW (-100)

/* As llama_decode() and llama_encode(); `fault`, of `size` bytes, is what an exception said. */
int32_t llm_guarded_decode(struct llama_context *context, struct llama_batch batch, char *fault, size_t size);
int32_t llm_guarded_encode(struct llama_context *context, struct llama_batch batch, char *fault, size_t size);

#ifdef __cplusplus
}
#endif

#endif
