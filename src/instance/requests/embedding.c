/* Embedding and reranking requests, from hearth_embed() to their end. The parameters are copied, a thread of the
 * model's pool tokenises the inputs, and its contexts compute them. The thread that computed the last input builds the
 * result.
 *
 * Two parties own a request: the caller, until hearth_embedding_release(), and its job, until on_end() has returned. */
#include "base/error.h"
#include "base/memory.h"
#include "instance/models/loaded_model.h"
#include "instance/models/model_manager.h"
#include "instance/models/model_names.h"
#include "llm/embedder.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct hearth_embedding {
    struct embed_job job; /* first member: a job is cast to its request */
    _Atomic int refs;
    struct lease lease;
    struct model *model; /* set once the lease is granted */
    hearth_embedded_fn on_end;
    void *ud;
    hearth_embed_params params; /* its numbers; the texts are copied into what follows, or borrowed until the end */
    const char *query, **texts;
    size_t *lens;
    struct input_parts {
        hearth_part *v; /* with texts that are borrowed, or copied as the others */
        size_t n;
    } * parts; /* of each input that has some */
    hearth_vector *vectors;
    hearth_embedded result;
};

/* ---- Life ---- */

static void unref_embedding(hearth_embedding *request)
{
    if (atomic_fetch_sub(&request->refs, 1) > 1) return;
    for (size_t i = 0; i < request->job.n_inputs; i++) {
        tokens_release(&request->job.inputs[i].tokens);
        free(request->job.inputs[i].vectors);
        for (size_t k = 0; k < request->parts[i].n && !request->params.lent; k++)
            free((void *)(uintptr_t)request->parts[i].v[k].text);
        free(request->parts[i].v);
        if (!request->params.lent) free((void *)request->texts[i]);
    }
    free(request->parts);
    if (!request->params.lent) free((void *)request->query);
    free(request->job.inputs);
    free(request->texts);
    free(request->lens);
    free(request->vectors);
    lease_end(&request->lease);
    free(request);
}

/* ---- Preparing, on a thread of the pool ---- */

static const char *name_of_inputs(const hearth_embedding *request)
{
    return request->query != NULL ? "documents" : "input";
}

/* Tokens that an input is truncated to; SIZE_MAX: it is not truncated, and refused if it is too long. */
static size_t limit_of(const hearth_embedding *request)
{
    size_t window = (size_t)embed_window(request->model->pool), wanted = (size_t)request->params.truncate;
    if (request->params.truncate == 0) return SIZE_MAX;
    return request->params.truncate < 0 || wanted > window ? window : wanted;
}

/* Texts of up to so many bytes are always tokenised, so that the error has their exact number of tokens. */
#define INPUT_BYTES ((size_t)64 << 10)

/* Most bytes of text that are tokenised for one input: the window times the longest token, where a token of the
 * vocabulary has a bounded length. */
static size_t most_bytes(const hearth_embedding *request)
{
    size_t longest = llm_longest_token(request->model->weights);
    size_t window = (size_t)embed_window(request->model->pool), most = (size_t)request->model->config->max_prompt_bytes;
    if (longest == SIZE_MAX) return LLM_UNSPLITTABLE_MAX;
    size_t bytes = window * longest < INPUT_BYTES ? INPUT_BYTES : window * longest;
    return bytes < most ? bytes : most;
}

/* The part of a text that is tokenised. */
struct run {
    const char *text;
    size_t len;
};

static int check_run(const hearth_embedding *request, struct run run, const char *name, hearth_error *error)
{
    size_t most = most_bytes(request);
    if (run.len > most)
        return error_at(error, HEARTH_TOO_LONG, name,
                        "a text of '%s' has %zu bytes, model '%s' takes %d tokens: shorten it, or ask for it to be "
                        "truncated",
                        name, run.len, request->model->config->name, embed_window(request->model->pool));
    hearth_error own;
    if (llm_check_text(request->model->weights, run.text, run.len, &own) == HEARTH_OK) return HEARTH_OK;
    return error_at(error, own.code, name, "a text of '%s' has %s", name, own.message);
}

/* A text of an input or a document as it is tokenised, checked. If it is to be truncated, text that lies far beyond the
 * tokens that this keeps is cut off, at a character's boundary. */
static int take_run(const hearth_embedding *request, struct run *run, hearth_error *error)
{
    size_t most = most_bytes(request);
    if (most > LLM_UNSPLITTABLE_MAX) most = LLM_UNSPLITTABLE_MAX;
    if (request->params.truncate != 0 && run->len > most) {
        size_t from = request->params.truncate_left ? run->len - most : 0, to = from > 0 ? run->len : most;
        while (from > 0 && from < to && ((unsigned char)run->text[from] & 0xc0) == 0x80) from++;
        while (to > 0 && to < run->len && ((unsigned char)run->text[to] & 0xc0) == 0x80) to--;
        *run = (struct run){run->text + from, to - from};
    }
    return check_run(request, *run, name_of_inputs(request), error);
}

static int tokenise(hearth_embedding *request, struct run run, bool add_special, struct tokens *tokens,
                    hearth_error *error)
{
    if (take_run(request, &run, error) != HEARTH_OK) return (int)error->code;
    llm_tokenize(request->model->weights, run.text, run.len, add_special, false, tokens);
    return HEARTH_OK;
}

static int prepare_input(hearth_embedding *request, size_t i, hearth_error *error)
{
    const struct input_parts *parts = &request->parts[i];
    struct tokens *tokens = &request->job.inputs[i].tokens;
    int rc = HEARTH_OK;
    for (size_t k = 0; k < parts->n && rc == HEARTH_OK; k++) {
        const hearth_part *part = &parts->v[k];
        if (part->text == NULL)
            tokens_push(tokens, part->token);
        else
            rc = tokenise(request, (struct run){part->text, part->len}, k == 0, tokens, error);
    }
    if (request->texts[i] != NULL)
        rc = tokenise(request, (struct run){request->texts[i], request->lens[i]}, true, tokens, error);
    if (rc != HEARTH_OK) return rc;
    llm_truncate_input(request->model->weights, tokens, limit_of(request), request->params.truncate_left);
    if (tokens->len == 0) return error_at(error, HEARTH_INVALID, "input", "input[%zu] is empty", i);
    return HEARTH_OK;
}

static int prepare_document(hearth_embedding *request, size_t i, hearth_error *error)
{
    struct run query = {request->query, request->params.query_len}, run = {request->texts[i], request->lens[i]};
    if (check_run(request, query, "query", error) != HEARTH_OK) return (int)error->code;
    if (take_run(request, &run, error) != HEARTH_OK) return (int)error->code;
    struct llm_pair pair = {.query = query.text,
                            .query_len = query.len,
                            .document = run.text,
                            .document_len = run.len,
                            .max_document = (size_t)request->params.max_document_tokens};
    struct tokens *tokens = &request->job.inputs[i].tokens;
    if (!llm_join_pair(request->model->weights, &pair, limit_of(request), tokens))
        return error_at(error, HEARTH_TOO_LONG, "query",
                        "the query leaves no room for a document within %zu tokens: shorten it", limit_of(request));
    if (tokens->len == 0) return error_at(error, HEARTH_INVALID, "documents", "query and documents[%zu] are empty", i);
    return HEARTH_OK;
}

static int prepare_job_input(struct embed_job *job, size_t i, hearth_error *error)
{
    hearth_embedding *request = (hearth_embedding *)job;
    int rc = request->query != NULL ? prepare_document(request, i, error) : prepare_input(request, i, error);
    if (rc != HEARTH_OK) return rc;
    size_t n_tokens = job->inputs[i].tokens.len, window = (size_t)embed_window(request->model->pool);
    if (n_tokens <= window) return HEARTH_OK;
    const char *name = name_of_inputs(request);
    error_at(
        error, HEARTH_TOO_LONG, name,
        "%s[%zu] has %zu tokens, which is too large to process. This model's maximum context length is %zu tokens: "
        "shorten it, or ask for it to be truncated (\"truncate\": true)",
        name, i, n_tokens, window);
    error_note_length(error, n_tokens, window);
    return HEARTH_TOO_LONG;
}

/* ---- Vectors and scores ---- */

/* norm 0 scales a vector so that its largest absolute value becomes this, as in llama-server. */
#define LARGEST 32760.0

/* By its largest absolute value (norm 0), or its p-norm (others, 2 is the Euclidean one). A zero vector stays zero. */
static void normalise(float *v, int32_t width, int32_t norm)
{
    if (norm < 0) return;
    double most = 0, sum = 0;
    for (int32_t i = 0; i < width; i++) {
        double size = fabs((double)v[i]);
        most = fmax(most, size);
        sum += norm == 2 ? size * size : pow(size, norm);
    }
    double size = norm == 0 ? most / LARGEST : norm == 2 ? sqrt(sum) : pow(sum, 1.0 / norm);
    double factor = size > 0 && isfinite(size) ? 1 / size : 0;
    for (int32_t i = 0; i < width; i++) v[i] = (float)(v[i] * factor);
}

/* ---- The end ---- */

/* Of vectors the first `dimensions` numbers are kept (0: all), packed without gaps, and normalised as
 * hearth_embed_params.norm says. A head with one output gives a logit, which becomes a reranking score, 0 to 1; heads
 * with several outputs give probabilities. */
static void shape(const hearth_embedding *request, struct embed_input *input, hearth_vector *vector)
{
    const hearth_embed_params *p = &request->params;
    int32_t norm = embed_pooling(request->model->pool) == HEARTH_POOLING_NONE ? -1 : p->norm;
    int32_t width = embed_width(request->model->pool), kept = width;
    if (request->query == NULL && p->dimensions > 0 && p->dimensions < width) kept = p->dimensions;
    for (size_t i = 0; request->query == NULL && i < (size_t)input->n_vectors; i++) {
        float *v = input->vectors + i * (size_t)kept;
        memmove(v, input->vectors + i * (size_t)width, (size_t)kept * sizeof *v);
        normalise(v, kept, norm);
    }
    if (request->query != NULL && !p->raw_scores && llm_model_info(request->model->weights)->n_scores == 1)
        input->vectors[0] = (float)(1 / (1 + exp(-(double)input->vectors[0])));
    vector->width = kept;
    vector->v = input->vectors;
    vector->n_vectors = input->n_vectors;
    vector->n_tokens = (int32_t)input->tokens.len;
}

static void embed_job_ended(struct embed_job *job, const hearth_error *error)
{
    hearth_embedding *request = (hearth_embedding *)job;
    hearth_embedded *result = &request->result;
    if (error == NULL) {
        request->vectors = mem_alloc(job->n_inputs * sizeof *request->vectors);
        *result = (hearth_embedded){
            .model = request->model->config->name, .inputs = request->vectors, .n_inputs = job->n_inputs};
        for (size_t i = 0; i < job->n_inputs; i++) {
            shape(request, &job->inputs[i], &request->vectors[i]);
            result->n_tokens += request->vectors[i].n_tokens;
        }
    }
    lease_drop_party(&request->lease);
    request->on_end(request->ud, error == NULL ? result : NULL, error);
    unref_embedding(request);
}

/* ---- Parameters ---- */

/* llama.cpp counts a text's bytes in 32 bits. */
#define TEXT_MAX (INT32_MAX / 2)

static int check_token(int32_t token, size_t i, int32_t n_vocab, hearth_error *error)
{
    if (token >= 0 && token < n_vocab) return HEARTH_OK;
    return error_at(error, HEARTH_INVALID, "input", "input[%zu]: token %d is not in the vocabulary (0 to %d)", i, token,
                    n_vocab - 1);
}

static int check_tokens(const hearth_input *input, size_t i, int32_t n_vocab, hearth_error *error)
{
    for (size_t t = 0; input->tokens != NULL && t < input->n_tokens; t++)
        if (check_token(input->tokens[t], i, n_vocab, error) != HEARTH_OK) return HEARTH_INVALID;
    for (size_t k = 0; k < input->n_parts; k++) {
        const hearth_part *part = &input->parts[k];
        if (part->text == NULL && check_token(part->token, i, n_vocab, error) != HEARTH_OK) return HEARTH_INVALID;
        if (part->text != NULL && part->len > TEXT_MAX)
            return error_at(error, HEARTH_TOO_LONG, "input", "input[%zu] has a text of %zu bytes", i, part->len);
    }
    return HEARTH_OK;
}

static int check(const hearth_embed_params *p, const struct model_entry *entry, hearth_error *error)
{
    int32_t width = entry->facts.info.n_embd_out, n_vocab = entry->facts.info.n_vocab;
    if (p->dimensions < 0 || p->dimensions > width)
        return error_at(error, HEARTH_INVALID, "dimensions", "'dimensions' must be from 1 to %d with model '%s'", width,
                        entry->config->name);
    if (p->max_document_tokens < 0)
        return error_at(error, HEARTH_INVALID, "max_document_tokens", "'max_document_tokens' must be at least 0");
    if (p->query_len > TEXT_MAX) return error_at(error, HEARTH_TOO_LONG, "query", "the query is too long");
    const char *name = p->query != NULL ? "documents" : "input";
    if (p->n_inputs == 0 || p->n_inputs > HEARTH_INPUTS_MAX)
        return error_at(error, HEARTH_INVALID, name, "'%s' must have 1 to %d elements, not %zu", name,
                        HEARTH_INPUTS_MAX, p->n_inputs);
    for (size_t i = 0; i < p->n_inputs; i++) {
        const hearth_input *input = &p->inputs[i];
        if (input->text == NULL && (p->query != NULL || (input->tokens == NULL && input->parts == NULL)))
            return error_at(error, HEARTH_INVALID, name, "%s[%zu] is not a text", name, i);
        if (input->text != NULL && input->len > TEXT_MAX)
            return error_at(error, HEARTH_TOO_LONG, name, "%s[%zu] has %zu bytes", name, i, input->len);
        if (input->text == NULL && check_tokens(input, i, n_vocab, error) != HEARTH_OK) return HEARTH_INVALID;
    }
    return HEARTH_OK;
}

static const char *copy_text(const hearth_embed_params *p, const char *text, size_t len)
{
    return p->lent || text == NULL ? text : mem_strndup(text, len);
}

static hearth_embedding *new_embedding(const hearth_embed_params *p)
{
    hearth_embedding *request = mem_alloc(sizeof *request);
    request->refs = 2;
    request->params = *p;
    request->params.model = request->params.query = NULL;
    request->params.inputs = NULL;
    request->query = copy_text(p, p->query, p->query_len);
    request->texts = mem_alloc(p->n_inputs * sizeof *request->texts);
    request->lens = mem_alloc(p->n_inputs * sizeof *request->lens);
    request->parts = mem_alloc(p->n_inputs * sizeof *request->parts);
    request->job.inputs = mem_alloc(p->n_inputs * sizeof *request->job.inputs);
    request->job.n_inputs = p->n_inputs;
    request->job.prepare = prepare_job_input;
    request->job.on_end = embed_job_ended;
    for (size_t i = 0; i < p->n_inputs; i++) {
        const hearth_input *input = &p->inputs[i];
        struct input_parts *parts = &request->parts[i];
        size_t n_tokens = input->text == NULL ? input->n_tokens : 0;
        request->lens[i] = input->len;
        request->texts[i] = copy_text(p, input->text, input->len);
        tokens_append(&request->job.inputs[i].tokens, input->tokens, n_tokens);
        request->job.bytes += input->text != NULL ? input->len : n_tokens * sizeof *input->tokens;
        parts->n = input->text == NULL ? input->n_parts : 0;
        parts->v = mem_alloc((parts->n + 1) * sizeof *parts->v);
        for (size_t k = 0; k < parts->n; k++) {
            const hearth_part *part = &input->parts[k];
            parts->v[k] = *part;
            parts->v[k].text = copy_text(p, part->text, part->len);
            request->job.bytes += part->text == NULL ? sizeof part->token : part->len;
        }
    }
    return request;
}

/* ---- Submitting ---- */

/* The lease is granted. */
static int submit_to_pool(hearth_embedding *request, hearth_error *error)
{
    request->model = atomic_load(&request->lease.model);
    switch (embed_submit(request->model->pool, &request->job)) {
    case EMBED_TAKEN:
        return HEARTH_OK;
    case EMBED_FULL:
        return error_set(error, HEARTH_BUSY,
                         "server busy processing other requests: their texts and this one's are more than wait "
                         "together, try again shortly");
    default:
        return error_set(error, HEARTH_UNAVAILABLE, "submit: engine shutting down");
    }
}

static void on_pool_ready(void *ud, const hearth_error *error)
{
    hearth_embedding *request = ud;
    hearth_error own;
    if (error == NULL && submit_to_pool(request, &own) != HEARTH_OK) error = &own;
    if (error != NULL) embed_job_ended(&request->job, error);
}

static int submit_embedding(hearth_embedding *request, struct model_entry *entry, int64_t now, hearth_error *error)
{
    struct lease *lease = &request->lease;
    lease->entry = entry;
    lease->deadline = now + clock_from_ms((int64_t)(entry->config->admission_timeout * 1e3));
    lease->on_ready = on_pool_ready;
    lease->ud = request;
    switch (lease_take(lease, error)) {
    case LEASE_READY:
        return submit_to_pool(request, error);
    case LEASE_WAITS:
        return HEARTH_OK;
    default:
        return (int)error->code;
    }
}

hearth_embedding *hearth_embed(hearth *instance, const hearth_embed_params *params, hearth_embedded_fn on_end, void *ud,
                               hearth_error *error)
{
    hearth_error own;
    if (error == NULL) error = &own;
    hearth_model_type type = params->query != NULL ? HEARTH_MODEL_RERANK : HEARTH_MODEL_EMBEDDING;
    struct model_entry *entry = instance_pick_model(instance, params->model, type, error);
    if (entry == NULL || check(params, entry, error) != HEARTH_OK) return NULL;
    hearth_embedding *request = new_embedding(params);
    if (params->truncate == HEARTH_TRUNCATE_CONFIGURED)
        request->params.truncate = entry->config->truncate ? HEARTH_TRUNCATE_WINDOW : 0;
    request->on_end = on_end;
    request->ud = ud;
    if (submit_embedding(request, entry, clock_now(instance->clock), error) == HEARTH_OK) return request;
    request->refs = 1; /* the job never started */
    unref_embedding(request);
    return NULL;
}

void hearth_embedding_cancel(hearth_embedding *request)
{
    atomic_store(&request->job.cancelled, true);
    struct model *model = atomic_load(&request->lease.model);
    if (model == NULL)
        lease_cancel(&request->lease);
    else
        embed_poke(model->pool);
}

int64_t hearth_embedding_tokens(const hearth_embedding *request)
{
    return atomic_load(&request->job.n_computed);
}

void hearth_embedding_release(hearth_embedding *request)
{
    if (request == NULL) return;
    lease_drop_party(&request->lease);
    unref_embedding(request);
}
