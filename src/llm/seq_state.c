/* Saves snapshots and checkpoints of sequences as bytes, and loads them. No data of its own; the engine's thread, as
 * all of context.h.
 *
 * llama.cpp clears the sequence before it loads a state into it, part by part, and keeps the parts that it had read
 * when it finds an error: every failure here ends with llm_seq_clear(). The bytes have no checksum; what was loaded is
 * compared with what the caller expects: all bytes were read, and the sequence ends where it should. A saved sliding
 * window is complete for the end of its sequence: only cells that have left the window are ever overwritten. */
#include "llm/llm_parts.h"

static llama_state_seq_flags flags_of(enum llm_state what)
{
    return what == LLM_STATE_CHECKPOINT ? LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY : 0;
}

/* ---- Saving ---- */

size_t llm_seq_state_size(struct llm_context *context, int32_t seq, enum llm_state what)
{
    /* Without recurrent and SWA states llama.cpp would take all cells for them. */
    bool no_checkpoint = what == LLM_STATE_CHECKPOINT && llm_cuts_anywhere(context);
    bool awaits_copy = (llm_seq_copying(context, seq) & LLM_COPIED_TO) != 0;
    if (no_checkpoint || awaits_copy || llm_seq_end(context, seq) == 0) return 0;
    return llama_state_seq_get_size_ext(llm_context_handle(context), seq, flags_of(what));
}

size_t llm_seq_save(struct llm_context *context, int32_t seq, enum llm_state what, void *bytes, size_t size)
{
    if (llm_seq_state_size(context, seq, what) == 0) return 0;
    return llama_state_seq_get_data_ext(llm_context_handle(context), bytes, size, seq, flags_of(what));
}

/* ---- Loading ---- */

/* llama.cpp returns only that it read less than all. It refuses bytes that this context wrote only for lack of cells.
 * Of a sequence whose KV rows and checkpoint end at different positions it returns the end of the checkpoint. */
static enum llm_loaded restore(struct llm_context *context, int32_t seq, enum llm_state what, const void *bytes,
                               size_t size, int32_t n)
{
    /* A pending copy between streams would read, or overwrite, what is loaded here before the copy is made. */
    if (size == 0 || llm_seq_copying(context, seq) != 0) return LLM_BAD_STATE;
    llm_log_quiet(true);
    size_t n_read = llama_state_seq_set_data_ext(llm_context_handle(context), bytes, size, seq, flags_of(what));
    llm_log_quiet(false);
    llm_seq_note_end(context, seq, 0);
    if (n_read != size) return llm_is_unified(context) ? LLM_NO_ROOM : LLM_BAD_STATE;
    return llm_seq_end(context, seq) == n ? LLM_LOADED : LLM_BAD_STATE;
}

enum llm_loaded llm_seq_load(struct llm_context *context, int32_t seq, const void *bytes, size_t size, int32_t n)
{
    enum llm_loaded loaded = restore(context, seq, LLM_STATE_SNAPSHOT, bytes, size, n);
    if (loaded != LLM_LOADED) llm_seq_clear(context, seq);
    return loaded;
}

/* The checkpoint is loaded first: once it ends at n, llama.cpp allows cutting the KV rows there. */
enum llm_loaded llm_seq_rewind(struct llm_context *context, int32_t seq, const void *bytes, size_t size, int32_t n)
{
    struct llama_memory_i *memory = llama_get_memory(llm_context_handle(context));
    enum llm_loaded loaded = LLM_BAD_STATE;
    if (llm_seq_end(context, seq) >= n) loaded = restore(context, seq, LLM_STATE_CHECKPOINT, bytes, size, n);
    if (loaded == LLM_LOADED && !llama_memory_seq_rm(memory, seq, llm_position(context, seq, n), -1))
        loaded = LLM_BAD_STATE;
    if (loaded != LLM_LOADED) llm_seq_clear(context, seq);
    return loaded;
}
