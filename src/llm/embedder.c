/* Computes embeddings with a llama.cpp context of its own, and prepares its inputs. llama.cpp pools only what one
 * micro-batch computes, and ends the process where an encoder's batch does not fit, so this file chooses the sizes and
 * checks every call against them. An embedder belongs to one thread. */
#include "llm/embedder.h"

#include "base/error.h"
#include "base/memory.h"
#include "llm/context_params.h"
#include "llm/handle.h"
#include "llm/model_struct.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct llm_embedder {
    struct llm_handle handle;
    struct llama_batch batch;
    hearth_pooling pooling;
    bool encodes; /* with llama_encode() instead of llama_decode() */
    bool causal;
    int32_t window, max_tokens, n_inputs, n_vocab, width;
    int32_t *first; /* of each input of the last call: the index of its first batch token */
};

/* Memory for each recurrent state is allocated, whether it is used or not. */
#define MAX_STATES 8

/* ---- The purpose of a model ---- */

bool llm_is_embedder(const struct llm_model *model)
{
    const struct llm_model_info *info = llm_model_info(model);
    return !info->has_decoder || info->pooling > HEARTH_POOLING_NONE;
}

hearth_pooling llm_default_pooling(const struct llm_model *model)
{
    const struct llm_model_info *info = llm_model_info(model);
    if (info->pooling != HEARTH_POOLING_UNSPECIFIED) return info->pooling;
    return info->has_decoder ? HEARTH_POOLING_LAST : HEARTH_POOLING_MEAN;
}

/* ---- Opening ---- */

static int check_can_embed(struct llm_model *model, const struct llm_context_params *params, hearth_pooling pooling,
                           hearth_error *error)
{
    const struct llm_model_info *info = llm_model_info(model);
    const struct llama_model *handle = model->handle;
    if (llama_model_has_encoder(handle) && llama_model_has_decoder(handle))
        return error_set(error, HEARTH_UNSUPPORTED,
                         "a model of the architecture '%s' is an encoder with a decoder, which is not served",
                         info->architecture);
    if (pooling == HEARTH_POOLING_RANK && info->n_scores == 0)
        return error_at(error, HEARTH_UNSUPPORTED, "pooling",
                        "the model has no classification head for reranking: set pooling to mean, cls or last");
    /* Encoders have a position embedding for each position that they were trained for, and none beyond. */
    if (!info->has_decoder && params->window > info->n_ctx_train)
        return error_at(error, HEARTH_INVALID, "context_window",
                        "context_window is %d, but the encoder takes %d tokens: lower it", params->window,
                        info->n_ctx_train);
    return HEARTH_OK;
}

/* llama.cpp reserves its buffers for sequences of equal length, and ends the process where the batch is no multiple of
 * their number. */
static int32_t round_up_to_sequences(int32_t n_tokens, int32_t n_seq)
{
    return (n_tokens + n_seq - 1) / n_seq * n_seq;
}

static struct llm_context_params choose_sizes(const struct llm_context_params *wanted,
                                              const struct llm_model_info *info, hearth_pooling pooling)
{
    struct llm_context_params params = *wanted;
    bool state_each = info->kind == HEARTH_KIND_HYBRID || info->kind == HEARTH_KIND_RECURRENT;
    if (params.n_batch < params.window) params.n_batch = params.window;
    if (state_each && params.n_seq > MAX_STATES) params.n_seq = MAX_STATES;
    params.n_batch = round_up_to_sequences(params.n_batch, params.n_seq);
    params.n_ubatch = round_up_to_sequences(params.n_ubatch, params.n_seq);
    /* A call must be one micro-batch where attention or pooling needs all tokens of an input at once. It must with
     * sliding windows in a unified KV cache, where llama.cpp 0.5.0 gives wrong numbers otherwise. */
    bool causal_pooling = pooling == HEARTH_POOLING_NONE || pooling == HEARTH_POOLING_LAST;
    bool one_ubatch = !info->has_decoder || !causal_pooling || info->n_swa > 0;
    if (one_ubatch || params.n_ubatch > params.n_batch) params.n_ubatch = params.n_batch;
    params.unified = true;
    params.scratch = false;
    params.n_cells = params.n_batch;
    return params;
}

struct llm_cells llm_embedder_cells(const struct llm_context_params *wanted, const struct llm_model_info *info,
                                    hearth_pooling pooling)
{
    struct llm_context_params params = choose_sizes(wanted, info, pooling);
    return llm_cells_of(&params, info);
}

struct llm_embedder *llm_embedder_open(struct llm_model *model, const struct llm_context_params *wanted,
                                       hearth_pooling pooling, hearth_error *error)
{
    assert(model != NULL && wanted != NULL && pooling != HEARTH_POOLING_UNSPECIFIED);
    const struct llm_model_info *info = llm_model_info(model);
    struct llm_context_params params = choose_sizes(wanted, info, pooling);
    struct llama_context_params translated;
    if (check_can_embed(model, &params, pooling, error) < 0 ||
        llm_translate_params(&translated, &params, info, error) < 0 || llm_check_room(&params, info, error) < 0)
        return NULL;
    translated.embeddings = true;
    translated.pooling_type = (enum llama_pooling_type)pooling;
    struct llm_log_capture captured;
    struct llm_handle handle;
    if (!llm_handle_open(&handle, model, &translated, &params.threads, &captured, error)) {
        if (handle.v == NULL && captured.no_memory)
            error_set(error, HEARTH_NO_MEMORY,
                      "no memory for a context of %u tokens (%s): lower context_window or n_batch", translated.n_batch,
                      captured.reason);
        else if (handle.v == NULL)
            error_set(error, HEARTH_UNSUPPORTED, "no context for embeddings of %u tokens: %s", translated.n_batch,
                      captured.reason);
        return NULL;
    }
    struct llm_embedder *embedder = mem_alloc(sizeof *embedder);
    embedder->handle = handle;
    embedder->batch = llama_batch_init(params.n_batch, 0, 1);
    embedder->pooling = pooling;
    embedder->encodes = llama_model_has_encoder(model->handle);
    embedder->causal = info->has_decoder;
    embedder->window = params.window;
    embedder->max_tokens = params.n_batch;
    embedder->n_inputs = params.n_seq;
    embedder->n_vocab = info->n_vocab;
    embedder->width = pooling == HEARTH_POOLING_RANK ? 1 : info->n_embd_out;
    embedder->first = mem_alloc((size_t)params.n_seq * sizeof *embedder->first);
    return embedder;
}

void llm_embedder_close(struct llm_embedder *embedder)
{
    if (embedder == NULL) return;
    llama_batch_free(embedder->batch);
    llm_handle_close(&embedder->handle);
    free(embedder->first);
    free(embedder);
}

int32_t llm_embedder_max_tokens(const struct llm_embedder *embedder)
{
    return embedder->max_tokens;
}

void llm_embedder_begin_computing(const struct llm_embedder *embedder)
{
    llm_take_place(&embedder->handle.place);
}

int32_t llm_embedder_max_inputs(const struct llm_embedder *embedder)
{
    return embedder->n_inputs;
}

int32_t llm_embedder_width(const struct llm_embedder *embedder)
{
    return embedder->width;
}

struct llm_memory llm_embedder_memory(const struct llm_embedder *embedder)
{
    return embedder->handle.memory;
}

/* ---- Computing ---- */

static bool are_valid_inputs(const struct llm_embedder *embedder, const struct llm_input *inputs, int32_t n)
{
    int64_t n_tokens = 0;
    if (n < 1 || n > embedder->n_inputs) return false;
    for (int32_t i = 0; i < n; i++) {
        if (inputs[i].n < 1 || inputs[i].n > embedder->window) return false;
        n_tokens += inputs[i].n;
        for (int32_t t = 0; t < inputs[i].n; t++)
            if (inputs[i].tokens[t] < 0 || inputs[i].tokens[t] >= embedder->n_vocab) return false;
    }
    return n_tokens <= embedder->max_tokens;
}

enum llm_decoded llm_embed(struct llm_embedder *embedder, const struct llm_input *inputs, int32_t n)
{
    assert(embedder != NULL && (inputs != NULL || n <= 0));
    if (!are_valid_inputs(embedder, inputs, n)) return LLM_REFUSED;
    struct llama_batch *batch = &embedder->batch;
    int32_t next = 0;
    for (int32_t i = 0; i < n; i++) {
        embedder->first[i] = next;
        for (int32_t at = 0; at < inputs[i].n; at++, next++) {
            batch->token[next] = inputs[i].tokens[at];
            batch->pos[next] = at;
            batch->n_seq_id[next] = 1;
            batch->seq_id[next][0] = i;
            batch->logits[next] = true; /* pooling needs the outputs of all tokens */
        }
    }
    batch->n_tokens = next;
    llama_memory_t memory = llama_get_memory(embedder->handle.v);
    if (memory != NULL) llama_memory_clear(memory, false);
    return llm_handle_run(&embedder->handle, embedder->batch, embedder->encodes, embedder->causal);
}

const float *llm_embedding(struct llm_embedder *embedder, int32_t input, int32_t at)
{
    assert(input >= 0 && input < embedder->n_inputs && (at == 0 || embedder->pooling == HEARTH_POOLING_NONE));
    if (embedder->pooling == HEARTH_POOLING_NONE)
        return llama_get_embeddings_ith(embedder->handle.v, embedder->first[input] + at);
    return llama_get_embeddings_seq(embedder->handle.v, input);
}

/* ---- Inputs ---- */

void llm_truncate_input(const struct llm_model *model, struct tokens *input, size_t limit, bool from_left)
{
    assert(input != NULL && limit > 0);
    if (input->len <= limit) return;
    const struct llama_vocab *vocab = model->vocab;
    size_t excess = input->len - limit;
    size_t head = llama_vocab_is_control(vocab, input->v[0]) && limit > 1;
    size_t tail = llama_vocab_is_control(vocab, input->v[input->len - 1]) && limit > head + 1;
    size_t cut_at = from_left ? head : input->len - tail - excess; /* where the removed tokens begin */
    memmove(&input->v[cut_at], &input->v[cut_at + excess], (input->len - cut_at - excess) * sizeof *input->v);
    tokens_truncate(input, limit);
}

/* ---- Pairs for reranking ---- */

/* A pair's input: the document, and the tokens before and after it. */
struct pair_parts {
    struct tokens before, document, after;
};

static void push_if(struct tokens *out, bool wanted, llama_token token)
{
    if (wanted && token != LLAMA_TOKEN_NULL) tokens_push(out, token);
}

/* The order of llama-server, which uses the separator where a vocabulary has no EOS token. */
static void join_with_separators(const struct llm_model *model, const struct llm_pair *pair,
                                 struct pair_parts *pair_parts)
{
    const struct llama_vocab *vocab = model->vocab;
    llama_token sep = llama_vocab_sep(vocab), eos = llama_vocab_eos(vocab);
    if (eos == LLAMA_TOKEN_NULL) eos = sep;
    push_if(&pair_parts->before, llama_vocab_get_add_bos(vocab), llama_vocab_bos(vocab));
    llm_tokenize(model, pair->query, pair->query_len, false, false, &pair_parts->before);
    push_if(&pair_parts->before, llama_vocab_get_add_eos(vocab), eos);
    push_if(&pair_parts->before, llama_vocab_get_add_sep(vocab), sep);
    llm_tokenize(model, pair->document, pair->document_len, false, false, &pair_parts->document);
    push_if(&pair_parts->after, llama_vocab_get_add_eos(vocab), eos);
}

static const char query_mark[] = "{query}", document_mark[] = "{document}";

static bool starts_with(const char *text, const char *mark)
{
    return strncmp(text, mark, strlen(mark)) == 0;
}

/* Bytes up to the next placeholder. */
static size_t literal_len(const char *text)
{
    size_t len = 0;
    while (text[len] != '\0' && !starts_with(text + len, query_mark) && !starts_with(text + len, document_mark)) len++;
    return len;
}

/* Fills in the template: as one text or, where `whole` is NULL, as the tokens of its parts. */
static void fill_template(const struct llm_model *model, const struct llm_pair *pair, struct buf *whole,
                          struct pair_parts *pair_parts)
{
    const char *text = llm_model_info(model)->rank_template;
    struct tokens *around = &pair_parts->before;
    while (*text != '\0') {
        bool query = starts_with(text, query_mark), document = starts_with(text, document_mark);
        size_t len = query ? strlen(query_mark) : document ? strlen(document_mark) : literal_len(text);
        const char *part = query ? pair->query : document ? pair->document : text;
        size_t part_len = query ? pair->query_len : document ? pair->document_len : len;
        if (whole != NULL)
            buf_append(whole, part, part_len);
        else
            llm_tokenize(model, part, part_len, false, !query && !document, document ? &pair_parts->document : around);
        if (document) around = &pair_parts->after;
        text += len;
    }
}

static bool is_too_long(const struct llm_model *model, const struct llm_pair *pair)
{
    struct tokens document = {0};
    if (pair->max_document > 0) llm_tokenize(model, pair->document, pair->document_len, false, false, &document);
    bool too_long = pair->max_document > 0 && document.len > pair->max_document;
    tokens_release(&document);
    return too_long;
}

bool llm_join_pair(const struct llm_model *model, const struct llm_pair *pair, size_t limit, struct tokens *out)
{
    assert(pair != NULL && pair->query != NULL && pair->document != NULL && out != NULL);
    const char *text = llm_model_info(model)->rank_template;
    struct pair_parts pair_parts = {0};
    bool spells_special = llm_contains_special_token(model, pair->query, pair->query_len) ||
                          llm_contains_special_token(model, pair->document, pair->document_len);
    if (text != NULL && !spells_special && !is_too_long(model, pair)) {
        /* As one text it may tokenise differently than in parts, and models were trained with one text. */
        struct buf whole = {0};
        size_t before = out->len;
        fill_template(model, pair, &whole, &pair_parts);
        llm_tokenize(model, whole.v, whole.len, false, true, out);
        buf_release(&whole);
        if (out->len - before <= limit) return true;
        tokens_truncate(out, before);
    }
    if (text != NULL)
        fill_template(model, pair, NULL, &pair_parts);
    else
        join_with_separators(model, pair, &pair_parts);
    if (pair->max_document > 0) tokens_truncate(&pair_parts.document, pair->max_document);
    size_t around = pair_parts.before.len + pair_parts.after.len;
    bool fits = around < limit || (around == limit && pair_parts.document.len == 0);
    if (fits) {
        tokens_truncate(&pair_parts.document, limit - around);
        tokens_append(out, pair_parts.before.v, pair_parts.before.len);
        tokens_append(out, pair_parts.document.v, pair_parts.document.len);
        tokens_append(out, pair_parts.after.v, pair_parts.after.len);
    }
    tokens_release(&pair_parts.before);
    tokens_release(&pair_parts.document);
    tokens_release(&pair_parts.after);
    return fits;
}
