/* Fuzzes bodies of POST /v1/completions. */
#include "fuzz_body.h"

static void *open_state(const struct fields *fields, const json_t *given)
{
    const struct openai_names names = {"demo", "id", 1};
    (void)given;
    hearth_error error;
    return openai_state(&openai_completion_form, fields, &names, &error);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct fuzz_api api = {.route = FIELDS_COMPLETION, .dialect = &openai_dialect, .open = open_state};
    return fuzz_body(&api, data, size);
}
