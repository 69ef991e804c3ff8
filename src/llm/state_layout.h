/* How llama.cpp 0.5.0 writes the state of a sequence, as far as it has to be known to take one apart. Pure functions
 * over bytes, any thread; only src/llm/ includes this header.
 *
 *     u32 magic, i32 sequence
 *     for keys and values (of all layers, or of those without and those with a window, one after the other):
 *         u32 streams; for each: u32 cells; if there are any, in the order of their indices:
 *             for each cell: i32 position, u32 1, [12 bytes of its place in two dimensions and its token], i32 sequence
 *             u32 whether values are transposed, u32 layers
 *             for each layer: i32 type, u64 bytes of a row, rows of keys
 *             for each layer: the same for values; or i32 type, u32 bytes of an element, u32 elements of a row, and
 *             for each of these its element in all cells
 *     for recurrent states, to the end:
 *         u32 cells (0 or 1); if 1: i32 position, u32 0
 *         u32 0, u32 layers; for each that has one i32 type, u64 bytes, its first state; then all second states
 *
 * What is not recurrent and without a window is rows; the rest moves. A state of what moves alone has the same header
 * and leaves the rows out. */
#ifndef LLM_STATE_LAYOUT_H
#define LLM_STATE_LAYOUT_H

#include "llm/state_slices.h"

enum {
    LLM_HEADER_BYTES = 8,
    LLM_TABLE_HEAD = 12, /* before the rows of each table */
    LLM_MAX_KV = 2
};

/* Keys or values of a layer. */
struct llm_table {
    int32_t type;
    uint32_t element; /* bytes of one, where values are transposed; else 0 */
    uint64_t row_bytes;
    uint64_t before; /* bytes that a cell has in the tables before this one */
};

/* A section of keys and values. */
struct llm_kv_section {
    bool transposed;
    uint32_t n_keys;
    size_t n_tables; /* keys, then values: as many, or none */
    struct llm_table *tables;
    uint64_t row_bytes; /* of a cell, in all tables */
};

struct llm_state_format {
    uint32_t magic, n_stream;
    size_t cell_bytes;   /* an entry of a table of cells */
    size_t n_kv, n_rows; /* sections of keys and values; the first n_rows of them (one or none) are not windows */
    struct llm_kv_section kv[LLM_MAX_KV];
    bool recurrent;
    struct buf state;          /* the recurrent section after some token, as a model of others */
    struct llm_regions states; /* within it */
    struct buf no_state;       /* the recurrent section of an empty sequence */
    bool appends;
};

/* Fills in what the state of the first n tokens of sequence 0 tells, given n_stream, n_kv, n_rows, recurrent and
 * no_state. False: it is not laid out as expected. */
bool llm_detect_state_layout(struct llm_state_format *format, const struct buf *whole, int32_t n);

/* ---- Reading ---- */

/* The cells of a section as they lie in somebody's bytes. */
struct llm_kv_view {
    const uint8_t *cells, *tables; /* tables: from "whether values are transposed" on */
    uint32_t n;
};

struct llm_parsed_state {
    struct llm_kv_view kv[LLM_MAX_KV];
    const uint8_t *state; /* the recurrent section; NULL: an empty one, or none at all */
};

/* Whether the bytes are a state of this layout, or of the same in one pool, from the first byte to the last. Which
 * sections it has says `what`. */
bool llm_parse_state(const struct llm_state_format *format, enum llm_state what, const void *bytes, size_t size,
                     struct llm_parsed_state *parsed);

int32_t llm_view_pos(const struct llm_state_format *format, const struct llm_kv_view *view, uint32_t cell);
int32_t llm_state_pos(const uint8_t *state); /* the last position that went into it */

/* Finds the cells of the positions [from, to), each of which must be there exactly once. Appends runs of neighbours. */
struct llm_run {
    const struct llm_kv_view *view;
    uint32_t first, n;
};

struct llm_runs {
    struct llm_run *v; /* free() it */
    size_t len, cap;
    uint32_t n_cells;
};

bool llm_find_cells(const struct llm_state_format *format, const struct llm_kv_view *view, int32_t from, int32_t to,
                    struct llm_runs *runs);

/* ---- Writing ---- */

uint64_t llm_kv_size(const struct llm_state_format *format, const struct llm_kv_section *kv, uint32_t n_cells,
                     uint32_t n_stream);

/* A state with these cells in each section of keys and values, and that recurrent section, in place of what `out` held.
 * False: no memory. Regions may be NULL; those of no cells are left out. */
struct llm_state_contents {
    enum llm_state what;
    struct llm_runs runs[LLM_MAX_KV];
    const uint8_t *state; /* NULL: an empty one */
    uint32_t n_stream;
};

bool llm_compose_state(const struct llm_state_format *format, const struct llm_state_contents *contents,
                       struct buf *out, struct llm_regions *regions);

/* What moves after n tokens, in order, out of a state of LLM_STATE_CHECKPOINT. False: it is not that, or not whole. */
bool llm_find_checkpoint(const struct llm_state_format *format, const struct llm_parsed_state *parsed, int32_t n,
                         struct llm_state_contents *contents);
void llm_state_contents_release(struct llm_state_contents *contents); /* the runs */

#endif
