/* Detects the layout of a context's states from the bytes of one snapshot. Values that may vary are read off; values
 * that must be as expected decide whether the layout is known at all. No state; any thread. */
#include "llm/state_layout.h"

#include "base/memory.h"

#include <ggml.h>
#include <stdlib.h>
#include <string.h>

/* Limits far beyond any model, and the bytes of a cell's entry without and of its optional extension. */
enum { MAX_LAYERS = 4096, CELL_BYTES = 12, EXTENSION_BYTES = 12 };

static const uint64_t MAX_ROW = 1 << 30;

/* Reads the snapshot of the first n tokens of sequence 0. Reading beyond its end gives zeros and sets `overrun`. */
struct cursor {
    const uint8_t *at;
    size_t left;
    int32_t n;
    bool overrun;
};

static void skip(struct cursor *cursor, uint64_t size)
{
    cursor->overrun = cursor->overrun || size > cursor->left;
    if (cursor->overrun) return;
    cursor->at += size;
    cursor->left -= (size_t)size;
}

static uint64_t next_number(struct cursor *cursor, size_t size)
{
    const uint8_t *at = cursor->at;
    uint64_t value = 0;
    skip(cursor, size);
    if (!cursor->overrun) memcpy(&value, at, size);
    return value;
}

static bool detect_table(struct cursor *cursor, struct llm_kv_section *kv, bool transposed, uint64_t n_cells)
{
    struct llm_table *table = &kv->tables[kv->n_tables++];
    *table = (struct llm_table){.type = (int32_t)next_number(cursor, 4), .before = kv->row_bytes};
    if (transposed) {
        table->element = (uint32_t)next_number(cursor, 4);
        if (table->element == 0) return false;
        table->row_bytes = table->element * next_number(cursor, 4);
    } else {
        table->row_bytes = next_number(cursor, 8);
    }
    if (table->row_bytes > MAX_ROW || table->type < 0 || table->type >= GGML_TYPE_COUNT) return false;
    kv->row_bytes += table->row_bytes;
    skip(cursor, n_cells * table->row_bytes);
    return !cursor->overrun;
}

static bool detect_tables(struct cursor *cursor, struct llm_kv_section *kv, bool with_values, uint64_t n_cells)
{
    uint64_t transposed = next_number(cursor, 4);
    kv->n_keys = (uint32_t)next_number(cursor, 4);
    if (transposed > 1 || kv->n_keys > MAX_LAYERS) return false;
    kv->transposed = transposed == 1;
    kv->tables = mem_alloc((2 * (size_t)kv->n_keys + 1) * sizeof *kv->tables);
    for (uint32_t i = 0; i < kv->n_keys; i++)
        if (!detect_table(cursor, kv, false, n_cells)) return false;
    for (uint32_t i = 0; i < kv->n_keys && with_values; i++)
        if (!detect_table(cursor, kv, kv->transposed, n_cells)) return false;
    return true;
}

static bool detect_cells(struct cursor *cursor, size_t cell_bytes, uint64_t n_cells)
{
    for (uint64_t i = 0; i < n_cells; i++) {
        if (next_number(cursor, 4) >= (uint64_t)cursor->n || next_number(cursor, 4) != 1) return false;
        skip(cursor, cell_bytes - CELL_BYTES);
        if (next_number(cursor, 4) != 0) return false;
    }
    return !cursor->overrun;
}

static bool detect_kv(struct cursor *cursor, struct llm_state_format *format, struct llm_kv_section *kv,
                      bool with_values)
{
    bool found = false;
    if (next_number(cursor, 4) != format->n_stream) return false;
    for (uint32_t i = 0; i < format->n_stream; i++) {
        uint64_t n_cells = next_number(cursor, 4);
        if (n_cells == 0) continue;
        if (found || n_cells > (uint64_t)cursor->n || !detect_cells(cursor, format->cell_bytes, n_cells)) return false;
        if (!detect_tables(cursor, kv, with_values, n_cells)) return false;
        found = true;
    }
    return found;
}

/* Recurrent states follow one another: all first states in the order of their layers, then all second ones. */
static bool detect_states(struct llm_state_format *format)
{
    struct cursor cursor = {.at = (const uint8_t *)format->state.v, .left = format->state.len};
    struct llm_regions *states = &format->states;
    skip(&cursor, 3 * 4);
    uint64_t transposed = next_number(&cursor, 4), n_layers = next_number(&cursor, 4);
    if (transposed != 0 || n_layers > MAX_LAYERS) return false;
    while (cursor.left > 0 && !cursor.overrun) {
        uint16_t type = (uint16_t)next_number(&cursor, 4);
        uint64_t size = next_number(&cursor, 8);
        states->v = mem_grow(states->v, states->len + 1, sizeof *states->v);
        states->v[states->len++] = (struct llm_region){
            .type = type, .rows = 1, .row_bytes = size, .size = size, .offset = format->state.len - cursor.left};
        skip(&cursor, size);
    }
    for (size_t i = 0; i < states->len; i++) {
        bool second = i >= states->len / 2;
        states->v[i].what = second ? 'S' : 'R';
        states->v[i].layer = (uint16_t)(second ? i - states->len / 2 : i);
    }
    return !cursor.overrun && states->len > 0 && states->len % 2 == 0;
}

/* A recurrent section whose states cannot be separated is one state, from the end of its one cell on. */
static void detect_recurrent(struct llm_state_format *format, struct cursor *cursor)
{
    enum { CELL_END = 12 };
    buf_clear(&format->state);
    buf_append(&format->state, cursor->at, cursor->left);
    skip(cursor, cursor->left);
    if (detect_states(format) || format->state.len <= CELL_END) return;
    uint64_t size = format->state.len - CELL_END;
    format->states.v = mem_grow(format->states.v, 1, sizeof *format->states.v);
    format->states.v[0] =
        (struct llm_region){.what = 'M', .rows = 1, .row_bytes = size, .offset = CELL_END, .size = size};
    format->states.len = 1;
}

static void reset_layout(struct llm_state_format *format)
{
    for (size_t i = 0; i < format->n_kv; i++) {
        free(format->kv[i].tables);
        format->kv[i] = (struct llm_kv_section){0};
    }
    format->states.len = 0;
}

/* Tries one of four variants. Two facts cannot be read off the bytes: whether cells have the extension (2D position and
 * token), and whether there are values. */
static bool detect_with(struct llm_state_format *format, const struct buf *whole, int32_t n, bool with_extension,
                        bool with_values)
{
    struct cursor cursor = {.at = (const uint8_t *)whole->v, .left = whole->len, .n = n};
    struct llm_parsed_state parsed;
    reset_layout(format);
    format->cell_bytes = CELL_BYTES + (with_extension ? EXTENSION_BYTES : 0);
    format->magic = (uint32_t)next_number(&cursor, 4);
    skip(&cursor, 4);
    for (size_t i = 0; i < format->n_kv; i++)
        if (!detect_kv(&cursor, format, &format->kv[i], with_values)) return false;
    if (format->recurrent) detect_recurrent(format, &cursor);
    return llm_parse_state(format, LLM_STATE_SNAPSHOT, whole->v, whole->len, &parsed) &&
           (!format->recurrent || (parsed.state != NULL && llm_state_pos(parsed.state) == n - 1));
}

bool llm_detect_state_layout(struct llm_state_format *format, const struct buf *whole, int32_t n)
{
    for (int way = 0; way < 4; way++)
        if (detect_with(format, whole, n, (way & 1) != 0, (way & 2) == 0)) return true;
    return false;
}
