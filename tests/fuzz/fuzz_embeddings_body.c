/* Fuzzes bodies of POST /v1/embeddings and /embedding: parsed values are within bounds, answers are JSON. */
#include "serve/embeddings/embeddings.h"

#include "fuzz_body.h"

static void answer_with(const struct embeddings *e)
{
    static const float v[] = {0.1f, -1e-30f, 3e38f};
    size_t n = e->params.n_inputs;
    hearth_vector *vectors = calloc(n, sizeof *vectors);
    for (size_t i = 0; i < n; i++) vectors[i] = (hearth_vector){.v = v, .width = 3, .n_vectors = 1, .n_tokens = 1};
    hearth_embedded result = {.model = "demo", .inputs = vectors, .n_inputs = n};
    struct buf out = {0};
    embeddings_put(e, &result, &out);
    require_json(&out);
    buf_release(&out);
    free(vectors);
}

static void read_as(bool native, const uint8_t *data, size_t size)
{
    hearth_error error = {0};
    struct embeddings e = {.native = native};
    if (embeddings_read(&e, (const char *)data, size, &error) != HEARTH_OK) {
        require(error.code != HEARTH_OK && error.message[0] != '\0');
        return;
    }
    require(e.params.n_inputs >= 1 && e.params.n_inputs <= HEARTH_INPUTS_MAX);
    require(e.params.dimensions >= 0 && e.params.norm >= -1 && e.params.truncate >= -1);
    for (size_t i = 0; i < e.params.n_inputs; i++) {
        const hearth_input *input = &e.params.inputs[i];
        require((input->text != NULL) + (input->n_tokens > 0) + (input->n_parts > 0) == 1);
        for (size_t k = 0; k < input->n_parts; k++) require(input->parts[k].text != NULL || input->parts[k].token >= 0);
        for (size_t t = 0; t < input->n_tokens; t++) require(input->tokens[t] >= 0);
    }
    answer_with(&e);
    embeddings_release(&e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_as(false, data, size);
    read_as(true, data, size);
    return 0;
}
