/* Fuzzes bodies of POST /v1/messages. */
#include "fuzz_body.h"
#include "serve/anthropic/anthropic.h"

static void *open_state(const struct fields *fields, const json_t *given)
{
    (void)fields, (void)given;
    return anthropic_state("id", "demo");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct fuzz_api api = {
        .route = FIELDS_CHAT, .fields = &anthropic_api, .dialect = &anthropic_dialect, .open = open_state};
    return fuzz_body(&api, data, size);
}
