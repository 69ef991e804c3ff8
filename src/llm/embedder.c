/* Computes embeddings with a llama.cpp context of its own. llama.cpp pools only what one micro-batch computes, and ends
 * the process where an encoder's batch does not fit, so this file chooses the sizes and checks every call against them.
 */
#include "llm/embedder.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "llm/guard.h"
#include "llm/llm_parts.h"

#include <stdlib.h>
#include <string.h>

struct llm_embedder {
    struct llama_context *handle;
    struct ggml_threadpool *threads;
    struct llama_batch batch;
    hearth_pooling pooling;
    bool encodes; /* with llama_encode() instead of llama_decode() */
    bool causal;
    int32_t window, max_tokens, n_inputs, n_vocab, width;
    int32_t *first; /* of each input of the last call: the index of its first batch token */
    struct llm_memory memory;
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
    const struct llama_model *handle = llm_model_handle(model);
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

/* Whether a call must be one micro-batch: where attention or pooling needs all tokens of an input at once, and with
 * sliding windows in a unified KV cache, where llama.cpp 0.5.0 gives wrong numbers otherwise. */
static bool needs_one_ubatch(const struct llm_model_info *info, hearth_pooling pooling)
{
    bool causal_pooling = pooling == HEARTH_POOLING_NONE || pooling == HEARTH_POOLING_LAST;
    return !info->has_decoder || !causal_pooling || info->n_swa > 0;
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
    if (needs_one_ubatch(info, pooling) || params.n_ubatch > params.n_batch) params.n_ubatch = params.n_batch;
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

static struct llama_context *open_handle(struct llm_model *model, const struct llama_context_params *params,
                                         struct llm_log_capture *captured, hearth_error *error)
{
    llm_log_capture_begin(captured);
    struct llama_context *handle = llama_init_from_model(llm_model_handle(model), *params);
    llm_log_capture_end();
    if (handle == NULL && strstr(captured->reason, "alloc") != NULL)
        error_set(error, HEARTH_NO_MEMORY, "no memory for a context of %u tokens (%s): lower context_window or n_batch",
                  params->n_batch, captured->reason);
    else if (handle == NULL)
        error_set(error, HEARTH_UNSUPPORTED, "no context for embeddings of %u tokens: %s", params->n_batch,
                  captured->reason);
    bool has_devices = llm_has_devices(llm_model_info(model));
    if (handle == NULL || llm_check_buffers(captured, has_devices, error) == HEARTH_OK) return handle;
    llama_free(handle);
    return NULL;
}

struct llm_embedder *llm_embedder_open(struct llm_model *model, const struct llm_context_params *wanted,
                                       hearth_pooling pooling, hearth_error *error)
{
    const struct llm_model_info *info = llm_model_info(model);
    struct llm_context_params params = choose_sizes(wanted, info, pooling);
    struct llama_context_params translated;
    if (check_can_embed(model, &params, pooling, error) < 0 ||
        llm_translate_params(&translated, &params, info, error) < 0 || llm_check_room(&params, info, error) < 0)
        return NULL;
    translated.embeddings = true;
    translated.pooling_type = (enum llama_pooling_type)pooling;
    struct llm_log_capture captured;
    struct llama_context *handle = open_handle(model, &translated, &captured, error);
    if (handle == NULL) return NULL;
    struct ggml_threadpool *threads = llm_start_threads(translated.n_threads, error);
    if (threads == NULL) {
        llama_free(handle);
        return NULL;
    }
    struct llm_embedder *embedder = mem_alloc(sizeof *embedder);
    embedder->handle = handle;
    embedder->threads = threads;
    llama_attach_threadpool(handle, embedder->threads, NULL);
    embedder->batch = llama_batch_init(params.n_batch, 0, 1);
    embedder->pooling = pooling;
    embedder->encodes = llama_model_has_encoder(llm_model_handle(model));
    embedder->causal = info->has_decoder;
    embedder->window = params.window;
    embedder->max_tokens = params.n_batch;
    embedder->n_inputs = params.n_seq;
    embedder->n_vocab = info->n_vocab;
    embedder->width = pooling == HEARTH_POOLING_RANK ? 1 : info->n_embd_out;
    embedder->first = mem_alloc((size_t)params.n_seq * sizeof *embedder->first);
    embedder->memory = llm_memory_of(model, &captured);
    return embedder;
}

void llm_embedder_close(struct llm_embedder *embedder)
{
    if (embedder == NULL) return;
    llama_batch_free(embedder->batch);
    llama_free(embedder->handle);
    ggml_threadpool_free(embedder->threads);
    free(embedder->first);
    free(embedder);
}

int32_t llm_embedder_max_tokens(const struct llm_embedder *embedder)
{
    return embedder->max_tokens;
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
    return embedder->memory;
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

static void fill_embedding_batch(struct llm_embedder *embedder, const struct llm_input *inputs, int32_t n)
{
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
}

enum llm_decoded llm_embed(struct llm_embedder *embedder, const struct llm_input *inputs, int32_t n)
{
    char fault[256] = "";
    if (!are_valid_inputs(embedder, inputs, n)) return LLM_REFUSED;
    fill_embedding_batch(embedder, inputs, n);
    llama_memory_t memory = llama_get_memory(embedder->handle);
    if (memory != NULL) llama_memory_clear(memory, false);
    llm_log_quiet(true);
    int32_t result = (embedder->encodes ? llm_guarded_encode : llm_guarded_decode)(embedder->handle, embedder->batch,
                                                                                   fault, sizeof fault);
    llm_log_quiet(false);
    if (result == LLM_THREW) log_event(LOG_ERROR, "llama.cpp", "decode threw", log_str("reason", fault));
    switch (result) {
    case 0:
        return LLM_DECODED;
    case 1:
        return LLM_NO_CELLS;
    case 2:
        return LLM_ABORTED;
    case -1:
        return LLM_REFUSED;
    default:
        llm_renew_buffers(embedder->handle, embedder->causal);
        return LLM_FAILED;
    }
}

const float *llm_embedding(struct llm_embedder *embedder, int32_t input, int32_t at)
{
    if (embedder->pooling == HEARTH_POOLING_NONE)
        return llama_get_embeddings_ith(embedder->handle, embedder->first[input] + at);
    return llama_get_embeddings_seq(embedder->handle, input);
}
