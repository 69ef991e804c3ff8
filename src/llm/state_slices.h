/* States of sequences, taken apart and put together again: rows of a range of tokens, and what moves.
 *
 * A sequence of n tokens is rows (keys and values of every token: they can be cut and joined) and, in some models, a
 * part that moves (recurrent states, sliding windows: worth something only whole, at the very place where it was
 * saved). Recurrent models have no rows. The bytes are llama.cpp's own format, which is internal:
 * llm_state_format_open() tests on the spot that what is saved, cut, joined and restored is what was there
 * (docs/design.md, The store).
 *
 * A piece is the canonical form: rows in the order of their positions, in a blob for one pool of cells and sequence 0.
 * It does not depend on the layout it came from, nor on the one it goes to.
 *
 * What takes a context: the engine's thread, between decodes. What takes a format: any thread. */
#ifndef LLM_STATE_SLICES_H
#define LLM_STATE_SLICES_H

#include "base/buf.h"
#include "llm/context.h"

struct llm_state_format;

/* One table of a piece: keys or values of a layer, or a recurrent state. See slab_region: what, layer, type, rows … */
struct llm_region {
    char what; /* 'K', 'V', 'v' (transposed), 'R', 'S', 'M' */
    uint16_t layer, type;
    uint32_t rows;
    uint64_t row_bytes, offset, size; /* within the piece */
};

struct llm_regions {
    struct llm_region *v; /* free() it */
    size_t len;
};

/* Learns how this context's states are laid out, and tests it: computes a few tokens, saves, cuts, joins, restores and
 * compares bytes and the logits of a next token. Sequences 0 and 1 must be empty and are so again afterwards. NULL,
 * with one line that says why: this memory cannot be taken apart, and nothing of it must be stored. */
struct llm_state_format *llm_state_format_open(struct llm_context *context, hearth_error *error);
void llm_state_format_close(struct llm_state_format *format);

bool llm_state_format_has_rows(const struct llm_state_format *format);        /* false: recurrent */
bool llm_state_format_has_checkpoints(const struct llm_state_format *format); /* true: rows alone are not enough */
bool llm_state_format_appends(
    const struct llm_state_format *format); /* rows can be added piece by piece: one pool of cells */
uint64_t llm_state_format_row_bytes(const struct llm_state_format *format); /* of one token, over all layers */

/* ---- Copying out: the engine's thread ---- */

/* Bytes that llm_rows_save() needs for the tokens [from, to) of the sequence, and copying them. With a stream for each
 * sequence llama.cpp copies whole sequences only: the raw bytes hold more than was asked for, and any rows can be cut
 * out of them. 0: not possible now. */
size_t llm_rows_size(struct llm_context *context, const struct llm_state_format *format, int32_t seq, int32_t from,
                     int32_t to);
size_t llm_rows_save(struct llm_context *context, const struct llm_state_format *format, int32_t seq, int32_t from,
                     int32_t to, void *raw, size_t size);

/* The part that moves is saved with llm_seq_save(LLM_STATE_CHECKPOINT), which gives raw bytes too. */

/* ---- From raw bytes to pieces and on to bytes that load: any thread ---- */

/* The piece of the rows [from, to), in place of what the buffer held, out of raw bytes or of a larger piece. False: the
 * bytes are not what they should be, or there is no memory; there are no regions to free then. */
bool llm_cut_rows(const struct llm_state_format *format, const void *raw, size_t size, int32_t from, int32_t to,
                  struct buf *piece, struct llm_regions *regions);

/* The piece of a state that moves, after n tokens. */
bool llm_cut_checkpoint(const struct llm_state_format *format, const void *raw, size_t size, int32_t n,
                        struct buf *piece, struct llm_regions *regions);

/* Rows of a piece. */
struct llm_state_slice {
    const void *bytes;
    size_t size;
    int32_t from, to; /* what of it is wanted: it may hold rows before and after */
};

/* One run of bytes for llm_rows_load_all(): only where pieces cannot be appended. */
bool llm_join_rows(const struct llm_state_format *format, const struct llm_state_slice *pieces, size_t n,
                   struct buf *joined);

/* ---- Copying in: the engine's thread ---- */

/* Appends the rows to a sequence that has those of all tokens before. Whatever fails, the sequence is what it was.
 * Until the part that moves is there too, llm_seq_end() of such a sequence is 0. */
enum llm_loaded llm_rows_load(struct llm_context *context, const struct llm_state_format *format, int32_t seq,
                              const struct llm_state_slice *piece);

/* In place of what the sequence held. */
bool llm_rows_load_all(struct llm_context *context, const struct llm_state_format *format, int32_t seq,
                       const void *joined, size_t size, int32_t n);

/* Completes a sequence that has the rows of n tokens. Where there is no room it keeps them, and the call can be made
 * again; where it is no such piece the sequence is empty. */
enum llm_loaded llm_checkpoint_load(struct llm_context *context, const struct llm_state_format *format, int32_t seq,
                                    const void *piece, size_t size, int32_t n);

#endif
