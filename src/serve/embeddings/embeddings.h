/* The routes for embeddings, OpenAI's and llama-server's own, and for reranking; and for other routes an embedding or
 * reranking request in flight, from hearth_embed() to the answer. HTTP thread only, except parsing and writing. */
#ifndef SERVE_EMBEDDINGS_EMBEDDINGS_H
#define SERVE_EMBEDDINGS_EMBEDDINGS_H

#include "serve/core/reading.h"

#include <jansson.h>

extern const struct reading_form embeddings_openai; /* POST /v1/embeddings */
extern const struct reading_form embeddings_native; /* POST /embedding, /embeddings: llama-server's own form */

struct fields_prompt;

/* For the routes and tests: a parsed request. */
struct embeddings {
    json_t *body;
    hearth_embed_params params;
    hearth_input *inputs;
    struct fields_prompt *prompts; /* hold what the inputs point at */
    const char *name;              /* name of the inputs' field */
    bool native, base64;
};

int embeddings_read(struct embeddings *embeddings, const char *body, size_t len, hearth_error *error);
int embeddings_take(struct embeddings *embeddings, json_t *body, hearth_error *error); /* one that was parsed */
void embeddings_release(struct embeddings *embeddings);
void embeddings_put(const void *embeddings, const hearth_embedded *result, struct buf *out);
void embeddings_put_floats(struct buf *out, const float *v, int32_t n); /* a list of numbers */
size_t embeddings_size(const void *embeddings);                         /* bytes */

/* ---- Requests in flight ---- */

struct embed_form {
    /* Appends the answer. Runs on a thread of the library, so that formatting many numbers does not stall streams;
     * it may touch `state` and `result` only. */
    void (*put)(const void *state, const hearth_embedded *result, struct buf *out);
    call_error_form *put_error;
    void (*release)(void *state);
};

/* Answers the call, now or later. Takes `state` over, which owns the embeddings. A model without pooling is refused
 * where the answer's form has one vector an input. HTTP thread only. */
void embeddings_start(struct call *call, const struct embeddings *embeddings, const struct embed_form *form,
                      void *state);

/* ---- Reranking ---- */

/* Scores documents against a query. Jina's and Cohere's form, whose answer has the fields of both, and with `texts`
 * that of text-embeddings-inference (TEI). */
extern const struct reading_form rerank_answer;

/* For the route and tests: a parsed request. Texts belong to `body`. */
struct rerank {
    json_t *body;
    hearth_embed_params params;
    hearth_input *documents;
    int32_t top_n;
    bool tei, return_documents;
    char id[25];
};

int rerank_read(struct rerank *rerank, const char *body, size_t len, hearth_error *error);
void rerank_release(struct rerank *rerank);
void rerank_put(const void *rerank, const hearth_embedded *result, struct buf *out);

#endif
