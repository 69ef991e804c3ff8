/* Opens the format of a context's states. It detects the layout in the bytes of a snapshot, and tests saving, cutting,
 * joining and loading before anything relies on it. The test is needed, since llama.cpp's format is internal and may
 * change with any version. Runs on the thread that opens the context; a format is immutable afterwards, and any thread
 * may use it. */
#include "llm/state_layout.h"

#include "base/error.h"
#include "base/memory.h"
#include "llm/context_struct.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- Detecting the layout ---- */

/* Limits far beyond any model, and the bytes of a cell's entry without and of its optional extension. */
enum { MAX_LAYERS = 4096, CELL_BYTES = 12, EXTENSION_BYTES = 12 };

static const uint64_t MAX_ROW = 1 << 30;

static bool detect_table(struct llm_cursor *cursor, struct llm_kv_section *kv, bool transposed, uint64_t n_cells)
{
    struct llm_table *table = &kv->tables[kv->n_tables++];
    *table = (struct llm_table){.type = (int32_t)llm_next(cursor, 4), .before = kv->row_bytes};
    if (transposed) {
        table->element = (uint32_t)llm_next(cursor, 4);
        if (table->element == 0) return false;
        table->row_bytes = table->element * llm_next(cursor, 4);
    } else {
        table->row_bytes = llm_next(cursor, 8);
    }
    if (table->row_bytes > MAX_ROW || table->type < 0 || table->type >= GGML_TYPE_COUNT) return false;
    kv->row_bytes += table->row_bytes;
    llm_skip(cursor, n_cells * table->row_bytes);
    return !cursor->overrun;
}

static bool detect_tables(struct llm_cursor *cursor, struct llm_kv_section *kv, bool with_values, uint64_t n_cells)
{
    uint64_t transposed = llm_next(cursor, 4);
    kv->n_keys = (uint32_t)llm_next(cursor, 4);
    if (transposed > 1 || kv->n_keys > MAX_LAYERS) return false;
    kv->transposed = transposed == 1;
    kv->tables = mem_alloc((2 * (size_t)kv->n_keys + 1) * sizeof *kv->tables);
    for (uint32_t i = 0; i < kv->n_keys; i++)
        if (!detect_table(cursor, kv, false, n_cells)) return false;
    for (uint32_t i = 0; i < kv->n_keys && with_values; i++)
        if (!detect_table(cursor, kv, kv->transposed, n_cells)) return false;
    return true;
}

static bool detect_kv(struct llm_cursor *cursor, struct llm_state_format *format, struct llm_kv_section *kv,
                      bool with_values, int32_t n)
{
    bool found = false;
    if (llm_next(cursor, 4) != format->n_stream) return false;
    for (uint32_t i = 0; i < format->n_stream; i++) {
        uint64_t n_cells = llm_next(cursor, 4);
        if (n_cells == 0) continue;
        if (found || n_cells > (uint64_t)n) return false;
        for (uint64_t cell = 0; cell < n_cells; cell++) {
            if (llm_next(cursor, 4) >= (uint64_t)n || llm_next(cursor, 4) != 1) return false;
            llm_skip(cursor, format->cell_bytes - CELL_BYTES);
            if (llm_next(cursor, 4) != 0) return false;
        }
        if (cursor->overrun || !detect_tables(cursor, kv, with_values, n_cells)) return false;
        found = true;
    }
    return found;
}

/* Recurrent states follow one another: all first states in the order of their layers, then all second ones. */
static bool detect_states(struct llm_state_format *format)
{
    struct llm_cursor cursor = {.at = (const uint8_t *)format->state.v, .left = format->state.len};
    struct llm_regions *states = &format->states;
    llm_skip(&cursor, 3 * 4);
    uint64_t transposed = llm_next(&cursor, 4), n_layers = llm_next(&cursor, 4);
    if (transposed != 0 || n_layers > MAX_LAYERS) return false;
    while (cursor.left > 0 && !cursor.overrun) {
        uint16_t type = (uint16_t)llm_next(&cursor, 4);
        uint64_t size = llm_next(&cursor, 8);
        states->v = mem_grow(states->v, states->len + 1, sizeof *states->v);
        states->v[states->len++] = (struct llm_region){
            .type = type, .rows = 1, .row_bytes = size, .size = size, .offset = format->state.len - cursor.left};
        llm_skip(&cursor, size);
    }
    for (size_t i = 0; i < states->len; i++) {
        bool second = i >= states->len / 2;
        states->v[i].what = second ? 'S' : 'R';
        states->v[i].layer = (uint16_t)(second ? i - states->len / 2 : i);
    }
    return !cursor.overrun && states->len > 0 && states->len % 2 == 0;
}

/* A recurrent section whose states cannot be separated is one state, from the end of its one cell on. */
static void detect_recurrent(struct llm_state_format *format, struct llm_cursor *cursor)
{
    enum { CELL_END = 12 };
    buf_clear(&format->state);
    buf_append(&format->state, cursor->at, cursor->left);
    llm_skip(cursor, cursor->left);
    if (detect_states(format) || format->state.len <= CELL_END) return;
    uint64_t size = format->state.len - CELL_END;
    format->states.v = mem_grow(format->states.v, 1, sizeof *format->states.v);
    format->states.v[0] =
        (struct llm_region){.what = 'M', .rows = 1, .row_bytes = size, .offset = CELL_END, .size = size};
    format->states.len = 1;
}

/* Detects the layout from the snapshot of the first n tokens of sequence 0, given n_stream, n_kv, n_rows, recurrent and
 * no_state. False: the bytes do not follow the layout of state_layout.h. Values that may vary are read off; values that
 * must be as expected decide whether the layout is known at all. Two facts cannot be read off the bytes, and are tried:
 * whether cells have the extension (2D position and token), and whether there are values. */
static bool detect_with(struct llm_state_format *format, const struct buf *whole, int32_t n, bool with_extension,
                        bool with_values)
{
    struct llm_cursor cursor = {.at = (const uint8_t *)whole->v, .left = whole->len};
    struct llm_parsed_state parsed;
    for (size_t i = 0; i < format->n_kv; i++) {
        free(format->kv[i].tables);
        format->kv[i] = (struct llm_kv_section){0};
    }
    format->states.len = 0;
    format->cell_bytes = CELL_BYTES + (with_extension ? EXTENSION_BYTES : 0);
    format->magic = (uint32_t)llm_next(&cursor, 4);
    llm_skip(&cursor, 4);
    for (size_t i = 0; i < format->n_kv; i++)
        if (!detect_kv(&cursor, format, &format->kv[i], with_values, n)) return false;
    if (format->recurrent) detect_recurrent(format, &cursor);
    return llm_parse_state(format, LLM_STATE_SNAPSHOT, whole->v, whole->len, &parsed) &&
           (!format->recurrent || (parsed.state != NULL && llm_state_pos(parsed.state) == n - 1));
}

/* ---- Self-test ---- */

/* Tokens that are computed for the snapshot, and the position at which their KV rows are cut. */
enum { TOKENS = 8, CUT = 3 };

static bool save_state(struct llm_context *context, int32_t seq, enum llm_state what, struct buf *out)
{
    buf_release(out);
    out->len = llm_seq_state_size(context, seq, what);
    out->cap = out->len + 1;
    out->v = malloc(out->cap);
    return out->v != NULL && out->len > 0 && llm_seq_save(context, seq, what, out->v, out->len) == out->len;
}

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
    struct saved_state saved[2]; /* before and after */
    float *expected;
};

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

static bool cut_state(const struct self_test *self_test, int32_t seq, struct saved_state *saved_state)
{
    for (int i = 0; i < 2 && llm_state_format_has_rows(self_test->format); i++)
        if (!cut_kv_rows(self_test, seq, i, &saved_state->rows[i])) return false;
    if (!llm_state_format_has_checkpoints(self_test->format)) return true;
    struct llm_regions regions;
    struct buf raw = {0};
    bool ok = save_state(self_test->context, seq, LLM_STATE_CHECKPOINT, &raw) &&
              llm_cut_checkpoint(self_test->format, raw.v, raw.len, TOKENS, &saved_state->checkpoint, &regions);
    if (ok) free(regions.v);
    buf_release(&raw);
    return ok;
}

static bool load_kv_rows(const struct self_test *self_test)
{
    const struct buf *rows = self_test->saved[0].rows;
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

static bool same_bytes(const struct buf *a, const struct buf *b)
{
    return a->len == b->len && (a->len == 0 || memcmp(a->v, b->v, a->len) == 0);
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
    const struct llm_state_format *format = self_test->format;
    const struct saved_state *before = &self_test->saved[0], *after = &self_test->saved[1];
    if (!cut_state(self_test, 0, &self_test->saved[0])) return "its states cannot be cut";
    if (!decode_tokens(self_test, 0, TOKENS, TOKENS + 1)) return "a token cannot be computed";
    size_t size = (size_t)self_test->n_vocab * sizeof *self_test->expected;
    self_test->expected = mem_alloc(size);
    memcpy(self_test->expected, llm_logits(self_test->context, 0), size);
    if (self_test->other == 0) llm_seq_clear(self_test->context, 0);
    bool loaded = !llm_state_format_has_rows(format) || load_kv_rows(self_test);
    if (loaded && llm_state_format_has_checkpoints(format))
        loaded = llm_checkpoint_load(self_test->context, format, self_test->other, before->checkpoint.v,
                                     before->checkpoint.len, TOKENS) == LLM_LOADED;
    if (!loaded) return "its states cannot be joined and loaded";
    if (!cut_state(self_test, self_test->other, &self_test->saved[1]) ||
        !same_bytes(&before->rows[0], &after->rows[0]) || !same_bytes(&before->rows[1], &after->rows[1]) ||
        !same_bytes(&before->checkpoint, &after->checkpoint))
        return "loaded states differ from the saved ones";
    if (!decode_tokens(self_test, self_test->other, TOKENS, TOKENS + 1)) return "a token cannot be computed";
    return same_logits(self_test, llm_logits(self_test->context, 0)) ? NULL : "loaded states give other logits";
}

/* ---- Opening ---- */

/* The recurrent section of a sequence without tokens, which follows the empty windows. */
static bool save_empty_state(struct llm_context *context, struct llm_state_format *format)
{
    if (!format->recurrent) return true;
    struct llama_context *handle = context->handle.v;
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

static const char *detect_and_test(struct llm_state_format *format, struct self_test *self_test)
{
    struct llm_context *context = self_test->context;
    struct buf whole = {0};
    if (!save_empty_state(context, format)) return "the state of an empty sequence cannot be saved";
    if (!decode_tokens(self_test, 0, 0, TOKENS)) return "its first tokens cannot be computed";
    bool saved = save_state(context, 0, LLM_STATE_SNAPSHOT, &whole), detected = false;
    for (int way = 0; saved && !detected && way < 4; way++)
        detected = detect_with(format, &whole, TOKENS, (way & 1) != 0, (way & 2) == 0);
    buf_release(&whole);
    return detected ? run_self_test(self_test) : "its states have a layout that this version of hearth does not know";
}

struct llm_state_format *llm_state_format_open(struct llm_context *context, hearth_error *error)
{
    assert(context != NULL && context->n_seq > 0);
    const struct llama_context *handle = context->handle.v;
    bool has_scratch = context->scratch >= 0;
    struct llm_state_format *format = mem_alloc(sizeof *format);
    struct self_test self_test = {.context = context,
                                  .format = format,
                                  .other = context->n_seq > 1 ? 1 : 0,
                                  .n_vocab = context->n_vocab,
                                  .n_batch = context->capacity};
    /* The sections that such a model's states have. */
    const struct llama_model *model = llama_get_model(handle);
    bool has_rows = !llama_model_is_recurrent(model) || llama_model_is_hybrid(model);
    format->n_stream = context->unified ? 1 : llama_n_seq_max(handle);
    format->recurrent = context->recurrent;
    format->n_rows = has_rows ? 1 : 0;
    format->n_kv = format->n_rows + (has_rows && llm_has_window(context) ? 1 : 0);
    format->appends = has_scratch && format->n_rows > 0;
    const char *why = context->unified && !has_scratch && format->n_rows > 0
                          ? "llama.cpp allows no scratch sequence beside so many in a unified KV cache: take one less"
                          : detect_and_test(format, &self_test);
    for (struct saved_state *each = &self_test.saved[0]; each < &self_test.saved[2]; each++) {
        buf_release(&each->rows[0]);
        buf_release(&each->rows[1]);
        buf_release(&each->checkpoint);
    }
    free(self_test.expected);
    llm_seq_clear(context, 0);
    llm_seq_clear(context, self_test.other);
    if (why == NULL) return format;
    error_set(error, HEARTH_UNSUPPORTED, "the cells of this context cannot be stored: %s", why);
    llm_state_format_close(format);
    return NULL;
}
