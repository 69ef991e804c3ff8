/* Slices of a sequence's state: KV rows of a range of positions, and checkpoints, in a form that does not depend on
 * where they were saved.
 *
 * A sequence of n tokens has KV rows (keys and values of one position), which can be cut and joined. In some models it
 * also has recurrent states or sliding windows, which are usable only whole and at the position where they were saved:
 * a checkpoint. Recurrent models have no KV rows. The bytes are llama.cpp's own format, which is internal:
 * llm_state_format_open() tests on the spot that what is saved, cut, joined and restored is what was there
 * (docs/design/store.md).
 *
 * A slice is canonical: KV rows in the order of their positions, as a state of a unified KV cache and of sequence 0.
 * It does not depend on the layout of the context that saved it, nor of the one that loads it.
 *
 * Functions that take a context run on the engine's thread, between decodes; those that take only a format on any. */
#ifndef LLM_STATE_SLICES_H
#define LLM_STATE_SLICES_H

#include "base/buf.h"
#include "llm/context.h"

struct llm_state_format;

/* One table of a slice: keys or values of a layer, or a recurrent state. Its members mean what those of slab_region do.
 */
struct llm_region {
    char what; /* 'K', 'V', 'v' (transposed), 'R', 'S', 'M' */
    uint16_t layer, type;
    uint32_t rows;
    uint64_t row_bytes, offset, size; /* bytes; offset within the slice */
};

struct llm_regions {
    struct llm_region *v; /* free() it */
    size_t len;
};

/* Detects how llama.cpp lays out this context's states, and tests it: computes a few tokens, saves, cuts, joins,
 * restores, and compares bytes and the logits of a next token. Sequences 0 and 1 must be empty and are empty again
 * afterwards. NULL, with one line that says why: these states cannot be sliced, and none of them may be stored. */
struct llm_state_format *llm_state_format_open(struct llm_context *context, hearth_error *error);
void llm_state_format_close(struct llm_state_format *format);

bool llm_state_format_has_rows(const struct llm_state_format *format);        /* false: a recurrent model */
bool llm_state_format_has_checkpoints(const struct llm_state_format *format); /* true: KV rows alone are not enough */
bool llm_state_format_appends(
    const struct llm_state_format *format); /* KV rows can be loaded slice by slice: a unified KV cache */
uint64_t llm_state_format_row_bytes(const struct llm_state_format *format); /* bytes of one KV row, over all layers */

/* ---- Copying out: the engine's thread ---- */

/* The bytes that the KV rows [from, to) of the sequence need, and copying them; both return bytes. With a stream for
 * each sequence llama.cpp copies whole sequences only: the raw bytes hold more than was asked for, and any rows can be
 * cut out of them. 0: not possible now. */
size_t llm_rows_size(struct llm_context *context, const struct llm_state_format *format, int32_t seq, int32_t from,
                     int32_t to);
size_t llm_rows_save(struct llm_context *context, const struct llm_state_format *format, int32_t seq, int32_t from,
                     int32_t to, void *raw, size_t size);

/* As llm_seq_save(LLM_STATE_CHECKPOINT), for the store: raw bytes too. 0 also where the state cannot be stored. */
size_t llm_checkpoint_save(struct llm_context *context, const struct llm_state_format *format, int32_t seq, void *bytes,
                           size_t size);

/* ---- From raw bytes to slices, and from slices to bytes that load: any thread ---- */

/* Cuts the slice of the KV rows [from, to) out of raw bytes or of a larger slice; it replaces what the buffer held.
 * False: the bytes are malformed or lack rows, or there is no memory; there are no regions to free then. */
bool llm_cut_rows(const struct llm_state_format *format, const void *raw, size_t size, int32_t from, int32_t to,
                  struct buf *slice, struct llm_regions *regions);

/* Makes the canonical checkpoint after n tokens from raw bytes. */
bool llm_cut_checkpoint(const struct llm_state_format *format, const void *raw, size_t size, int32_t n,
                        struct buf *slice, struct llm_regions *regions);

/* A range of KV rows within a slice. */
struct llm_state_slice {
    const void *bytes;
    size_t size;
    int32_t from, to; /* the positions that are wanted: the slice may hold rows before and after them */
};

/* Joins slices into one state for llm_rows_load_all(): only where slices cannot be appended one by one. */
bool llm_join_rows(const struct llm_state_format *format, const struct llm_state_slice *slices, size_t n,
                   struct buf *joined);

/* ---- Copying in: the engine's thread ---- */

/* Appends the KV rows to a sequence that has those of all positions before. On failure the sequence is unchanged. Where
 * a checkpoint is needed too, llm_seq_end() is 0 until that is loaded. */
enum llm_loaded llm_rows_load(struct llm_context *context, const struct llm_state_format *format, int32_t seq,
                              const struct llm_state_slice *slice);

/* Loads joined KV rows in place of what the sequence held. On failure it is empty. */
bool llm_rows_load_all(struct llm_context *context, const struct llm_state_format *format, int32_t seq,
                       const void *joined, size_t size, int32_t n);

/* Completes a sequence that has n KV rows with the checkpoint of that position. LLM_NO_ROOM: the rows are kept, and the
 * call can be made again; LLM_BAD_STATE: the sequence is empty. */
enum llm_loaded llm_checkpoint_load(struct llm_context *context, const struct llm_state_format *format, int32_t seq,
                                    const void *slice, size_t size, int32_t n);

#endif
