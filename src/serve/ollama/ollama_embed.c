/* POST /api/embed, with normalised vectors, and the older /api/embeddings, whose one vector is not normalised.
 * Bodies are converted to those of OpenAI's embeddings. No input is answered with no vectors, as by Ollama. HTTP
 * thread only, except parsing and writing. */
#include "serve/ollama/ollama.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "serve/core/reading.h"
#include "serve/embeddings/embeddings.h"
#include "serve/fields/body.h"
#include "serve/fields/convert.h"

#include <stdlib.h>
#include <string.h>

struct vectors {
    struct embeddings e; /* without a body: no input */
    char *model;         /* as the client wrote it; NULL: not given */
    bool single;         /* POST /api/embeddings */
    int64_t start;       /* when the body was parsed: monotonic ns */
};

static void release_vectors(void *ud)
{
    struct vectors *vectors = ud;
    embeddings_release(&vectors->e);
    free(vectors->model);
    free(vectors);
}

/* ---- Reading ---- */

static int read_body(struct vectors *vectors, const json_t *body, hearth_error *error)
{
    const char *name = vectors->single ? "prompt" : "input";
    const json_t *input = json_object_get(body, name);
    vectors->model = mem_strdup(json_string_value(json_object_get(body, "model")));
    vectors->start = clock_now(clock_monotonic());
    if (input == NULL || json_is_null(input) || (json_is_string(input) && json_string_length(input) == 0) ||
        (json_is_array(input) && json_array_size(input) == 0))
        return HEARTH_OK;
    if (vectors->single && !json_is_string(input))
        return error_at(error, HEARTH_INVALID, "prompt", "'prompt' must be a string");
    /* OpenAI's body. Long inputs are truncated unless the client sets "truncate" to false. */
    static const char *const same[] = {"model", "dimensions", "truncate"};
    json_t *made = json_pack("{s:O,s:b}", "input", input, "truncate", 1);
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        json_t *value = body_find(body, same[i]);
        if (value != NULL) json_object_set(made, same[i], value);
    }
    if (vectors->single) json_object_set_new(made, "embd_normalize", json_integer(-1));
    int rc = embeddings_take(&vectors->e, made, error);
    if (rc != HEARTH_OK) *error = convert_rename(error, &(struct convert_name){"input", name}, 1);
    vectors->e.name = name;
    return rc;
}

static void *read_vectors(struct buf *body, bool single, hearth_error *error)
{
    json_t *tree = fields_parse_body(body, error);
    if (tree == NULL) return NULL;
    struct vectors *vectors = mem_alloc(sizeof *vectors);
    vectors->single = single;
    int rc = read_body(vectors, tree, error);
    json_decref(tree);
    if (rc == HEARTH_OK) return vectors;
    release_vectors(vectors);
    return NULL;
}

static void *read_many(struct buf *body, hearth_error *error)
{
    return read_vectors(body, false, error);
}

static void *read_single(struct buf *body, hearth_error *error)
{
    return read_vectors(body, true, error);
}

static size_t vectors_size(const void *ud)
{
    const struct vectors *vectors = ud;
    return sizeof *vectors + (vectors->e.body == NULL ? 0 : embeddings_size(&vectors->e));
}

/* ---- Writing ---- */

static void put(const void *ud, const hearth_embedded *result, struct buf *out)
{
    const struct vectors *vectors = ud;
    const char *model = vectors->model != NULL ? vectors->model : result->model;
    if (vectors->single) {
        const hearth_vector none = {0}, *vector = result->n_inputs > 0 ? &result->inputs[0] : &none;
        buf_puts(out, "{\"embedding\":");
        embeddings_put_floats(out, vector->v, vector->width);
        buf_puts(out, "}");
        return;
    }
    buf_puts(out, "{\"model\":");
    utf8_put_json_string(out, model, strlen(model));
    buf_puts(out, ",\"embeddings\":[");
    for (size_t i = 0; i < result->n_inputs; i++) {
        if (i > 0) buf_puts(out, ",");
        embeddings_put_floats(out, result->inputs[i].v, result->inputs[i].width);
    }
    buf_printf(out, "],\"total_duration\":%lld,\"load_duration\":0,\"prompt_eval_count\":%lld}",
               (long long)(clock_now(clock_monotonic()) - vectors->start), (long long)result->n_tokens);
}

/* ---- Routes ---- */

static void answer_vectors(struct call *call, void *ud)
{
    static const struct embed_form form = {.put = put, .put_error = ollama_put_error, .release = release_vectors};
    struct vectors *vectors = ud;
    if (vectors->e.body == NULL) {
        static const hearth_embedded none = {.model = ""};
        struct buf body = {0};
        put(vectors, &none, &body);
        release_vectors(vectors);
        call_reply(call, 200, "application/json", &body);
        return;
    }
    embeddings_start(call, &vectors->e, &form, vectors);
}

const struct reading_form ollama_embed =
    READING_FORM(read_many, vectors_size, answer_vectors, release_vectors, ollama_put_error);

const struct reading_form ollama_embeddings =
    READING_FORM(read_single, vectors_size, answer_vectors, release_vectors, ollama_put_error);
