/* Reranking: one form of answer for Jina's and Cohere's clients, each of which reads the fields it knows, and one
 * for TEI's. */
#include "serve/embeddings/rerank.h"

#include "base/error.h"
#include "base/json_text.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "serve/core/errors.h"
#include "serve/core/reading.h"
#include "serve/fields/body.h"
#include "serve/fields/convert.h"
#include "serve/fields/fields.h"

#include <stdlib.h>
#include <string.h>

/* ---- Reading ---- */

/* The text of a document: a string, or the member "text" of an object, whose other members are not scored. */
static const json_t *text_of(const json_t *value)
{
    if (json_text_is_object(value)) value = json_object_get(value, "text");
    return json_is_string(value) ? value : NULL;
}

static int read_documents(struct rerank *r, hearth_error *error)
{
    const char *name = r->tei ? "texts" : "documents";
    const json_t *list = body_find(r->body, name);
    size_t n = json_array_size(list);
    if (n < 1 || n > HEARTH_INPUTS_MAX)
        return error_at(error, HEARTH_INVALID, name, "'%s' must be a list of 1 to %d texts", name, HEARTH_INPUTS_MAX);
    r->documents = mem_alloc(n * sizeof *r->documents);
    r->params.inputs = r->documents;
    r->params.n_inputs = n;
    for (size_t i = 0; i < n; i++) {
        const json_t *text = text_of(json_array_get(list, i));
        if (text == NULL) return error_at(error, HEARTH_INVALID, name, "%s[%zu] is not a text", name, i);
        r->documents[i] = (hearth_input){.text = json_string_value(text), .len = json_string_length(text)};
    }
    return HEARTH_OK;
}

/* "truncate" (TEI), "truncation" (Jina) or "max_tokens_per_doc" (Cohere). Cohere's truncates each document to that
 * many tokens, and together with the query to the model's maximum. Without them the model's key decides. */
static int read_rerank_truncation(struct rerank *r, hearth_error *error)
{
    bool truncate = false;
    int rc = body_bool(r->body, "truncate", &truncate, error);
    if (rc == HEARTH_OK) rc = body_bool(r->body, "truncation", &truncate, error);
    if (rc == HEARTH_OK) rc = body_int(r->body, "max_tokens_per_doc", 1, &r->params.max_document_tokens, error);
    bool says = body_find(r->body, "truncate") != NULL || body_find(r->body, "truncation") != NULL;
    if (truncate || r->params.max_document_tokens > 0)
        r->params.truncate = HEARTH_TRUNCATE_WINDOW;
    else if (says)
        r->params.truncate = 0;
    return rc;
}

int rerank_read(struct rerank *r, const char *body, size_t len, hearth_error *error)
{
    r->params = hearth_embed_params_default();
    r->body = fields_parse(body, len, error);
    if (r->body == NULL) return HEARTH_INVALID;
    r->tei = body_find(r->body, "texts") != NULL;
    r->top_n = HEARTH_INPUTS_MAX;
    int rc = body_text(r->body, "model", &r->params.model, error);
    const json_t *query = text_of(body_find(r->body, "query"));
    if (rc == HEARTH_OK && query == NULL) rc = error_at(error, HEARTH_INVALID, "query", "'query' must be a string");
    r->params.query = json_string_value(query);
    r->params.query_len = json_string_length(query);
    if (rc == HEARTH_OK) rc = read_documents(r, error);
    if (rc == HEARTH_OK) rc = body_int(r->body, "top_n", 1, &r->top_n, error);
    if (rc == HEARTH_OK)
        rc = body_bool(r->body, r->tei ? "return_text" : "return_documents", &r->return_documents, error);
    if (rc == HEARTH_OK) rc = body_bool(r->body, "raw_scores", &r->params.raw_scores, error);
    if (rc == HEARTH_OK) rc = read_rerank_truncation(r, error);
    if (rc != HEARTH_OK) rerank_release(r);
    return rc;
}

void rerank_release(struct rerank *r)
{
    free(r->documents);
    json_decref(r->body);
    r->documents = NULL;
    r->body = NULL;
}

/* ---- Writing ---- */

struct scored {
    size_t index;
    float score;
};

/* Highest score first; equal scores in the order of the documents. */
static int compare(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return x->index < y->index ? -1 : 1;
}

static void put_results(const struct rerank *r, const hearth_embedded *result, struct buf *out)
{
    struct scored *sorted = mem_alloc(result->n_inputs * sizeof *sorted);
    for (size_t i = 0; i < result->n_inputs; i++) sorted[i] = (struct scored){i, result->inputs[i].v[0]};
    qsort(sorted, result->n_inputs, sizeof *sorted, compare);
    buf_puts(out, "[");
    for (size_t i = 0; i < result->n_inputs && i < (size_t)r->top_n; i++) {
        buf_printf(out, "%s{\"index\":%zu,\"%s\":%.9g", i == 0 ? "" : ",", sorted[i].index,
                   r->tei ? "score" : "relevance_score", (double)sorted[i].score);
        if (r->return_documents) {
            const hearth_input *document = &r->documents[sorted[i].index];
            buf_puts(out, r->tei ? ",\"text\":" : ",\"document\":{\"text\":");
            utf8_put_json_string(out, document->text, document->len);
            if (!r->tei) buf_puts(out, "}");
        }
        buf_puts(out, "}");
    }
    buf_puts(out, "]");
    free(sorted);
}

void rerank_put(const struct rerank *r, const hearth_embedded *result, struct buf *out)
{
    if (r->tei) {
        put_results(r, result, out);
        return;
    }
    long long n = result->n_tokens;
    buf_printf(out, "{\"id\":\"rerank-%s\",\"object\":\"list\",\"model\":", r->id);
    utf8_put_json_string(out, result->model, strlen(result->model));
    buf_puts(out, ",\"results\":");
    put_results(r, result, out);
    buf_printf(out,
               ",\"usage\":{\"prompt_tokens\":%lld,\"total_tokens\":%lld},"
               "\"meta\":{\"billed_units\":{\"search_units\":1},\"tokens\":{\"input_tokens\":%lld}}}",
               n, n, n);
}

/* ---- The route ---- */

static void put_rerank(const void *state, const hearth_embedded *result, struct buf *out)
{
    rerank_put(state, result, out);
}

static hearth_error rename_rerank_error(const void *state, const hearth_error *error)
{
    const struct rerank *r = state;
    return convert_rename(error, &(struct convert_name){"documents", r->tei ? "texts" : "documents"}, 1);
}

static void release_rerank(void *state)
{
    rerank_release(state);
    free(state);
}

static void *read_rerank(struct buf *body, hearth_error *error)
{
    struct rerank *r = mem_alloc(sizeof *r);
    if (rerank_read(r, buf_text(body), body->len, error) == HEARTH_OK) return r;
    release_rerank(r);
    return NULL;
}

static size_t rerank_size(const void *ud)
{
    const struct rerank *r = ud;
    return json_size_of_tree(r->body) + r->params.n_inputs * sizeof *r->documents;
}

static void answer_rerank(struct call *call, void *ud)
{
    static const struct embed_form form = {
        .put = put_rerank, .rename = rename_rerank_error, .put_error = errors_put, .release = release_rerank};
    struct rerank *r = ud;
    call_random_name(r->id, sizeof r->id);
    embed_start(call, &r->params, &form, r);
}

void rerank_answer(struct call *call)
{
    static const struct reading_form reading = {.read = read_rerank,
                                                .size = rerank_size,
                                                .answer = answer_rerank,
                                                .release = release_rerank,
                                                .put_error = errors_put};
    reading_start(call, &reading);
}
