/* Opens the format of a context's states, which is learnt from a state, and tries it out before anybody relies on it:
 * what llama.cpp writes is its own affair and may be another thing tomorrow. The engine's thread; a format never
 * changes afterwards and may then be asked by any thread. */
#include "llm/state_layout.h"

#include "base/error.h"
#include "base/memory.h"
#include "llm/llm_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Tokens computed to learn from, and where their rows are cut. */
enum { TOKENS = 8, CUT = 3 };

bool llm_state_format_has_rows(const struct llm_state_format *format)
{
    return format->n_rows > 0;
}

bool llm_state_format_has_checkpoints(const struct llm_state_format *format)
{
    return format->recurrent || format->n_kv > format->n_rows;
}

bool llm_state_format_appends(const struct llm_state_format *format)
{
    return format->appends;
}

uint64_t llm_state_format_row_bytes(const struct llm_state_format *format)
{
    return format->n_rows > 0 ? format->kv[0].row_bytes : 0;
}

void llm_state_format_close(struct llm_state_format *format)
{
    if (format == NULL) return;
    for (size_t i = 0; i < LLM_MAX_KV; i++) free(format->kv[i].tables);
    free(format->states.v);
    buf_release(&format->state);
    buf_release(&format->no_state);
    free(format);
}

/* ---- States ---- */

static bool save(struct llm_context *context, int32_t seq, enum llm_state what, struct buf *out)
{
    buf_release(out);
    out->len = llm_seq_state_size(context, seq, what);
    out->cap = out->len + 1;
    out->v = malloc(out->cap);
    return out->v != NULL && out->len > 0 && llm_seq_save(context, seq, what, out->v, out->len) == out->len;
}

/* The recurrent section of a sequence without tokens: what is left behind the empty windows. */
static bool save_nothing(struct llm_context *context, struct llm_state_format *format)
{
    if (!format->recurrent) return true;
    struct llama_context *handle = llm_context_handle(context);
    size_t windows = format->n_kv - format->n_rows;
    size_t before = LLM_HEADER_BYTES + windows * (4 + 4 * (size_t)format->n_stream);
    size_t size = llama_state_seq_get_size_ext(handle, 0, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY);
    uint8_t *bytes = mem_alloc(size + 1);
    bool ok = size > before &&
              llama_state_seq_get_data_ext(handle, bytes, size, 0, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY) == size;
    if (ok) buf_append(&format->no_state, bytes + before, size - before);
    free(bytes);
    return ok;
}

/* ---- Trying out ---- */

/* What the rows [0, CUT) and [CUT, TOKENS) and what moves come to. */
struct pieces {
    struct buf rows[2], moving;
};

static const int32_t bounds[] = {0, CUT, TOKENS};

struct trial {
    struct llm_context *context;
    const struct llm_state_format *format;
    int32_t other; /* the sequence that gets what sequence 0 has: 1, or the same where there is no other */
    int32_t n_vocab, n_batch;
    struct pieces before, after;
    float *expected;
};

static void release(struct trial *trial)
{
    struct pieces *both[] = {&trial->before, &trial->after};
    for (size_t i = 0; i < 2; i++) {
        buf_release(&both[i]->rows[0]);
        buf_release(&both[i]->rows[1]);
        buf_release(&both[i]->moving);
    }
    free(trial->expected);
    llm_seq_clear(trial->context, 0);
    llm_seq_clear(trial->context, trial->other);
}

static bool compute(struct trial *trial, int32_t seq, int32_t from, int32_t to)
{
    struct llm_batch_token rows[TOKENS];
    while (from < to) {
        int32_t n = 0;
        for (; n < to - from && n < trial->n_batch; n++)
            rows[n] = (struct llm_batch_token){
                .token = (from + n + 1) % trial->n_vocab, .pos = from + n, .seq = seq, .logits = from + n + 1 == to};
        if (llm_decode(trial->context, rows, n) != LLM_DECODED) return false;
        from += n;
    }
    return true;
}

static bool cut_rows(const struct trial *trial, int32_t seq, int i, struct buf *piece)
{
    struct llm_context *context = trial->context;
    struct llm_regions regions;
    size_t size = llm_rows_size(context, trial->format, seq, bounds[i], bounds[i + 1]);
    void *raw = malloc(size + 1);
    bool ok = raw != NULL && size > 0 &&
              llm_rows_save(context, trial->format, seq, bounds[i], bounds[i + 1], raw, size) == size &&
              llm_cut_rows(trial->format, raw, size, bounds[i], bounds[i + 1], piece, &regions);
    if (ok) free(regions.v);
    free(raw);
    return ok;
}

static bool cut_moving(const struct trial *trial, int32_t seq, struct buf *piece)
{
    struct llm_regions regions;
    struct buf raw = {0};
    bool ok = save(trial->context, seq, LLM_STATE_CHECKPOINT, &raw) &&
              llm_cut_checkpoint(trial->format, raw.v, raw.len, TOKENS, piece, &regions);
    if (ok) free(regions.v);
    buf_release(&raw);
    return ok;
}

static bool cut(const struct trial *trial, int32_t seq, struct pieces *pieces)
{
    for (int i = 0; i < 2 && llm_state_format_has_rows(trial->format); i++)
        if (!cut_rows(trial, seq, i, &pieces->rows[i])) return false;
    return !llm_state_format_has_checkpoints(trial->format) || cut_moving(trial, seq, &pieces->moving);
}

static bool load_rows(const struct trial *trial)
{
    const struct buf *rows = trial->before.rows;
    struct llm_state_slice pieces[2];
    for (int i = 0; i < 2; i++)
        pieces[i] =
            (struct llm_state_slice){.bytes = rows[i].v, .size = rows[i].len, .from = bounds[i], .to = bounds[i + 1]};
    if (llm_state_format_appends(trial->format))
        return llm_rows_load(trial->context, trial->format, trial->other, &pieces[0]) == LLM_LOADED &&
               llm_rows_load(trial->context, trial->format, trial->other, &pieces[1]) == LLM_LOADED;
    struct buf joined = {0};
    bool ok = llm_join_rows(trial->format, pieces, 2, &joined) &&
              llm_rows_load_all(trial->context, trial->format, trial->other, joined.v, joined.len, TOKENS);
    buf_release(&joined);
    return ok;
}

static bool load(const struct trial *trial)
{
    const struct buf *moving = &trial->before.moving;
    if (llm_state_format_has_rows(trial->format) && !load_rows(trial)) return false;
    return !llm_state_format_has_checkpoints(trial->format) ||
           llm_checkpoint_load(trial->context, trial->format, trial->other, moving->v, moving->len, TOKENS) ==
               LLM_LOADED;
}

static bool equal(const struct buf *a, const struct buf *b)
{
    return a->len == b->len && (a->len == 0 || memcmp(a->v, b->v, a->len) == 0);
}

static bool same_pieces(const struct pieces *a, const struct pieces *b)
{
    return equal(&a->rows[0], &b->rows[0]) && equal(&a->rows[1], &b->rows[1]) && equal(&a->moving, &b->moving);
}

/* The same cells at other indices are summed up in another order: bits may differ, by far less than what a wrong cell
 * does to one of nine. */
static bool same_logits(const struct trial *trial, const float *logits)
{
    float low = INFINITY, high = -INFINITY, most = 0;
    for (int32_t i = 0; i < trial->n_vocab; i++) {
        low = fminf(low, trial->expected[i]);
        high = fmaxf(high, trial->expected[i]);
        float difference = fabsf(trial->expected[i] - logits[i]);
        most = difference <= most ? most : difference;
    }
    return most <= 0.01F * (high - low);
}

/* Why states cannot be trusted to come back as they were; NULL: they do. Sequence 0 has TOKENS tokens. */
static const char *try_out(struct trial *trial)
{
    if (!cut(trial, 0, &trial->before)) return "its states cannot be cut";
    if (!compute(trial, 0, TOKENS, TOKENS + 1)) return "a token cannot be computed";
    size_t size = (size_t)trial->n_vocab * sizeof *trial->expected;
    trial->expected = mem_alloc(size);
    memcpy(trial->expected, llm_logits(trial->context, 0), size);
    if (trial->other == 0) llm_seq_clear(trial->context, 0);
    if (!load(trial)) return "its states cannot be put together again";
    if (!cut(trial, trial->other, &trial->after) || !same_pieces(&trial->before, &trial->after))
        return "states come back with other bytes";
    if (!compute(trial, trial->other, TOKENS, TOKENS + 1)) return "a token cannot be computed";
    return same_logits(trial, llm_logits(trial->context, 0)) ? NULL : "states come back with other meaning";
}

/* ---- Opening ---- */

/* The sections that such a model's states have. */
static void expect_sections(struct llm_state_format *format, const struct llm_context *context)
{
    const struct llama_model *model = llama_get_model(llm_context_handle(context));
    bool has_rows = !llama_model_is_recurrent(model) || llama_model_is_hybrid(model);
    format->recurrent = llm_is_recurrent(context);
    format->n_rows = has_rows ? 1 : 0;
    format->n_kv = format->n_rows + (has_rows && llm_has_window(context) ? 1 : 0);
}

static const char *open_format(struct llm_state_format *format, struct trial *trial)
{
    struct llm_context *context = trial->context;
    struct buf whole = {0};
    if (!save_nothing(context, format)) return "the state of an empty sequence cannot be saved";
    if (!compute(trial, 0, 0, TOKENS)) return "its first tokens cannot be computed";
    bool learnt = save(context, 0, LLM_STATE_SNAPSHOT, &whole) && llm_learn(format, &whole, TOKENS);
    buf_release(&whole);
    return learnt ? try_out(trial) : "its states have a layout that this version does not know";
}

struct llm_state_format *llm_state_format_open(struct llm_context *context, hearth_error *error)
{
    struct llama_context *handle = llm_context_handle(context);
    bool has_scratch = llm_scratch(context) >= 0;
    int32_t n_streams = llm_one_pool(context) ? 1 : (int32_t)llama_n_seq_max(handle);
    int32_t n_seq = (int32_t)llama_n_seq_max(handle) - (has_scratch ? 1 : 0);
    struct llm_state_format *format = mem_alloc(sizeof *format);
    struct trial trial = {.context = context,
                          .format = format,
                          .other = n_seq > 1 ? 1 : 0,
                          .n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(handle))),
                          .n_batch = (int32_t)llama_n_batch(handle)};
    format->n_stream = (uint32_t)n_streams;
    expect_sections(format, context);
    format->appends = has_scratch && format->n_rows > 0;
    const char *why = llm_one_pool(context) && !has_scratch && format->n_rows > 0
                          ? "all sequences that there can be in one pool are in use: take one less"
                          : open_format(format, &trial);
    release(&trial);
    if (why == NULL) return format;
    error_set(error, HEARTH_UNSUPPORTED, "the cells of this context cannot be stored: %s", why);
    llm_state_format_close(format);
    return NULL;
}
