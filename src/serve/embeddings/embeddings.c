/* Embeddings: OpenAI's form, with one vector for each input, and llama-server's own, which may have one for each
 * token. Both, and reranking, send their requests by start(). */
#include "serve/embeddings/embeddings.h"

#include "base/base64.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "serve/core/errors.h"
#include "serve/core/models.h"
#include "serve/core/reading.h"
#include "serve/core/server.h"
#include "serve/fields/body.h"
#include "serve/fields/convert.h"
#include "serve/fields/fields.h"
#include "serve/fields/fields_readers.h"

#include <stdlib.h>
#include <string.h>

/* ---- Reading ---- */

/* A string, a list of tokens and strings, or a list of these: the forms of a completion's prompts. */
static int read_inputs(struct embeddings *e, const char *name, const json_t *value, hearth_error *error)
{
    bool one = field_is_one_prompt(value), has_media = false;
    size_t n = one ? 1 : json_array_size(value);
    if (n < 1 || n > HEARTH_INPUTS_MAX)
        return error_at(error, HEARTH_INVALID, name, "'%s' may be a list of 1 to %d inputs, not %zu", name,
                        HEARTH_INPUTS_MAX, n);
    e->inputs = mem_alloc(n * sizeof *e->inputs);
    e->prompts = mem_alloc(n * sizeof *e->prompts);
    e->params.inputs = e->inputs;
    e->params.n_inputs = n;
    for (size_t i = 0; i < n; i++) {
        const json_t *input = field_unwrap_prompt(one ? value : json_array_get(value, i), &has_media);
        if (has_media)
            return error_at(error, HEARTH_UNSUPPORTED, name, "'%s[].multimodal_data' is not supported: send text alone",
                            name);
        struct fields_prompt *prompt = &e->prompts[i];
        bool good = field_get_prompt(input, prompt);
        if (json_is_array(input)) json_array_clear((json_t *)input); /* of tokens the copy is kept alone */
        e->inputs[i] = (hearth_input){.text = prompt->text,
                                      .len = prompt->len,
                                      .tokens = prompt->tokens,
                                      .n_tokens = prompt->n_tokens,
                                      .parts = prompt->parts,
                                      .n_parts = prompt->n_parts};
        if (!good || (prompt->tokens != NULL && prompt->n_tokens == 0))
            return error_at(
                error, HEARTH_INVALID, name,
                "'%s' must be a string, a list of tokens and strings, or a list of these, none of them empty", name);
    }
    return HEARTH_OK;
}

/* "truncate" truncates inputs to the model's maximum, "truncate_prompt_tokens" to that many tokens, or with -1 to
 * the maximum. Without them the model's key decides. */
static int read_truncation(struct embeddings *e, hearth_error *error)
{
    static const char *const directions[] = {"right", "left", NULL};
    bool truncate = false;
    int32_t tokens = 0;
    int direction = 0;
    int rc = body_bool(e->body, "truncate", &truncate, error);
    if (rc == HEARTH_OK) rc = body_int(e->body, "truncate_prompt_tokens", -1, &tokens, error);
    if (rc == HEARTH_OK) rc = body_word(e->body, "truncate_direction", directions, &direction, error);
    if (tokens != 0)
        e->params.truncate = tokens;
    else if (body_find(e->body, "truncate") != NULL)
        e->params.truncate = truncate ? HEARTH_TRUNCATE_WINDOW : 0;
    e->params.truncate_left = direction == 1;
    return rc;
}

int embeddings_read(struct embeddings *e, const char *body, size_t len, hearth_error *error)
{
    json_t *parsed = fields_parse(body, len, error);
    return parsed == NULL ? HEARTH_INVALID : embeddings_take(e, parsed, error);
}

int embeddings_take(struct embeddings *e, json_t *body, hearth_error *error)
{
    static const char *const formats[] = {"float", "base64", NULL};
    static const char *const names[] = {"input", "content", "prompt"};
    const size_t n_names = e->native ? 3 : 1; /* "content" and "prompt" are llama-server's */
    const json_t *inputs = NULL;
    int format = 0;
    e->params = hearth_embed_params_default();
    e->body = body;
    int rc = body_text(body, "model", &e->params.model, error);
    for (size_t i = 0; i < n_names && inputs == NULL; i++) {
        e->name = names[i];
        inputs = body_find(body, e->name);
    }
    if (rc == HEARTH_OK && inputs != NULL) rc = read_inputs(e, e->name, inputs, error);
    if (rc == HEARTH_OK && inputs == NULL)
        rc = error_at(error, HEARTH_INVALID, names[e->native], "'%s' is missing", names[e->native]);
    if (rc == HEARTH_OK) rc = body_int(body, "dimensions", 1, &e->params.dimensions, error);
    if (rc == HEARTH_OK) rc = body_word(body, "encoding_format", formats, &format, error);
    if (rc == HEARTH_OK) rc = body_int(body, "embd_normalize", -1, &e->params.norm, error);
    if (rc == HEARTH_OK) rc = read_truncation(e, error);
    e->base64 = format == 1 && !e->native;
    if (rc != HEARTH_OK) embeddings_release(e);
    return rc;
}

void embeddings_release(struct embeddings *e)
{
    for (size_t i = 0; e->prompts != NULL && i < e->params.n_inputs; i++) field_release_prompt(&e->prompts[i]);
    free(e->prompts);
    free(e->inputs);
    json_decref(e->body);
    e->inputs = NULL;
    e->prompts = NULL;
    e->body = NULL;
}

/* ---- Writing ---- */

void embeddings_put_floats(struct buf *out, const float *v, int32_t n)
{
    buf_puts(out, "[");
    for (int32_t i = 0; i < n; i++) buf_printf(out, "%s%.9g", i == 0 ? "" : ",", (double)v[i]);
    buf_puts(out, "]");
}

static void put_openai(const hearth_embedded *result, bool base64, struct buf *out)
{
    buf_puts(out, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < result->n_inputs; i++) {
        const hearth_vector *vector = &result->inputs[i];
        buf_printf(out, "%s{\"object\":\"embedding\",\"index\":%zu,\"embedding\":", i == 0 ? "" : ",", i);
        if (base64) {
            buf_puts(out, "\"");
            base64_put(out, vector->v, (size_t)vector->width * sizeof *vector->v); /* little-endian, as we are */
            buf_puts(out, "\"}");
        } else {
            embeddings_put_floats(out, vector->v, vector->width);
            buf_puts(out, "}");
        }
    }
    buf_puts(out, "],\"model\":");
    utf8_put_json_string(out, result->model, strlen(result->model));
    buf_printf(out, ",\"usage\":{\"prompt_tokens\":%lld,\"total_tokens\":%lld}}", (long long)result->n_tokens,
               (long long)result->n_tokens);
}

void embeddings_put(const void *state, const hearth_embedded *result, struct buf *out)
{
    const struct embeddings *e = state;
    if (!e->native) {
        put_openai(result, e->base64, out);
        return;
    }
    buf_puts(out, "[");
    for (size_t i = 0; i < result->n_inputs; i++) {
        const hearth_vector *vector = &result->inputs[i];
        buf_printf(out, "%s{\"index\":%zu,\"embedding\":[", i == 0 ? "" : ",", i);
        for (int32_t at = 0; at < vector->n_vectors; at++) {
            if (at > 0) buf_puts(out, ",");
            embeddings_put_floats(out, vector->v + (size_t)at * (size_t)vector->width, vector->width);
        }
        buf_puts(out, "]}");
    }
    buf_puts(out, "]");
}

/* ---- Requests in flight ---- */

/* Freed when its end has been posted to the HTTP thread, whether or not the client is still connected. Until then the
 * library's thread owns `answer` and `error`, the HTTP thread everything else. */
struct embedding_call {
    struct call *call; /* NULL: the client disconnected */
    struct http_server *http;
    struct workers *workers;
    struct ratelimit *ratelimit; /* of the API key: holds one of its slots while the request runs */
    const struct embed_form *form;
    struct convert_name name;
    void *state;
    hearth_embedding *request;
    struct buf answer;
    hearth_error error; /* HEARTH_OK: `answer` holds the result */
    size_t counted;     /* bytes of the state, in the sum of all bodies */
};

static void release_call(void *ud)
{
    struct embedding_call *ec = ud;
    hearth_embedding_release(ec->request);
    ec->form->release(ec->state);
    buf_release(&ec->answer);
    free(ec);
}

static void free_call(struct embedding_call *ec)
{
    http_recount(ec->http, ec->counted, 0);
    workers_release(ec->workers, release_call, ec);
}

static void fail_embedding(struct embedding_call *ec)
{
    hearth_error renamed = convert_rename(&ec->error, &ec->name, 1);
    call_fail(ec->call, &renamed, ec->form->put_error);
}

static void on_arrived(void *ud)
{
    struct embedding_call *ec = ud;
    ratelimit_count_tokens(ec->ratelimit, hearth_embedding_tokens(ec->request));
    ratelimit_return_slots(ec->ratelimit, 1);
    if (ec->call != NULL && ec->error.code != HEARTH_OK)
        fail_embedding(ec);
    else if (ec->call != NULL)
        call_reply(ec->call, 200, "application/json", &ec->answer);
    free_call(ec);
}

static void on_end(void *ud, const hearth_embedded *result, const hearth_error *error)
{
    struct embedding_call *ec = ud;
    if (error != NULL)
        ec->error = *error;
    else
        ec->form->put(ec->state, result, &ec->answer);
    http_post(ec->http, on_arrived, ec);
}

static void on_gone(void *ud)
{
    struct embedding_call *ec = ud;
    struct call *call = ec->call;
    ec->call = NULL;
    hearth_embedding_cancel(ec->request);
    call_gone(call);
}

/* Answers the call, now or later. Takes `state` over, which owns what `params` points at. `name`: of the texts in
 * errors, the library's and the client's. */
static void start(struct call *call, const hearth_embed_params *params, const struct embed_form *form,
                  struct convert_name name, void *state)
{
    struct embedding_call *ec = mem_alloc(sizeof *ec);
    *ec = (struct embedding_call){.call = call,
                                  .http = call->server->http,
                                  .workers = call->server->workers,
                                  .ratelimit = call->limit,
                                  .form = form,
                                  .name = name,
                                  .state = state};
    ec->counted = call->counted;
    call->counted = 0;
    call_set_model(call, params->model);
    if (ratelimit_take_slots(ec->ratelimit, 1, &ec->error) == HEARTH_OK) {
        hearth_embed_params lent = *params;
        lent.lent = true;
        ec->request = hearth_embed(call->server->instance, &lent, on_end, ec, &ec->error);
        if (ec->request != NULL) {
            http_watch(call->http, on_gone, ec);
            return;
        }
        ratelimit_return_slots(ec->ratelimit, 1);
    }
    fail_embedding(ec);
    free_call(ec);
}

/* ---- Routes ---- */

static void release(void *state)
{
    embeddings_release(state);
    free(state);
}

static struct embeddings *open_embeddings(struct buf *body, bool native, hearth_error *error)
{
    struct embeddings *e = mem_alloc(sizeof *e);
    e->native = native;
    if (embeddings_read(e, buf_text(body), body->len, error) == HEARTH_OK) return e;
    release(e);
    return NULL;
}

static void *read_openai(struct buf *body, hearth_error *error)
{
    return open_embeddings(body, false, error);
}

static void *read_native(struct buf *body, hearth_error *error)
{
    return open_embeddings(body, true, error);
}

size_t embeddings_size(const void *ud)
{
    const struct embeddings *e = ud;
    size_t bytes = json_size_of_tree(e->body) + e->params.n_inputs * sizeof *e->inputs;
    for (size_t i = 0; i < e->params.n_inputs; i++) {
        const hearth_input *input = &e->inputs[i];
        bytes += input->n_tokens * sizeof *input->tokens + input->n_parts * sizeof *input->parts;
    }
    return bytes;
}

void embeddings_start(struct call *call, const struct embeddings *e, const struct embed_form *form, void *state)
{
    /* A model without pooling gives a vector for each token. */
    hearth_model_info info;
    for (size_t i = 0; !e->native && models_next(call->server->instance, &i, &info); i++) {
        bool meant =
            e->params.model != NULL ? models_is_called(&info, e->params.model) : info.type == HEARTH_MODEL_EMBEDDING;
        if (!meant) continue;
        if (info.pooling != HEARTH_POOLING_NONE) break;
        call_refuse(call, form->put_error, HEARTH_INVALID, "model",
                    "model '%s' gives a vector for each token (pooling: none): POST /embedding answers with them",
                    info.name);
        form->release(state);
        return;
    }
    start(call, &e->params, form, (struct convert_name){"input", e->name}, state);
}

static void answer(struct call *call, void *ud)
{
    static const struct embed_form form = {.put = embeddings_put, .put_error = errors_put, .release = release};
    embeddings_start(call, ud, &form, ud);
}

const struct reading_form embeddings_openai = READING_FORM(read_openai, embeddings_size, answer, release, errors_put);

const struct reading_form embeddings_native = READING_FORM(read_native, embeddings_size, answer, release, errors_put);

/* ---- Reranking ---- */

/* One form of answer for Jina's and Cohere's clients, each of which reads the fields it knows, and one for TEI's. */

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

void rerank_put(const void *state, const hearth_embedded *result, struct buf *out)
{
    const struct rerank *r = state;
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
    static const struct embed_form form = {.put = rerank_put, .put_error = errors_put, .release = release_rerank};
    struct rerank *r = ud;
    call_random_name(r->id, sizeof r->id);
    start(call, &r->params, &form, (struct convert_name){"documents", r->tei ? "texts" : "documents"}, r);
}

const struct reading_form rerank_answer =
    READING_FORM(read_rerank, rerank_size, answer_rerank, release_rerank, errors_put);
