/* Catches llama.cpp's exceptions: see guard.h. No state; the thread of the context. */
#include "llm/guard.h"

#include <cstdio>
#include <exception>

static int32_t guarded(int32_t (*call)(llama_context *, llama_batch), llama_context *context, llama_batch batch,
                       char *fault, size_t size)
{
    try {
        return call(context, batch);
    } catch (const std::exception &exception) {
        std::snprintf(fault, size, "%s", exception.what());
    } catch (...) {
        std::snprintf(fault, size, "an exception of no known kind");
    }
    return LLM_THREW;
}

int32_t llm_guarded_decode(llama_context *context, llama_batch batch, char *fault, size_t size)
{
    return guarded(llama_decode, context, batch, fault, size);
}

int32_t llm_guarded_encode(llama_context *context, llama_batch batch, char *fault, size_t size)
{
    return guarded(llama_encode, context, batch, fault, size);
}
