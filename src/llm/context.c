/* Opens a llama.cpp context, decodes with it, and cuts and shares its sequences. A context owns its thread pool and its
 * one batch. It belongs to the engine's thread; llama.cpp's workers run inside llm_decode() alone and sleep otherwise.
 */
#include "llm/context.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "llm/guard.h"
#include "llm/llm_parts.h"
#include "llm/projector.h"

#include <stdlib.h>
#include <string.h>

struct llm_context {
    struct llama_context *handle;
    struct ggml_threadpool *threads;
    struct llama_batch batch;
    int32_t capacity; /* tokens of the batch */
    bool unified;
    int32_t window, n_seq, n_vocab, n_swa;
    bool full_windows;
    bool on_devices;                  /* some device is one: decode calls may return before they are computed */
    bool recurrent;                   /* recurrent and hybrid models, whose state cannot go back */
    bool mrope;                       /* positions have several dimensions */
    const struct media_spans **media; /* of each sequence; borrowed, NULL: none */
    int32_t *partial; /* of each sequence: where its rows end, if that is within an image; 0: it is not, or not known */
    uint8_t *copying; /* of each sequence: its role in copies that the next decode makes, enum llm_copying */
    int32_t
        scratch; /* the scratch sequence, the last one, through which KV rows are saved and loaded; -1: there is none */
    bool flash_attention;
    struct llm_memory memory;
    struct llama_context_params translated;
    int32_t trained; /* trained context in tokens, without RoPE scaling */
    bool window_factors;
    double freq_base, freq_scale;
};

/* ---- Opening ---- */

static int check_has_decoder(const struct llm_model_info *info, hearth_error *error)
{
    if (info->has_decoder) return HEARTH_OK;
    return error_set(error, HEARTH_UNSUPPORTED,
                     "a model of the architecture '%s' cannot generate text: it is an encoder", info->architecture);
}

static int explain_open_failure(const struct llm_context_params *params, const struct llm_log_capture *captured,
                                hearth_error *error)
{
    if (strstr(captured->reason, "alloc") == NULL)
        return error_set(error, HEARTH_UNSUPPORTED,
                         "no context of %d sequences of %d tokens (cache_type_k %s, cache_type_v %s, flash_attention "
                         "%s): %s",
                         params->n_seq, params->window, params->type_k, params->type_v, params->flash_attention,
                         captured->reason);
    return error_set(error, HEARTH_NO_MEMORY,
                     "no memory for a context of %d sequences of %d tokens (%s; %.2f GiB free): lower context_window, "
                     "n_seq_max or n_ubatch, or take a smaller cache_type_k and cache_type_v",
                     params->n_seq, params->window, captured->reason,
                     (double)llm_free_memory(params->offload_kqv && llm_has_gpu()) / (1024.0 * 1024 * 1024));
}

int llm_check_buffers(const struct llm_log_capture *captured, bool has_devices, hearth_error *error)
{
    const double gib = 1024.0 * 1024 * 1024;
    uint64_t available = llm_free_memory(false);
    if (has_devices || captured->compute <= available) return HEARTH_OK;
    return error_set(error, HEARTH_NO_MEMORY,
                     "no memory for the compute buffers (%.2f GiB; %.2f GiB free): lower n_ubatch, n_batch or "
                     "context_window",
                     (double)captured->compute / gib, (double)available / gib);
}

/* ggml ends the process where it cannot start a thread. */
static int try_threads(int n, hearth_error *error)
{
    int rc = thread_try(n, "computes", error);
    if (rc != HEARTH_OK) error_prefix(error, "%d threads to compute with (models.*.threads): ", n);
    return rc;
}

/* The workers do not poll between decodes (llama.cpp's default does, for some 100 ms after each): an idle server uses
 * no CPU, and waking them takes microseconds against the milliseconds of a decode. */
struct ggml_threadpool *llm_start_threads(int n_threads, hearth_error *error)
{
    if (n_threads > 1 && try_threads(n_threads, error) != HEARTH_OK) return NULL;
    struct ggml_threadpool_params params = ggml_threadpool_params_default(n_threads);
    params.poll = 0;
    return ggml_threadpool_new(&params);
}

struct llm_memory llm_memory_of(const struct llm_model *model, const struct llm_log_capture *captured)
{
    return (struct llm_memory){
        .weights = llm_model_weights(model), .cells = captured->cells, .compute = captured->compute};
}

struct llm_context *llm_context_open(struct llm_model *model, const struct llm_context_params *params,
                                     hearth_error *error)
{
    const struct llm_model_info *info = llm_model_info(model);
    struct llama_context_params translated;
    if (check_has_decoder(info, error) < 0 || llm_translate_params(&translated, params, info, error) < 0 ||
        llm_check_room(params, info, error) < 0)
        return NULL;
    struct llm_log_capture captured;
    llm_log_capture_begin(&captured);
    struct llama_context *handle = llama_init_from_model(llm_model_handle(model), translated);
    llm_log_capture_end();
    if (handle == NULL) {
        explain_open_failure(params, &captured, error);
        return NULL;
    }
    struct ggml_threadpool *threads = NULL;
    if (llm_check_buffers(&captured, llm_has_devices(info), error) == HEARTH_OK)
        threads = llm_start_threads(translated.n_threads, error);
    if (threads == NULL) {
        llama_free(handle);
        return NULL;
    }
    struct llm_context *context = mem_alloc(sizeof *context);
    context->handle = handle;
    context->threads = threads;
    llama_attach_threadpool(handle, context->threads, NULL);
    context->capacity = (int32_t)llama_n_batch(handle);
    context->batch = llama_batch_init(context->capacity, 0, 1);
    context->window = params->window;
    context->n_seq = params->n_seq;
    context->scratch = translated.n_seq_max > (uint32_t)params->n_seq ? params->n_seq : -1;
    context->copying = mem_alloc((size_t)params->n_seq);
    context->media = mem_alloc((size_t)params->n_seq * sizeof(struct media_spans *));
    context->partial = mem_alloc((size_t)params->n_seq * sizeof *context->partial);
    enum llama_rope_type rope = llama_model_rope_type(llm_model_handle(model));
    context->mrope = rope == LLAMA_ROPE_TYPE_MROPE || rope == LLAMA_ROPE_TYPE_IMROPE;
    context->unified = params->unified;
    context->n_vocab = info->n_vocab;
    context->n_swa = info->n_swa;
    context->full_windows = params->full_windows;
    context->on_devices = llm_has_devices(info);
    context->recurrent = info->kind == HEARTH_KIND_RECURRENT || info->kind == HEARTH_KIND_HYBRID;
    context->flash_attention =
        translated.flash_attn_type != LLAMA_FLASH_ATTN_TYPE_DISABLED && !captured.flash_attention_refused;
    context->memory = llm_memory_of(model, &captured);
    context->translated = translated;
    context->trained = info->n_ctx_train;
    context->window_factors = info->window_factors;
    context->freq_base = captured.freq_base;
    context->freq_scale = captured.freq_scale;
    return context;
}

void llm_context_close(struct llm_context *context)
{
    if (context == NULL) return;
    llama_batch_free(context->batch);
    llama_free(context->handle);
    ggml_threadpool_free(context->threads);
    free(context->copying);
    free(context->media);
    free(context->partial);
    free(context);
}

bool llm_flash_attention(const struct llm_context *context)
{
    return context->flash_attention;
}

struct llm_memory llm_context_memory(const struct llm_context *context)
{
    return context->memory;
}

struct llama_context *llm_context_handle(const struct llm_context *context)
{
    return context->handle;
}

const struct llama_context_params *llm_context_translated(const struct llm_context *context)
{
    return &context->translated;
}

int32_t llm_context_trained(const struct llm_context *context)
{
    return context->trained;
}

bool llm_context_window_factors(const struct llm_context *context)
{
    return context->window_factors;
}

void llm_context_logged_rope(const struct llm_context *context, double *freq_base, double *freq_scale)
{
    *freq_base = context->freq_base;
    *freq_scale = context->freq_scale;
}

int32_t llm_scratch(const struct llm_context *context)
{
    return context->scratch;
}

bool llm_is_unified(const struct llm_context *context)
{
    return context->unified;
}

bool llm_is_recurrent(const struct llm_context *context)
{
    return context->recurrent;
}

/* ---- Positions ---- */

void llm_seq_set_media(struct llm_context *context, int32_t seq, const struct media_spans *media)
{
    context->media[seq] = media;
}

const struct media_spans *llm_seq_media(const struct llm_context *context, int32_t seq)
{
    return seq < context->n_seq ? context->media[seq] : NULL; /* the scratch sequence has none of its own */
}

int32_t llm_position(const struct llm_context *context, int32_t seq, int32_t index)
{
    const struct media_spans *media = llm_seq_media(context, seq);
    return media == NULL ? index : media_spans_position(media, index);
}

/* ---- Sequences ---- */

/* Whether the rows of the span share positions, so that these do not say how many of them there are. */
static bool is_packed(const struct media_span *span)
{
    return span != NULL && span->n_pos != span->n;
}

void llm_seq_note_end(struct llm_context *context, int32_t seq, int32_t end)
{
    const struct media_spans *media = llm_seq_media(context, seq);
    const struct media_span *span = media == NULL ? NULL : media_spans_at(media, end);
    context->partial[seq] = is_packed(span) && end > span->at ? end : 0;
}

/* An image is there whole unless it is known how much of it is: after a call that was broken off the end is not that
 * which callers expect, and they cut it back. */
int32_t llm_seq_end(struct llm_context *context, int32_t seq)
{
    int32_t last = llama_memory_seq_pos_max(llama_get_memory(context->handle), seq);
    const struct media_spans *media = llm_seq_media(context, seq);
    if (last < 0 || media == NULL) return last + 1;
    int32_t index = media_spans_index(media, last);
    const struct media_span *span = media_spans_at(media, index);
    int32_t partial = context->partial[seq];
    if (!is_packed(span)) return index + 1;
    return partial > span->at && partial < span->at + span->n ? partial : span->at + span->n;
}

void llm_seq_clear(struct llm_context *context, int32_t seq)
{
    llama_memory_seq_rm(llama_get_memory(context->handle), seq, -1, -1);
    if (seq < context->n_seq) context->partial[seq] = 0;
}

/* Whether the sliding window before `from` would be complete. llama.cpp removes cells without an error even when older
 * ones, which the new end would need, have been overwritten. All positions from pos_min on are there. */
static bool window_is_complete(struct llm_context *context, int32_t seq, int32_t from)
{
    if (context->n_swa <= 0 || context->full_windows) return true;
    from = llm_position(context, seq, from);
    int32_t needed = from > context->n_swa ? from - context->n_swa : 0;
    return llama_memory_seq_pos_min(llama_get_memory(context->handle), seq) <= needed;
}

bool llm_seq_can_cut(struct llm_context *context, int32_t seq, int32_t from)
{
    if (from <= 0 || from >= llm_seq_end(context, seq)) return true;
    return !context->recurrent && window_is_complete(context, seq, from);
}

bool llm_seq_cut(struct llm_context *context, int32_t seq, int32_t from)
{
    if (from >= llm_seq_end(context, seq)) return true;
    if (from <= 0) {
        llm_seq_clear(context, seq);
        return true;
    }
    /* In a hybrid model the recurrent part is asked first, and refuses before anything is removed. */
    bool cut = window_is_complete(context, seq, from) &&
               llama_memory_seq_rm(llama_get_memory(context->handle), seq, llm_position(context, seq, from), -1);
    if (cut) context->partial[seq] = 0;
    return cut;
}

bool llm_cuts_anywhere(const struct llm_context *context)
{
    return !context->recurrent && (context->n_swa <= 0 || context->full_windows);
}

unsigned llm_seq_copying(const struct llm_context *context, int32_t seq)
{
    return context->copying[seq];
}

bool llm_has_window(const struct llm_context *context)
{
    return context->n_swa > 0;
}

bool llm_one_seq_a_call(const struct llm_context *context)
{
    return context->unified && context->recurrent && context->n_swa > 0;
}

bool llm_seq_share(struct llm_context *context, int32_t from, int32_t to, int32_t n)
{
    int32_t end = llm_seq_end(context, from);
    llm_seq_clear(context, to);
    if (n <= 0 || n > end || (n < end && !llm_cuts_anywhere(context))) return false;
    /* Between streams llama.cpp copies whole sequences only, and ends the process when asked for less. */
    bool part = context->unified && n < end;
    llama_memory_seq_cp(llama_get_memory(context->handle), from, to, part ? 0 : -1,
                        part ? llm_position(context, from, n) : -1);
    if (!context->unified) {
        context->copying[from] |= LLM_COPIED_FROM;
        context->copying[to] |= LLM_COPIED_TO;
    }
    /* Of all that a sequence has, only the beginning need have the same media: where cells cannot be cut, the caller
     * goes back to a checkpoint next, which says where it ends. */
    if (n == end || (llm_seq_cut(context, to, n) && llm_seq_end(context, to) == n)) return true;
    llm_seq_clear(context, to);
    return false;
}

/* ---- Decoding ---- */

/* Checks what llama.cpp does not check by itself, or checks by ending the process. */
static bool is_valid_batch(const struct llm_context *context, const struct llm_batch_token *tokens, int32_t n_tokens)
{
    if (n_tokens < 1 || n_tokens > context->capacity) return false;
    for (int32_t i = 0; i < n_tokens; i++) {
        if (tokens[i].seq < 0 || tokens[i].seq >= context->n_seq) return false;
        if (tokens[i].pos < 0 || tokens[i].pos >= context->window) return false;
        if (tokens[i].token < 0 || tokens[i].token >= context->n_vocab) return false;
    }
    return true;
}

static void fill_decode_batch(struct llm_context *context, const struct llm_batch_token *tokens, int32_t n_tokens)
{
    struct llama_batch *batch = &context->batch;
    batch->n_tokens = n_tokens;
    for (int32_t i = 0; i < n_tokens; i++) {
        batch->token[i] = tokens[i].token;
        batch->pos[i] = llm_position(context, tokens[i].seq, tokens[i].pos);
        batch->n_seq_id[i] = 1;
        batch->seq_id[i][0] = tokens[i].seq;
        batch->logits[i] = tokens[i].logits;
    }
}

/* A decode that did not finish leaves recurrent states that must not be used again, though their positions look right.
 * Those of the batch have consumed an unknown part of its tokens. With several sequences in the batch, llama.cpp may
 * also have reassigned the cells of others so that those of the batch are adjacent, and left copying their data to the
 * computation that never ran: then all sequences are cleared. */
static void drop_broken_states(struct llm_context *context, const struct llama_batch *batch)
{
    if (!context->recurrent) return;
    bool several = false;
    for (int32_t i = 1; i < batch->n_tokens; i++) several = several || batch->seq_id[i][0] != batch->seq_id[0][0];
    if (several)
        llama_memory_clear(llama_get_memory(context->handle), false);
    else
        llm_seq_clear(context, batch->seq_id[0][0]);
}

void llm_renew_buffers(struct llama_context *handle, bool causal)
{
    llama_set_causal_attn(handle, !causal);
    llama_set_causal_attn(handle, causal);
}

static enum llm_decoded decode_batch(struct llm_context *context, struct llama_batch batch)
{
    char fault[256] = "";
    llm_log_quiet(true);
    int32_t result = llm_guarded_decode(context->handle, batch, fault, sizeof fault);
    llm_log_quiet(false);
    if (result == LLM_THREW) log_event(LOG_ERROR, "llama.cpp", "decode threw", log_str("reason", fault));
    switch (result) {
    case 0:
        if (context->on_devices) llama_synchronize(context->handle);
        memset(context->copying, 0, (size_t)context->n_seq);
        return LLM_DECODED;
    case 1:
        return LLM_NO_CELLS;
    case -1:
        return LLM_REFUSED;
    default:
        if (result != 2) llm_renew_buffers(context->handle, true);
        drop_broken_states(context, &batch);
        return result == 2 ? LLM_ABORTED : LLM_FAILED;
    }
}

enum llm_decoded llm_decode(struct llm_context *context, const struct llm_batch_token *tokens, int32_t n_tokens)
{
    if (!is_valid_batch(context, tokens, n_tokens)) return LLM_REFUSED;
    fill_decode_batch(context, tokens, n_tokens);
    return decode_batch(context, context->batch);
}

/* llama.cpp ends the process where rows that are not causal do not fit a micro-batch. */
static bool are_valid_rows(const struct llm_context *context, const struct llm_media_rows *rows)
{
    int32_t most = rows->causal ? context->capacity : (int32_t)llama_n_ubatch(context->handle);
    bool fits = rows->n > 0 && rows->n <= most && rows->from >= 0 && rows->from + rows->n <= context->window;
    return fits && rows->seq >= 0 && rows->seq < context->n_seq && (rows->places != NULL) == context->mrope;
}

/* With several dimensions the positions of all rows come dimension by dimension. */
static void fill_places(const struct llm_context *context, const struct llm_media_rows *rows, llama_pos *positions)
{
    for (int32_t i = 0; i < rows->n; i++) {
        positions[i] = llm_position(context, rows->seq, rows->from + i);
        if (rows->places == NULL) continue;
        positions[i] = rows->places[i].t;
        positions[rows->n + i] = rows->places[i].y;
        positions[2 * rows->n + i] = rows->places[i].x;
    }
}

enum llm_decoded llm_decode_rows(struct llm_context *context, const struct llm_media_rows *rows)
{
    if (!are_valid_rows(context, rows)) return LLM_REFUSED;
    enum { DIMENSIONS = 4 }; /* llama.cpp's, of which the last is not used */
    llama_pos *positions = mem_alloc((size_t)rows->n * DIMENSIONS * sizeof *positions);
    struct llama_batch batch = context->batch;
    batch.n_tokens = rows->n;
    batch.token = NULL;
    batch.embd = (float *)(uintptr_t)rows->rows;
    batch.pos = positions;
    fill_places(context, rows, positions);
    for (int32_t i = 0; i < rows->n; i++) {
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = rows->seq;
        batch.logits[i] = rows->logits && i + 1 == rows->n;
    }
    if (!rows->causal) llama_set_causal_attn(context->handle, false);
    enum llm_decoded decoded = decode_batch(context, batch);
    if (decoded != LLM_NO_CELLS && decoded != LLM_REFUSED)
        llm_seq_note_end(context, rows->seq, decoded == LLM_DECODED ? rows->from + rows->n : 0);
    if (!rows->causal) llama_set_causal_attn(context->handle, true);
    free(positions);
    return decoded;
}

bool llm_on_devices(const struct llm_context *context)
{
    return context->on_devices;
}

int32_t llm_threads(const struct llm_context *context)
{
    return context->translated.n_threads;
}

void llm_set_threads(struct llm_context *context, int32_t n)
{
    if (n != llama_n_threads(context->handle))
        llama_set_n_threads(context->handle, n, n); /* it logs a line each time */
}

const float *llm_logits(struct llm_context *context, int32_t index)
{
    return llama_get_logits_ith(context->handle, index);
}
