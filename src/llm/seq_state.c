/* Saves what a sequence holds as bytes and loads it again: snapshots and checkpoints whole, KV rows range by range; and
 * moves rows down. No data of its own; the engine's thread, as all of context.h.
 *
 * In a unified KV cache rows go through the scratch sequence, which is cleared again. Rows to save share their cells
 * with it; rows that were loaded into it share theirs with their sequence. Sharing copies nothing. With a stream each
 * llama.cpp would end the process when asked for part of a sequence: there whole sequences are saved and loaded.
 *
 * llama.cpp clears a sequence before it loads a state into it, part by part, and when it finds an error keeps the parts
 * that it had read. So a failure here ends with llm_seq_clear(), but for a checkpoint that only lacked cells: the KV
 * rows before it stay, and the call can be made again. Slices, which come from the store, reach it only after their
 * structure was checked. Bytes have no checksum here, so the result is compared with what the caller expects: all bytes
 * were read, and the sequence ends where it should. A saved sliding window is complete for the end of its sequence:
 * only cells that have left the window are ever overwritten. */
#include "base/memory.h"
#include "llm/context_struct.h"
#include "llm/llama_log.h"
#include "llm/shim.h"
#include "llm/state_layout.h"

#include <assert.h>
#include <stdlib.h>

static llama_state_seq_flags flags_of(enum llm_state what)
{
    return what == LLM_STATE_CHECKPOINT ? LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY : 0;
}

/* ---- Whole states: saving ---- */

size_t llm_seq_state_size(struct llm_context *context, int32_t seq, enum llm_state what)
{
    assert(seq >= 0 && seq < context->n_seq);
    /* Without recurrent and SWA states llama.cpp would take all cells for them. */
    bool no_checkpoint = what == LLM_STATE_CHECKPOINT && llm_cuts_anywhere(context);
    bool awaits_copy = (context->copying[seq] & LLM_COPIED_TO) != 0;
    if (no_checkpoint || awaits_copy || llm_seq_end(context, seq) == 0) return 0;
    return llama_state_seq_get_size_ext(context->handle.v, seq, flags_of(what));
}

size_t llm_seq_save(struct llm_context *context, int32_t seq, enum llm_state what, void *bytes, size_t size)
{
    if (llm_seq_state_size(context, seq, what) == 0) return 0;
    return llama_state_seq_get_data_ext(context->handle.v, bytes, size, seq, flags_of(what));
}

/* ---- Whole states: loading ---- */

/* Whether llama.cpp read all of the state. Of a failure the caller tells. */
static bool set_state(struct llm_context *context, int32_t seq, const struct buf *state, llama_state_seq_flags flags)
{
    llm_log_quiet(true);
    size_t n = llama_state_seq_set_data_ext(context->handle.v, (const uint8_t *)state->v, state->len, seq, flags);
    llm_log_quiet(false);
    return n == state->len;
}

/* llama.cpp returns only that it read less than all. It refuses bytes that this context wrote only for lack of cells.
 * Of a sequence whose KV rows and checkpoint end at different positions it returns the end of the checkpoint. */
static enum llm_loaded restore(struct llm_context *context, int32_t seq, enum llm_state what, const void *bytes,
                               size_t size, int32_t n)
{
    /* A pending copy between streams would read, or overwrite, what is loaded here before the copy is made. */
    if (size == 0 || context->copying[seq] != 0) return LLM_BAD_STATE;
    bool read = set_state(context, seq, &(struct buf){.v = (char *)(uintptr_t)bytes, .len = size}, flags_of(what));
    llm_seq_note_end(context, seq, 0);
    if (!read) return context->unified ? LLM_NO_ROOM : LLM_BAD_STATE;
    return llm_seq_end(context, seq) == n ? LLM_LOADED : LLM_BAD_STATE;
}

enum llm_loaded llm_seq_load(struct llm_context *context, int32_t seq, const void *bytes, size_t size, int32_t n)
{
    assert(seq >= 0 && seq < context->n_seq && (bytes != NULL || size == 0));
    enum llm_loaded loaded = restore(context, seq, LLM_STATE_SNAPSHOT, bytes, size, n);
    if (loaded != LLM_LOADED) llm_seq_clear(context, seq);
    return loaded;
}

/* The checkpoint is loaded first: once it ends at n, llama.cpp allows cutting the KV rows there. */
enum llm_loaded llm_seq_rewind(struct llm_context *context, int32_t seq, const void *bytes, size_t size, int32_t n)
{
    assert(seq >= 0 && seq < context->n_seq && (bytes != NULL || size == 0));
    struct llama_memory_i *memory = llama_get_memory(context->handle.v);
    enum llm_loaded loaded = LLM_BAD_STATE;
    if (llm_seq_end(context, seq) >= n) loaded = restore(context, seq, LLM_STATE_CHECKPOINT, bytes, size, n);
    if (loaded == LLM_LOADED && !llama_memory_seq_rm(memory, seq, llm_position(context, seq, n), -1))
        loaded = LLM_BAD_STATE;
    if (loaded != LLM_LOADED) llm_seq_clear(context, seq);
    return loaded;
}

/* ---- Saving KV rows ---- */

/* llama.cpp's positions of the tokens [from, to). Of an image whose rows share positions all or none are among them. */
struct range {
    llama_pos begin, end;
};

static struct range range_of(const struct llm_context *context, int32_t seq, int32_t from, int32_t to)
{
    return (struct range){llm_position(context, seq, from), llm_position(context, seq, to - 1) + 1};
}

/* The sequence whose state holds the rows and, where possible, little else; -1: none has them. */
static int32_t select_source(struct llm_context *context, const struct llm_state_format *format, int32_t seq,
                             int32_t from, int32_t to)
{
    bool awaits_copy = (context->copying[seq] & LLM_COPIED_TO) != 0;
    if (format->n_rows == 0 || from < 0 || from >= to || to > llm_seq_end(context, seq) || awaits_copy) return -1;
    if (!format->appends) return seq;
    struct range range = range_of(context, seq, from, to);
    llama_memory_seq_cp(llama_get_memory(context->handle.v), seq, context->scratch, range.begin, range.end);
    if (!llm_state_format_has_checkpoints(format)) return context->scratch;
    /* The recurrent and SWA state of the scratch sequence, which shares it along with the KV rows, is cleared. A state
     * that is truncated after its first count makes llama.cpp clear that part and then refuse the rest. If that should
     * fail, more is copied than needed. */
    uint32_t streams_and_cells[] = {format->magic, 0, 1, 1}; /* with a window; else the count of cells is the first */
    size_t size = format->n_kv > format->n_rows ? sizeof streams_and_cells : 3 * sizeof *streams_and_cells;
    set_state(context, context->scratch, &(struct buf){.v = (char *)streams_and_cells, .len = size},
              LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY);
    return context->scratch;
}

static void clear_scratch(struct llm_context *context, const struct llm_state_format *format)
{
    if (format->appends) llm_seq_clear(context, context->scratch);
}

size_t llm_rows_size(struct llm_context *context, const struct llm_state_format *format, int32_t seq, int32_t from,
                     int32_t to)
{
    assert(format != NULL && seq >= 0 && seq < context->n_seq);
    int32_t source = select_source(context, format, seq, from, to);
    if (source < 0) return 0;
    size_t size = llama_state_seq_get_size_ext(context->handle.v, source, 0);
    clear_scratch(context, format);
    return size;
}

size_t llm_rows_save(struct llm_context *context, const struct llm_state_format *format, int32_t seq, int32_t from,
                     int32_t to, void *raw, size_t size)
{
    assert(format != NULL && seq >= 0 && seq < context->n_seq && raw != NULL);
    int32_t source = select_source(context, format, seq, from, to);
    if (source < 0) return 0;
    size_t n = llama_state_seq_get_data_ext(context->handle.v, raw, size, source, 0);
    clear_scratch(context, format);
    return llm_rows_to_indices(format, llm_seq_media(context, seq), raw, n) ? n : 0;
}

size_t llm_checkpoint_save(struct llm_context *context, const struct llm_state_format *format, int32_t seq, void *bytes,
                           size_t size)
{
    assert(format != NULL && seq >= 0 && seq < context->n_seq);
    size_t n = llm_seq_save(context, seq, LLM_STATE_CHECKPOINT, bytes, size);
    int32_t end = llm_seq_end(context, seq);
    bool same = n == 0 || llm_position(context, seq, end - 1) == end - 1;
    return same || llm_checkpoint_set_end(format, bytes, n, end) ? n : 0;
}

/* ---- Loading KV rows ---- */

/* Whether the state is a slice: KV rows only, in the order of their positions, with those from `from` to `to` among
 * them. */
static bool is_slice_of(const struct llm_state_format *format, const struct llm_parsed_state *parsed, int32_t from,
                        int32_t to)
{
    const struct llm_kv_view *rows = &parsed->kv[0];
    if (rows->n == 0 || parsed->state != NULL || (format->n_kv > 1 && parsed->kv[1].n > 0)) return false;
    int64_t first = llm_view_pos(format, rows, 0), end = first + rows->n;
    if (first < 0 || from < first || from >= to || to > end || end > INT32_MAX) return false;
    struct llm_runs runs = {0};
    bool ok = llm_find_cells(format, rows, (int32_t)first, (int32_t)end, &runs) && runs.len == 1;
    free(runs.v);
    return ok;
}

/* With recurrent or SWA states, a sequence without them seems to be empty. */
static bool ends_at(struct llm_context *context, const struct llm_state_format *format, int32_t seq, int32_t n)
{
    return llm_state_format_has_checkpoints(format) || llm_seq_end(context, seq) == n;
}

/* Loads rows of the sequence into `target`: its media say at which positions they belong. */
static bool set_rows(struct llm_context *context, const struct llm_state_format *format, int32_t seq, int32_t target,
                     const struct buf *slice)
{
    struct buf copy = {0};
    const struct buf *rows = llm_rows_to_positions(format, llm_seq_media(context, seq), slice, &copy);
    bool loaded = rows != NULL && set_state(context, target, rows, 0);
    buf_release(&copy);
    return loaded;
}

enum llm_loaded llm_rows_load(struct llm_context *context, const struct llm_state_format *format, int32_t seq,
                              const struct llm_state_slice *slice)
{
    assert(format != NULL && seq >= 0 && seq < context->n_seq && slice != NULL);
    struct llm_parsed_state parsed;
    const struct buf bytes = {.v = (char *)(uintptr_t)slice->bytes, .len = slice->size};
    bool follows = format->appends && format->n_rows > 0 && ends_at(context, format, seq, slice->from) &&
                   llm_parse_state(format, LLM_STATE_SNAPSHOT, slice->bytes, slice->size, &parsed) &&
                   is_slice_of(format, &parsed, slice->from, slice->to);
    if (!follows) return LLM_BAD_STATE;
    bool loaded = set_rows(context, format, seq, context->scratch, &bytes);
    if (loaded) {
        struct range range = range_of(context, seq, slice->from, slice->to);
        llama_memory_seq_cp(llama_get_memory(context->handle.v), context->scratch, seq, range.begin, range.end);
        llm_seq_note_end(context, seq, slice->to);
    }
    clear_scratch(context, format);
    return loaded ? LLM_LOADED : LLM_NO_ROOM;
}

bool llm_rows_load_all(struct llm_context *context, const struct llm_state_format *format, int32_t seq,
                       const void *joined, size_t size, int32_t n)
{
    assert(format != NULL && seq >= 0 && seq < context->n_seq);
    struct llm_parsed_state parsed;
    const struct buf bytes = {.v = (char *)(uintptr_t)joined, .len = size};
    llm_seq_note_end(context, seq, 0);
    if (context->copying[seq] == 0 && format->n_rows > 0 &&
        llm_parse_state(format, LLM_STATE_SNAPSHOT, joined, size, &parsed) && is_slice_of(format, &parsed, 0, n) &&
        parsed.kv[0].n == (uint32_t)n && set_rows(context, format, seq, seq, &bytes) &&
        ends_at(context, format, seq, n))
        return true;
    llm_seq_clear(context, seq);
    return false;
}

/* ---- Moving KV rows ---- */

struct llm_positions llm_seq_above(struct llm_context *context, int32_t seq, int32_t cell)
{
    struct llm_positions above = llm_book_positions_above(context->handle.v, seq, cell);
    const struct media_spans *media = llm_seq_media(context, seq);
    if (media == NULL || media->len == 0 || above.from >= above.to) return above;
    int32_t last = media_spans_index(media, above.to - 1);
    const struct media_span *span = media_spans_at(media, last);
    return (struct llm_positions){media_spans_index(media, above.from),
                                  llm_is_packed(span) ? span->at + span->n : last + 1};
}

/* The cells of the rows are free before they are loaded: they fit again. */
bool llm_rows_move(struct llm_context *context, const struct llm_state_format *format, int32_t seq, int32_t from,
                   int32_t to)
{
    assert(format != NULL && seq >= 0 && seq < context->n_seq);
    llama_memory_t memory = llama_get_memory(context->handle.v);
    struct range range = range_of(context, seq, from, to);
    size_t size = format->appends ? llm_rows_size(context, format, seq, from, to) : 0;
    struct buf rows = {.len = size};
    if (size == 0) return false;
    rows.v = mem_alloc(size);
    bool saved = llm_rows_save(context, format, seq, from, to, rows.v, size) == size;
    bool moved = saved && llama_memory_seq_rm(memory, seq, range.begin, range.end) &&
                 set_rows(context, format, seq, context->scratch, &rows);
    if (moved) llama_memory_seq_cp(memory, context->scratch, seq, range.begin, range.end);
    clear_scratch(context, format);
    if (saved && !moved) llm_seq_cut(context, seq, from);
    free(rows.v);
    return moved;
}

/* ---- Loading checkpoints ---- */

/* The number of KV rows of such a sequence can be read only from the size of its state. */
static bool has_kv_rows(struct llm_context *context, const struct llm_state_format *format, int32_t seq, int32_t n)
{
    if (format->n_rows == 0) return true;
    struct llama_context *handle = context->handle.v;
    size_t all = llama_state_seq_get_size_ext(handle, seq, 0);
    return all - llama_state_seq_get_size_ext(handle, seq, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY) ==
           llm_kv_size(format, &format->kv[0], (uint32_t)n, format->n_stream);
}

/* Loads the checkpoint as it is into a unified KV cache, else rewritten for as many streams as there are here. */
static bool load_checkpoint(struct llm_context *context, const struct llm_state_format *format, int32_t seq,
                            const struct buf *slice, const struct llm_state_contents *contents)
{
    if (format->n_stream == 1) return set_state(context, seq, slice, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY);
    struct buf state = {0};
    bool ok = llm_compose_state(format, contents, &state, NULL) &&
              set_state(context, seq, &state, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY);
    buf_release(&state);
    return ok;
}

/* The slice says after how many tokens it was saved; llama.cpp wants the position of the last of them. */
static bool load_at_position(struct llm_context *context, const struct llm_state_format *format, int32_t seq,
                             const struct buf *slice, int32_t n, struct llm_state_contents *contents)
{
    int32_t last = llm_position(context, seq, n - 1);
    if (last == n - 1) return load_checkpoint(context, format, seq, slice, contents);
    struct buf copy = {0};
    buf_append(&copy, slice->v, slice->len);
    struct llm_parsed_state parsed;
    bool ok = llm_checkpoint_set_end(format, copy.v, copy.len, last + 1) &&
              llm_parse_state(format, LLM_STATE_CHECKPOINT, copy.v, copy.len, &parsed);
    if (ok) contents->state = parsed.state;
    ok = ok && load_checkpoint(context, format, seq, &copy, contents);
    buf_release(&copy);
    return ok;
}

enum llm_loaded llm_checkpoint_load(struct llm_context *context, const struct llm_state_format *format, int32_t seq,
                                    const void *slice, size_t size, int32_t n)
{
    assert(format != NULL && seq >= 0 && seq < context->n_seq);
    const struct buf bytes = {.v = (char *)(uintptr_t)slice, .len = size};
    struct llm_parsed_state parsed;
    struct llm_state_contents contents = {.what = LLM_STATE_CHECKPOINT, .n_stream = format->n_stream};
    bool fits = context->copying[seq] == 0 && llm_state_format_has_checkpoints(format) &&
                llm_parse_state(format, LLM_STATE_CHECKPOINT, slice, size, &parsed) &&
                llm_find_checkpoint(format, &parsed, n, &contents);
    bool loaded = fits && load_at_position(context, format, seq, &bytes, n, &contents);
    llm_state_contents_release(&contents);
    /* llama.cpp refuses a checkpoint of the right structure only for lack of cells. */
    if (fits && !loaded && format->appends) return LLM_NO_ROOM;
    if (loaded && llm_seq_end(context, seq) == n && has_kv_rows(context, format, seq, n)) return LLM_LOADED;
    llm_seq_clear(context, seq);
    return LLM_BAD_STATE;
}
