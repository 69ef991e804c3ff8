/* Fuzzes bodies of POST /completion, which are answered in the native form, whole and streamed. */
#include "fuzz_body.h"

#include "serve/native/native.h"

static void answer_natively(const struct fields *fields, void *state, size_t n)
{
    struct answer *answers = calloc(n, sizeof *answers);
    struct buf out = {0};
    for (size_t i = 0; i < n; i++) answers[i].sampling = &fields->params.sampling;
    native_dialect.done(state, n - 1, &answers[n - 1], &out);
    buf_drop_front(&out, strlen("data: "));
    require_json(&out);
    buf_clear(&out);
    native_dialect.whole(state, answers, n, &out);
    require_json(&out);
    buf_release(&out);
    free(answers);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fields fields;
    hearth_error error = {0};
    if (fields_read(&fields, FIELDS_COMPLETION, (const char *)data, size, &error) != HEARTH_OK) {
        require(error.code != HEARTH_OK && error.message[0] != '\0');
        return 0;
    }
    size_t n;
    hearth_params *choices = fields_choices(&fields, &n);
    for (size_t i = 0; i < n; i++) check_choice(&choices[i]);
    void *state = native_state(&fields, "demo", &error);
    if (state != NULL) {
        answer_natively(&fields, state, n);
        native_dialect.release(state);
    } else {
        require(error.code == HEARTH_INVALID && error.param[0] != '\0');
    }
    free(choices);
    fields_release(&fields);
    return 0;
}
