/* Opens a llama.cpp context, decodes with it, cuts and shares its sequences, and describes it. A context owns its
 * handle and its one batch. It belongs to the engine's thread. */
#include "llm/context_struct.h"

#include "base/error.h"
#include "base/memory.h"
#include "llm/context_params.h"
#include "llm/head.h"
#include "llm/logits.h"
#include "llm/model_identity.h"
#include "llm/model_struct.h"
#include "llm/projector.h"
#include "llm/shim.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Opening ---- */

static int explain_open_failure(const struct llm_context_params *params, const struct llm_log_capture *captured,
                                hearth_error *error)
{
    if (!captured->no_memory)
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

struct llm_context *llm_context_open(struct llm_model *model, const struct llm_context_params *params,
                                     hearth_error *error)
{
    assert(model != NULL && params != NULL && params->type_k != NULL && params->type_v != NULL);
    const struct llm_model_info *info = llm_model_info(model);
    struct llama_context_params translated;
    struct llm_log_capture captured;
    struct llm_handle handle;
    if (!info->has_decoder && params->head != LLM_HEAD_EAGLE) {
        error_set(error, HEARTH_UNSUPPORTED, "a model of the architecture '%s' cannot generate text: it is an encoder",
                  info->architecture);
        return NULL;
    }
    if (llm_translate_params(&translated, params, info, error) < 0 || llm_check_room(params, info, error) < 0)
        return NULL;
    if (params->other != NULL) translated.ctx_other = params->other->handle.v;
    if (!llm_handle_open(&handle, model, &translated, &params->threads, &captured, error)) {
        if (handle.v == NULL) explain_open_failure(params, &captured, error);
        return NULL;
    }
    struct llm_context *context = mem_alloc(sizeof *context);
    context->handle = handle;
    context->capacity = (int32_t)llama_n_batch(handle.v);
    context->batch = llama_batch_init(context->capacity, 0, 1);
    context->n_row = info->n_embd_out;
    context->head = params->head;
    if (params->head != LLM_HEAD_NONE)
        context->rows = mem_alloc((size_t)context->capacity * (size_t)context->n_row * sizeof(float));
    context->window = params->window;
    context->n_seq = params->n_seq;
    context->scratch = translated.n_seq_max > (uint32_t)params->n_seq ? params->n_seq : -1;
    context->copying = mem_alloc((size_t)params->n_seq);
    context->media = mem_alloc((size_t)params->n_seq * sizeof(struct media_spans *));
    context->partial = mem_alloc((size_t)params->n_seq * sizeof *context->partial);
    enum llama_rope_type rope = llama_model_rope_type(model->handle);
    context->mrope = rope == LLAMA_ROPE_TYPE_MROPE || rope == LLAMA_ROPE_TYPE_IMROPE;
    context->unified = params->unified;
    context->n_vocab = info->n_vocab;
    context->n_swa = info->n_swa;
    context->full_windows = params->full_windows;
    context->on_devices = llm_has_devices(info);
    context->divided = info->divided && llm_has_gpu();
    /* A head attends, whatever the layers before it do. */
    context->recurrent =
        params->head == LLM_HEAD_NONE && (info->kind == HEARTH_KIND_RECURRENT || info->kind == HEARTH_KIND_HYBRID);
    llm_keep_rows(context, params);
    context->flash_attention =
        translated.flash_attn_type != LLAMA_FLASH_ATTN_TYPE_DISABLED && !captured.flash_attention_refused;
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
    llm_handle_close(&context->handle);
    free(context->copying);
    free(context->media);
    free(context->partial);
    free(context->rows);
    free(context->hidden);
    free(context);
}

bool llm_flash_attention(const struct llm_context *context)
{
    return context->flash_attention;
}

struct llm_memory llm_context_memory(const struct llm_context *context)
{
    return context->handle.memory;
}

struct llama_context *llm_context_handle(const struct llm_context *context)
{
    return context->handle.v;
}

/* ---- Positions ---- */

void llm_seq_set_media(struct llm_context *context, int32_t seq, const struct media_spans *media)
{
    assert(seq >= 0 && seq < context->n_seq);
    context->media[seq] = media;
}

const struct media_spans *llm_seq_media(const struct llm_context *context, int32_t seq)
{
    return seq < context->n_seq ? context->media[seq] : NULL; /* the scratch sequence has none of its own */
}

int32_t llm_position(const struct llm_context *context, int32_t seq, int32_t index)
{
    assert(llm_is_seq(context, seq));
    const struct media_spans *media = llm_seq_media(context, seq);
    return media == NULL ? index : media_spans_position(media, index);
}

/* ---- Sequences ---- */

void llm_seq_note_end(struct llm_context *context, int32_t seq, int32_t end)
{
    assert(seq >= 0 && seq < context->n_seq && end >= 0);
    const struct media_spans *media = llm_seq_media(context, seq);
    const struct media_span *span = media == NULL ? NULL : media_spans_at(media, end);
    context->partial[seq] = llm_is_packed(span) && end > span->at ? end : 0;
}

/* Where the rows of an image share positions, the last position does not say how many of them are there. The image
 * counts as whole unless `partial` says otherwise. So after a call that was broken off callers find another end than
 * they expect, and cut the sequence back. */
int32_t llm_seq_end(struct llm_context *context, int32_t seq)
{
    assert(llm_is_seq(context, seq));
    int32_t last = llama_memory_seq_pos_max(llama_get_memory(context->handle.v), seq);
    const struct media_spans *media = llm_seq_media(context, seq);
    if (last < 0 || media == NULL) return last + 1;
    int32_t index = media_spans_index(media, last);
    const struct media_span *span = media_spans_at(media, index);
    int32_t partial = context->partial[seq];
    if (!llm_is_packed(span)) return index + 1;
    return partial > span->at && partial < span->at + span->n ? partial : span->at + span->n;
}

void llm_seq_clear(struct llm_context *context, int32_t seq)
{
    assert(llm_is_seq(context, seq));
    llama_memory_seq_rm(llama_get_memory(context->handle.v), seq, -1, -1);
    if (seq < context->n_seq) context->partial[seq] = 0;
}

/* Whether the sliding window before `from` would be complete. llama.cpp removes cells without an error even when older
 * ones, which the new end would need, have been overwritten. All positions from pos_min on are there. */
static bool window_is_complete(struct llm_context *context, int32_t seq, int32_t from)
{
    if (context->n_swa <= 0 || context->full_windows) return true;
    from = llm_position(context, seq, from);
    int32_t needed = from > context->n_swa ? from - context->n_swa : 0;
    return llama_memory_seq_pos_min(llama_get_memory(context->handle.v), seq) <= needed;
}

bool llm_seq_can_cut(struct llm_context *context, int32_t seq, int32_t from)
{
    assert(llm_is_seq(context, seq));
    if (from <= 0 || from >= llm_seq_end(context, seq)) return true;
    return !context->recurrent && window_is_complete(context, seq, from);
}

bool llm_seq_cut(struct llm_context *context, int32_t seq, int32_t from)
{
    assert(llm_is_seq(context, seq));
    if (from >= llm_seq_end(context, seq)) return true;
    if (from <= 0) {
        llm_seq_clear(context, seq);
        return true;
    }
    /* In a hybrid model the recurrent part is asked first, and refuses before anything is removed. */
    bool cut = window_is_complete(context, seq, from) &&
               llama_memory_seq_rm(llama_get_memory(context->handle.v), seq, llm_position(context, seq, from), -1);
    if (cut) context->partial[seq] = 0;
    return cut;
}

bool llm_cuts_anywhere(const struct llm_context *context)
{
    return !context->recurrent && (context->n_swa <= 0 || context->full_windows);
}

bool llm_cuts_after_call(const struct llm_context *context)
{
    return !context->recurrent;
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
    assert(llm_is_seq(context, from) && llm_is_seq(context, to) && from != to);
    int32_t end = llm_seq_end(context, from);
    llm_seq_clear(context, to);
    if (n <= 0 || n > end || (n < end && !llm_cuts_anywhere(context))) return false;
    /* Between streams llama.cpp copies whole sequences only, and ends the process when asked for less. */
    bool part = context->unified && n < end;
    llama_memory_seq_cp(llama_get_memory(context->handle.v), from, to, part ? 0 : -1,
                        part ? llm_position(context, from, n) : -1);
    if (!context->unified) {
        context->copying[from] |= LLM_COPIED_FROM;
        context->copying[to] |= LLM_COPIED_TO;
    }
    /* The end of a sequence that was shared whole is not checked, since only its beginning need have the same media.
     * Where cells cannot be cut, the caller goes back to a checkpoint next, which says where it ends. */
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
        if (context->rows != NULL && tokens[i].row == NULL) return false;
    }
    return true;
}

/* A decode that did not finish leaves recurrent states that must not be used again, though their positions look right.
 * Those of the batch have consumed an unknown part of its tokens. With several sequences in the batch, llama.cpp may
 * also have reassigned the cells of others so that those of the batch are adjacent. It leaves copying their data to the
 * computation, which never ran: then all sequences are cleared. */
static enum llm_decoded decode_batch(struct llm_context *context, struct llama_batch batch)
{
    enum llm_decoded decoded = llm_handle_run(&context->handle, batch, false, true);
    if (decoded == LLM_DECODED) {
        if (context->on_devices) llama_synchronize(context->handle.v);
        memset(context->copying, 0, (size_t)context->n_seq);
    }
    if (!context->recurrent || (decoded != LLM_ABORTED && decoded != LLM_FAILED)) return decoded;
    bool several = false;
    for (int32_t i = 1; i < batch.n_tokens; i++) several = several || batch.seq_id[i][0] != batch.seq_id[0][0];
    if (several)
        llama_memory_clear(llama_get_memory(context->handle.v), false);
    else
        llm_seq_clear(context, batch.seq_id[0][0]);
    return decoded;
}

enum llm_decoded llm_decode(struct llm_context *context, const struct llm_batch_token *tokens, int32_t n_tokens)
{
    assert(context != NULL && (tokens != NULL || n_tokens <= 0));
    if (!is_valid_batch(context, tokens, n_tokens)) return LLM_REFUSED;
    struct llama_batch batch = context->batch;
    size_t n = (size_t)context->n_row;
    batch.n_tokens = n_tokens;
    batch.embd = context->rows;
    for (int32_t i = 0; i < n_tokens; i++) {
        batch.token[i] = tokens[i].token;
        batch.pos[i] = llm_position(context, tokens[i].seq, tokens[i].pos);
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = tokens[i].seq;
        /* An EAGLE head's graph has logits of all tokens: llama.cpp would take the first ones for those asked for. */
        batch.logits[i] = tokens[i].logits || context->head == LLM_HEAD_EAGLE;
        if (context->rows != NULL) memcpy(context->rows + (size_t)i * n, tokens[i].row, n * sizeof(float));
    }
    return decode_batch(context, batch);
}

enum llm_decoded llm_decode_rows(struct llm_context *context, const struct llm_media_rows *rows)
{
    assert(context != NULL && rows != NULL);
    /* llama.cpp ends the process where rows that are not causal do not fit a micro-batch. */
    int32_t most = rows->causal ? context->capacity : (int32_t)llama_n_ubatch(context->handle.v);
    bool fits = rows->n > 0 && rows->n <= most && rows->from >= 0 && rows->from + rows->n <= context->window;
    if (!fits || rows->seq < 0 || rows->seq >= context->n_seq || (rows->places != NULL) != context->mrope)
        return LLM_REFUSED;
    enum { DIMENSIONS = 4 }; /* llama.cpp's, of which the last is not used */
    llama_pos *positions = mem_alloc((size_t)rows->n * DIMENSIONS * sizeof *positions);
    struct llama_batch batch = context->batch;
    batch.n_tokens = rows->n;
    batch.token = NULL;
    batch.embd = (float *)(uintptr_t)rows->rows;
    batch.pos = positions;
    for (int32_t i = 0; i < rows->n; i++) {
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = rows->seq;
        batch.logits[i] = rows->logits && i + 1 == rows->n;
        positions[i] = llm_position(context, rows->seq, rows->from + i);
        if (rows->places == NULL) continue;
        /* With several dimensions the positions of all rows come dimension by dimension. */
        positions[i] = rows->places[i].t;
        positions[rows->n + i] = rows->places[i].y;
        positions[2 * rows->n + i] = rows->places[i].x;
    }
    if (!rows->causal) llama_set_causal_attn(context->handle.v, false);
    enum llm_decoded decoded = decode_batch(context, batch);
    if (decoded != LLM_NO_CELLS && decoded != LLM_REFUSED)
        llm_seq_note_end(context, rows->seq, decoded == LLM_DECODED ? rows->from + rows->n : 0);
    if (!rows->causal) llama_set_causal_attn(context->handle.v, true);
    free(positions);
    return decoded;
}

bool llm_on_devices(const struct llm_context *context)
{
    return context->on_devices;
}

int32_t llm_copies_from(const struct llm_context *context)
{
    const char *given = getenv("GGML_OP_OFFLOAD_MIN_BATCH"); /* llama.cpp's, which each backend reads for itself */
    long tokens = given == NULL ? 0 : strtol(given, NULL, 10);
    if (!context->translated.op_offload || !context->divided) return 0;
    return tokens > 0 && tokens < INT32_MAX ? (int32_t)tokens : 32;
}

int32_t llm_threads(const struct llm_context *context)
{
    return context->translated.n_threads;
}

void llm_begin_computing(const struct llm_context *context)
{
    llm_take_place(&context->handle.place);
}

void llm_set_threads(struct llm_context *context, int32_t n)
{
    assert(n >= 1 && n <= context->translated.n_threads);
    if (n != llama_n_threads(context->handle.v))
        llama_set_n_threads(context->handle.v, n, n); /* it logs a line each time */
}

const float *llm_logits(struct llm_context *context, int32_t index)
{
    assert(index >= 0 && index < context->capacity);
    return llama_get_logits_ith(context->handle.v, index);
}

int32_t llm_likeliest(struct llm_context *context, int32_t index, float *chance)
{
    const float *logits = llm_logits(context, index);
    int32_t token = logits_argmax(logits, (size_t)context->n_vocab);
    *chance = (float)exp((double)logits[token] - logits_log_sum(logits, (size_t)context->n_vocab));
    return token;
}

/* ---- Description, for the store ---- */

/* The model's metadata on its own RoPE scaling. */
static bool text_of_model(const struct llama_context *handle, const char *name, char *text, size_t size)
{
    const struct llama_model *model = llama_get_model(handle);
    char architecture[64], key[128];
    if (llama_model_meta_val_str(model, "general.architecture", architecture, sizeof architecture) < 0) return false;
    snprintf(key, sizeof key, "%s.rope.scaling.%s", architecture, name);
    return llama_model_meta_val_str(model, key, text, size) >= 0;
}

static double of_model(const struct llama_context *handle, const char *name, double otherwise)
{
    char text[32];
    return text_of_model(handle, name, text, sizeof text) ? strtod(text, NULL) : otherwise;
}

void llm_describe_build(struct buf *out)
{
    buf_printf(out, "llama.cpp %s (ggml %s, %s)\n", llama_version(), ggml_version(), ggml_commit());
}

void llm_context_describe(const struct llm_context *context, struct buf *out)
{
    assert(context != NULL && out != NULL);
    const struct llama_context *handle = context->handle.v;
    const struct llama_context_params *translated = &context->translated;
    /* llama.cpp rotates keys and values before it quantises them, unless the environment disables that. */
    const char *off = getenv("LLAMA_ATTN_ROT_DISABLE");
    bool quantised = ggml_is_quantized(translated->type_k) || ggml_is_quantized(translated->type_v);
    bool rotates = quantised && (off == NULL || strtol(off, NULL, 10) == 0);
    /* LongRoPE has factors for short and for long contexts, and llama.cpp chooses by the window (of a unified KV cache:
     * all of it), not by the tokens in it. Where a model does not name its original context, llama.cpp takes the
     * trained one. Models without such factors have one class, so that what they stored stays valid with another
     * n_seq_max. */
    double original = of_model(handle, "original_context_length", context->trained);
    bool is_long = context->window_factors && llama_n_ctx_seq(handle) > original;
    llm_describe_build(out);
    buf_printf(out, "flash_attention %s\n", context->flash_attention ? "on" : "off");
    buf_printf(out, "keys %s\nvalues %s\nrotated %s\n", ggml_type_name(translated->type_k),
               ggml_type_name(translated->type_v), rotates ? "yes" : "no");
    buf_printf(out, "rope_scaling %d\nwindow %s\n", (int)translated->rope_scaling_type, is_long ? "long" : "short");
    const struct {
        const char *name;
        float value;
    } numbers[] = {
        {"rope_freq_base", translated->rope_freq_base},      {"rope_freq_scale", translated->rope_freq_scale},
        {"yarn_ext_factor", translated->yarn_ext_factor},    {"yarn_attn_factor", translated->yarn_attn_factor},
        {"yarn_beta_fast", translated->yarn_beta_fast},      {"yarn_beta_slow", translated->yarn_beta_slow},
        {"yarn_orig_ctx", (float)translated->yarn_orig_ctx},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        buf_printf(out, "%s %.9g\n", numbers[i].name, (double)numbers[i].value);
}

/* ---- RoPE, for people ---- */

/* In llama.cpp a negative number means "not set". */
static double given_or(float given, double otherwise)
{
    return given >= 0 ? (double)given : otherwise;
}

/* llama.cpp has no getters for these and resolves them in its constructor: base and scale come from its log, the rest
 * is resolved here by the same rules. */
struct llm_rope llm_context_rope(const struct llm_context *context)
{
    const struct llama_context *handle = context->handle.v;
    const struct llama_context_params *t = &context->translated;
    struct llm_rope rope = {.beta_fast = given_or(t->yarn_beta_fast, of_model(handle, "yarn_beta_fast", 32)),
                            .beta_slow = given_or(t->yarn_beta_slow, of_model(handle, "yarn_beta_slow", 1)),
                            .ext_factor = given_or(t->yarn_ext_factor, of_model(handle, "yarn_ext_factor", -1)),
                            .orig_ctx = t->yarn_orig_ctx,
                            .freq_base = context->freq_base,
                            .freq_scale = context->freq_scale};
    bool own = t->rope_scaling_type == LLAMA_ROPE_SCALING_TYPE_UNSPECIFIED;
    bool yarn = t->rope_scaling_type == LLAMA_ROPE_SCALING_TYPE_YARN;
    if (!own || !text_of_model(handle, "type", rope.scaling, sizeof rope.scaling))
        snprintf(rope.scaling, sizeof rope.scaling, "%s", own ? "none" : yarn ? "yarn" : "linear");
    if (rope.ext_factor < 0) rope.ext_factor = strcmp(rope.scaling, "yarn") == 0;
    if (rope.orig_ctx == 0) rope.orig_ctx = (uint32_t)of_model(handle, "original_context_length", context->trained);
    /* With YaRN's ramp (ext_factor) llama.cpp replaces the given factor by the one for the scale, which cancels what
     * the ramp itself adds: 1 is left. */
    rope.attn_factor =
        rope.ext_factor != 0 ? 1 : given_or(t->yarn_attn_factor, of_model(handle, "yarn_attn_factor", 1));
    return rope;
}
