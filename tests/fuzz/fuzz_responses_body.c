/* Fuzzes bodies of POST /v1/responses. */
#include "fuzz_body.h"
#include "serve/responses/responses.h"

static void *open_state(const struct fields *fields, const json_t *given)
{
    const struct responses_names names = {"demo", "id", 1, fields->timings_per_token};
    struct responses_tools *tools = responses_tools_open(given);
    struct buf echo = {0};
    responses_put_echo(&echo, given);
    return responses_state(&names, &echo, &tools);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct fuzz_api api = {
        .route = FIELDS_CHAT, .fields = &responses_api, .dialect = &responses_dialect, .open = open_state};
    return fuzz_body(&api, data, size);
}
