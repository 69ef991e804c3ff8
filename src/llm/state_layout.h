/* The byte layout of a sequence's state as llama.cpp 0.5.0 saves it, as far as slicing needs it. Pure functions over
 * bytes, any thread; only src/llm/ includes this header.
 *
 *     u32 magic, i32 sequence
 *     for keys and values (of all layers, or of those without and those with a window, one after the other):
 *         u32 streams; for each: u32 cells; if there are any, in the order of their indices:
 *             for each cell: i32 position, u32 1, [12 bytes: its 2D position and its token], i32 sequence
 *             u32 whether values are transposed, u32 layers
 *             for each layer: i32 type, u64 bytes of a row, rows of keys
 *             for each layer: the same for values; or i32 type, u32 bytes of an element, u32 elements of a row, and
 *             for each of these its element in all cells
 *     for recurrent states, to the end:
 *         u32 cells (0 or 1); if 1: i32 position, u32 0
 *         u32 0, u32 layers; for each that has one i32 type, u64 bytes, its first state; then all second states
 *
 * Sections without a window hold KV rows; windows and recurrent states are what a checkpoint holds. A checkpoint has
 * the same header and leaves the KV rows out. */
#ifndef LLM_STATE_LAYOUT_H
#define LLM_STATE_LAYOUT_H

#include "llm/state_slices.h"

enum {
    LLM_HEADER_BYTES = 8,
    LLM_TABLE_HEAD = 12, /* bytes before the rows of each table */
    LLM_MAX_KV = 2
};

/* Keys or values of a layer. */
struct llm_table {
    int32_t type;
    uint32_t element; /* bytes of one, where values are transposed; else 0 */
    uint64_t row_bytes;
    uint64_t before; /* bytes of a cell in all tables before this one */
};

/* A section of keys and values. */
struct llm_kv_section {
    bool transposed;
    uint32_t n_keys;
    size_t n_tables; /* keys, then values: as many, or none */
    struct llm_table *tables;
    uint64_t row_bytes; /* of a KV row: one cell in all tables */
};

struct llm_state_format {
    uint32_t magic, n_stream;
    size_t cell_bytes;   /* of a cell's entry: position and sequence */
    size_t n_kv, n_rows; /* sections of keys and values; the first n_rows of them (one or none) hold KV rows, the others
                            sliding windows */
    struct llm_kv_section kv[LLM_MAX_KV];
    bool recurrent;
    struct buf state;          /* the recurrent section after some token: a template that others are compared with */
    struct llm_regions states; /* within it */
    struct buf no_state;       /* the recurrent section of an empty sequence */
    bool appends;
};

/* ---- Reading ---- */

/* Reads a state from its beginning. Beyond its end there are zeros, and NULL, and `overrun` is set. */
struct llm_cursor {
    const uint8_t *at;
    size_t left;
    bool overrun;
};

const uint8_t *llm_skip(struct llm_cursor *cursor, uint64_t size); /* what was passed over */
uint64_t llm_next(struct llm_cursor *cursor, size_t size);         /* a number of so many bytes */

/* The cells of a section, in bytes that it borrows. */
struct llm_kv_view {
    const uint8_t *cells, *tables; /* tables: from "whether values are transposed" on */
    uint32_t n;
};

struct llm_parsed_state {
    struct llm_kv_view kv[LLM_MAX_KV];
    const uint8_t *state; /* the recurrent section; NULL: it is empty, or there is none */
};

/* Whether the bytes are, from first to last, a state of this layout or of the same layout with one stream. `what` says
 * which sections it has. */
bool llm_parse_state(const struct llm_state_format *format, enum llm_state what, const void *bytes, size_t size,
                     struct llm_parsed_state *parsed);

int32_t llm_view_pos(const struct llm_state_format *format, const struct llm_kv_view *view, uint32_t cell);
int32_t llm_state_pos(const uint8_t *state); /* the last position that it has consumed */

/* Finds the cells of the positions [from, to), each of which must be there exactly once, and appends them as runs of
 * adjacent cells. */
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

/* ---- Media ---- */

/* With M-RoPE rows of an image share positions. Slices hold indices in the place of positions: each row has one of its
 * own, so that slices are cut and joined with media as without. */

/* Replaces the positions of a raw state's rows by indices. False: the media are not those of its sequence. */
bool llm_rows_to_indices(const struct llm_state_format *format, const struct media_spans *media, void *raw,
                         size_t size);

/* The slice with positions in the place of indices: itself, where they are the same, else `copy`, which the caller
 * releases. NULL: it is malformed. */
const struct buf *llm_rows_to_positions(const struct llm_state_format *format, const struct media_spans *media,
                                        const struct buf *slice, struct buf *copy);

/* Makes the checkpoint that of a sequence which ends at `end`. False: it has a sliding window, whose rows would have to
 * change as well. */
bool llm_checkpoint_set_end(const struct llm_state_format *format, void *raw, size_t size, int32_t end);

/* ---- Writing ---- */

uint64_t llm_kv_size(const struct llm_state_format *format, const struct llm_kv_section *kv, uint32_t n_cells,
                     uint32_t n_stream);

/* Writes a state with these cells in each section of keys and values, and that recurrent section, in place of what
 * `out` held. False: no memory. Regions may be NULL; sections without cells have none. */
struct llm_state_contents {
    enum llm_state what;
    struct llm_runs runs[LLM_MAX_KV];
    const uint8_t *state; /* NULL: the empty one */
    uint32_t n_stream;
};

bool llm_compose_state(const struct llm_state_format *format, const struct llm_state_contents *contents,
                       struct buf *out, struct llm_regions *regions);

/* Finds the contents of a checkpoint after n tokens, windows in the order of their positions. False: it is another
 * position's, or incomplete. */
bool llm_find_checkpoint(const struct llm_state_format *format, const struct llm_parsed_state *parsed, int32_t n,
                         struct llm_state_contents *contents);
void llm_state_contents_release(struct llm_state_contents *contents); /* the runs */

#endif
