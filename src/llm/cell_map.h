/* Where in a unified KV cache the cells in use lie, and moving them down.
 *
 * Attention looks over all cells up to the highest one in use, free ones included. llama.cpp gives new rows the lowest
 * free cells (in blocks, where sequences generate together: patches/0005), but never moves a row. When others have
 * left, those that stay high keep the whole range in use. A row is moved by saving it, freeing its cell, and loading it
 * again. The engine's thread, between decodes. */
#ifndef LLM_CELL_MAP_H
#define LLM_CELL_MAP_H

#ifdef __cplusplus
extern "C" {
#endif

#include <stdbool.h>
#include <stdint.h>

struct llm_context;
struct llm_state_format;

/* Sequences that generate together fill a block of so many cells each (patches/0005). */
#define LLM_CELL_BLOCK 64

struct llm_cell_map {
    int32_t used; /* cells in use */
    int32_t top;  /* one past the highest of them */
};

/* False: this context has no cells that can be moved (streams, sliding windows, recurrent states). Takes no time. */
bool llm_cells_map(struct llm_context *context, struct llm_cell_map *out);

/* How many cells in use lie at `cell` or above. Looks at each of them. */
int32_t llm_cells_above(struct llm_context *context, int32_t cell);

/* A range of a sequence's positions that holds all those whose cells lie at `cell` or above; to == 0: none. */
struct llm_positions {
    int32_t from, to;
};
struct llm_positions llm_seq_above(struct llm_context *context, int32_t seq, int32_t cell);

/* Moves the rows of these positions, which no other sequence shares, to the lowest cells that are free with theirs. The
 * rows keep their bytes. False: nothing was moved, or else the rows are lost, and the sequence has cells up to `from`
 * (llm_seq_end()). */
bool llm_rows_move(struct llm_context *context, const struct llm_state_format *format, int32_t seq, int32_t from,
                   int32_t to);

#ifdef __cplusplus
}
#endif

#endif
