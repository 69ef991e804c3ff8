/* Opens the format of a context's states: has its layout detected from a snapshot, and tests saving, cutting, joining
 * and loading before anything relies on it, since llama.cpp's format is internal and may change with any version. Runs
 * on the engine's thread; a format is immutable afterwards, and any thread may use it. */
#include "llm/state_layout.h"

#include "base/error.h"
#include "base/memory.h"
#include "llm/llm_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Tokens that are computed for the snapshot, and the position at which their KV rows are cut. */
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

static bool save_state(struct llm_context *context, int32_t seq, enum llm_state what, struct buf *out)
{
    buf_release(out);
    out->len = llm_seq_state_size(context, seq, what);
    out->cap = out->len + 1;
    out->v = malloc(out->cap);
    return out->v != NULL && out->len > 0 && llm_seq_save(context, seq, what, out->v, out->len) == out->len;
}

/* The recurrent section of a sequence without tokens: what follows the empty windows. */
static bool save_empty_state(struct llm_context *context, struct llm_state_format *format)
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

/* ---- Self-test ---- */

/* The slices of the KV rows [0, CUT) and [CUT, TOKENS), and the checkpoint. */
struct saved_state {
    struct buf rows[2], checkpoint;
};

static const int32_t cut_positions[] = {0, CUT, TOKENS};

struct self_test {
    struct llm_context *context;
    const struct llm_state_format *format;
    int32_t other; /* the sequence that gets what sequence 0 has: 1, or the same where there is no other */
    int32_t n_vocab, n_batch;
    struct saved_state before, after;
    float *expected;
};

static void release_self_test(struct self_test *self_test)
{
    struct saved_state *both[] = {&self_test->before, &self_test->after};
    for (size_t i = 0; i < 2; i++) {
        buf_release(&both[i]->rows[0]);
        buf_release(&both[i]->rows[1]);
        buf_release(&both[i]->checkpoint);
    }
    free(self_test->expected);
    llm_seq_clear(self_test->context, 0);
    llm_seq_clear(self_test->context, self_test->other);
}

static bool decode_tokens(struct self_test *self_test, int32_t seq, int32_t from, int32_t to)
{
    struct llm_batch_token batch[TOKENS];
    while (from < to) {
        int32_t n = 0;
        for (; n < to - from && n < self_test->n_batch; n++)
            batch[n] = (struct llm_batch_token){.token = (from + n + 1) % self_test->n_vocab,
                                                .pos = from + n,
                                                .seq = seq,
                                                .logits = from + n + 1 == to};
        if (llm_decode(self_test->context, batch, n) != LLM_DECODED) return false;
        from += n;
    }
    return true;
}

static bool cut_kv_rows(const struct self_test *self_test, int32_t seq, int i, struct buf *slice)
{
    struct llm_context *context = self_test->context;
    struct llm_regions regions;
    size_t size = llm_rows_size(context, self_test->format, seq, cut_positions[i], cut_positions[i + 1]);
    void *raw = malloc(size + 1);
    bool ok =
        raw != NULL && size > 0 &&
        llm_rows_save(context, self_test->format, seq, cut_positions[i], cut_positions[i + 1], raw, size) == size &&
        llm_cut_rows(self_test->format, raw, size, cut_positions[i], cut_positions[i + 1], slice, &regions);
    if (ok) free(regions.v);
    free(raw);
    return ok;
}

static bool cut_checkpoint(const struct self_test *self_test, int32_t seq, struct buf *slice)
{
    struct llm_regions regions;
    struct buf raw = {0};
    bool ok = save_state(self_test->context, seq, LLM_STATE_CHECKPOINT, &raw) &&
              llm_cut_checkpoint(self_test->format, raw.v, raw.len, TOKENS, slice, &regions);
    if (ok) free(regions.v);
    buf_release(&raw);
    return ok;
}

static bool cut_state(const struct self_test *self_test, int32_t seq, struct saved_state *saved_state)
{
    for (int i = 0; i < 2 && llm_state_format_has_rows(self_test->format); i++)
        if (!cut_kv_rows(self_test, seq, i, &saved_state->rows[i])) return false;
    return !llm_state_format_has_checkpoints(self_test->format) ||
           cut_checkpoint(self_test, seq, &saved_state->checkpoint);
}

static bool load_kv_rows(const struct self_test *self_test)
{
    const struct buf *rows = self_test->before.rows;
    struct llm_state_slice saved_state[2];
    for (int i = 0; i < 2; i++)
        saved_state[i] = (struct llm_state_slice){
            .bytes = rows[i].v, .size = rows[i].len, .from = cut_positions[i], .to = cut_positions[i + 1]};
    if (llm_state_format_appends(self_test->format))
        return llm_rows_load(self_test->context, self_test->format, self_test->other, &saved_state[0]) == LLM_LOADED &&
               llm_rows_load(self_test->context, self_test->format, self_test->other, &saved_state[1]) == LLM_LOADED;
    struct buf joined = {0};
    bool ok = llm_join_rows(self_test->format, saved_state, 2, &joined) &&
              llm_rows_load_all(self_test->context, self_test->format, self_test->other, joined.v, joined.len, TOKENS);
    buf_release(&joined);
    return ok;
}

static bool load_state(const struct self_test *self_test)
{
    const struct buf *checkpoint = &self_test->before.checkpoint;
    if (llm_state_format_has_rows(self_test->format) && !load_kv_rows(self_test)) return false;
    return !llm_state_format_has_checkpoints(self_test->format) ||
           llm_checkpoint_load(self_test->context, self_test->format, self_test->other, checkpoint->v, checkpoint->len,
                               TOKENS) == LLM_LOADED;
}

static bool same_bytes(const struct buf *a, const struct buf *b)
{
    return a->len == b->len && (a->len == 0 || memcmp(a->v, b->v, a->len) == 0);
}

static bool same_states(const struct saved_state *a, const struct saved_state *b)
{
    return same_bytes(&a->rows[0], &b->rows[0]) && same_bytes(&a->rows[1], &b->rows[1]) &&
           same_bytes(&a->checkpoint, &b->checkpoint);
}

/* Attention sums the same cells at other indices in another order: bits may differ, by far less than one wrong cell of
 * nine would change. */
static bool same_logits(const struct self_test *self_test, const float *logits)
{
    float low = INFINITY, high = -INFINITY, most = 0;
    for (int32_t i = 0; i < self_test->n_vocab; i++) {
        low = fminf(low, self_test->expected[i]);
        high = fmaxf(high, self_test->expected[i]);
        float difference = fabsf(self_test->expected[i] - logits[i]);
        most = difference <= most ? most : difference;
    }
    return most <= 0.01F * (high - low);
}

/* Why states do not survive saving and loading; NULL: they do. Sequence 0 has TOKENS tokens. */
static const char *run_self_test(struct self_test *self_test)
{
    if (!cut_state(self_test, 0, &self_test->before)) return "its states cannot be cut";
    if (!decode_tokens(self_test, 0, TOKENS, TOKENS + 1)) return "a token cannot be computed";
    size_t size = (size_t)self_test->n_vocab * sizeof *self_test->expected;
    self_test->expected = mem_alloc(size);
    memcpy(self_test->expected, llm_logits(self_test->context, 0), size);
    if (self_test->other == 0) llm_seq_clear(self_test->context, 0);
    if (!load_state(self_test)) return "its states cannot be joined and loaded";
    if (!cut_state(self_test, self_test->other, &self_test->after) ||
        !same_states(&self_test->before, &self_test->after))
        return "loaded states differ from the saved ones";
    if (!decode_tokens(self_test, self_test->other, TOKENS, TOKENS + 1)) return "a token cannot be computed";
    return same_logits(self_test, llm_logits(self_test->context, 0)) ? NULL : "loaded states give other logits";
}

/* ---- Opening ---- */

/* Sets the sections that such a model's states have. */
static void expect_sections(struct llm_state_format *format, const struct llm_context *context)
{
    const struct llama_model *model = llama_get_model(llm_context_handle(context));
    bool has_rows = !llama_model_is_recurrent(model) || llama_model_is_hybrid(model);
    format->recurrent = llm_is_recurrent(context);
    format->n_rows = has_rows ? 1 : 0;
    format->n_kv = format->n_rows + (has_rows && llm_has_window(context) ? 1 : 0);
}

static const char *detect_and_test(struct llm_state_format *format, struct self_test *self_test)
{
    struct llm_context *context = self_test->context;
    struct buf whole = {0};
    if (!save_empty_state(context, format)) return "the state of an empty sequence cannot be saved";
    if (!decode_tokens(self_test, 0, 0, TOKENS)) return "its first tokens cannot be computed";
    bool detected =
        save_state(context, 0, LLM_STATE_SNAPSHOT, &whole) && llm_detect_state_layout(format, &whole, TOKENS);
    buf_release(&whole);
    return detected ? run_self_test(self_test) : "its states have a layout that this version of hearth does not know";
}

struct llm_state_format *llm_state_format_open(struct llm_context *context, hearth_error *error)
{
    struct llama_context *handle = llm_context_handle(context);
    bool has_scratch = llm_scratch(context) >= 0;
    int32_t n_streams = llm_is_unified(context) ? 1 : (int32_t)llama_n_seq_max(handle);
    int32_t n_seq = (int32_t)llama_n_seq_max(handle) - (has_scratch ? 1 : 0);
    struct llm_state_format *format = mem_alloc(sizeof *format);
    struct self_test self_test = {.context = context,
                                  .format = format,
                                  .other = n_seq > 1 ? 1 : 0,
                                  .n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(handle))),
                                  .n_batch = (int32_t)llama_n_batch(handle)};
    format->n_stream = (uint32_t)n_streams;
    expect_sections(format, context);
    format->appends = has_scratch && format->n_rows > 0;
    const char *why = llm_is_unified(context) && !has_scratch && format->n_rows > 0
                          ? "llama.cpp allows no scratch sequence beside so many in a unified KV cache: take one less"
                          : detect_and_test(format, &self_test);
    release_self_test(&self_test);
    if (why == NULL) return format;
    error_set(error, HEARTH_UNSUPPORTED, "the cells of this context cannot be stored: %s", why);
    llm_state_format_close(format);
    return NULL;
}
