/* Fuzzes bodies of POST /v1/rerank: parsed values are within bounds, answers are JSON. */
#include "serve/embeddings/embeddings.h"

#include "fuzz_body.h"

static void answer_with(const struct rerank *r)
{
    size_t n = r->params.n_inputs;
    float *scores = calloc(n, sizeof *scores);
    hearth_vector *vectors = calloc(n, sizeof *vectors);
    for (size_t i = 0; i < n; i++) {
        scores[i] = (float)(i * 7919 % 13);
        vectors[i] = (hearth_vector){.v = &scores[i], .width = 1, .n_vectors = 1, .n_tokens = 1};
    }
    hearth_embedded result = {.model = "demo", .inputs = vectors, .n_inputs = n};
    struct buf out = {0};
    rerank_put(r, &result, &out);
    require_json(&out);
    buf_release(&out);
    free(vectors);
    free(scores);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    hearth_error error = {0};
    struct rerank r = {0};
    if (rerank_read(&r, (const char *)data, size, &error) != HEARTH_OK) {
        require(error.code != HEARTH_OK && error.message[0] != '\0');
        return 0;
    }
    require(r.params.query != NULL && r.top_n >= 1);
    require(r.params.n_inputs >= 1 && r.params.n_inputs <= HEARTH_INPUTS_MAX);
    for (size_t i = 0; i < r.params.n_inputs; i++) require(r.params.inputs[i].text != NULL);
    answer_with(&r);
    rerank_release(&r);
    return 0;
}
