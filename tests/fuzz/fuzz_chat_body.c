/* Bytes as the body of POST /v1/chat/completions. */
#include "fuzz_body.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_body(&openai_chat_form, data, size);
}
