/* Cuts slices out of raw states, joins them to states, and gives rows the positions that their media want. A state is
 * parsed into views of its sections, whose cells are found and written anew. No state of its own; any thread. Input is
 * not trusted: a length is used only after it was found to lie within the bytes, and a cell that is missing or
 * duplicated fails the call. */
#include "llm/state_layout.h"

#include "base/memory.h"
#include "llm/context_struct.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static uint32_t read_u32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static int32_t read_i32(const uint8_t *at)
{
    return (int32_t)read_u32(at);
}

/* ---- Sizes ---- */

/* Bytes of the tables of a section with cells, headers included. */
static uint64_t tables_size(const struct llm_kv_section *kv, uint32_t n_cells)
{
    return 8 + kv->n_tables * LLM_TABLE_HEAD + n_cells * kv->row_bytes;
}

uint64_t llm_kv_size(const struct llm_state_format *format, const struct llm_kv_section *kv, uint32_t n_cells,
                     uint32_t n_stream)
{
    uint64_t size = 4 + 4 * (uint64_t)n_stream;
    return n_cells == 0 ? size : size + (uint64_t)n_cells * format->cell_bytes + tables_size(kv, n_cells);
}

/* Offset of the head of a table from the beginning of all tables. */
static size_t table_at(const struct llm_kv_section *kv, size_t table, uint32_t n_cells)
{
    return (size_t)(8 + table * LLM_TABLE_HEAD + n_cells * kv->tables[table].before);
}

/* ---- Parsing ---- */

const uint8_t *llm_skip(struct llm_cursor *cursor, uint64_t size)
{
    const uint8_t *at = cursor->at;
    cursor->overrun = cursor->overrun || size > cursor->left;
    if (cursor->overrun) return NULL;
    cursor->at += size;
    cursor->left -= (size_t)size;
    return at;
}

uint64_t llm_next(struct llm_cursor *cursor, size_t size)
{
    uint64_t value = 0;
    assert(size <= sizeof value);
    const uint8_t *at = llm_skip(cursor, size);
    if (at != NULL) memcpy(&value, at, size);
    return value;
}

static void encode_table_head(const struct llm_table *table, uint8_t head[LLM_TABLE_HEAD])
{
    memcpy(head, &table->type, 4);
    if (table->element == 0) {
        memcpy(head + 4, &table->row_bytes, 8);
        return;
    }
    uint32_t elements = (uint32_t)(table->row_bytes / table->element);
    memcpy(head + 4, &table->element, 4);
    memcpy(head + 8, &elements, 4);
}

static bool tables_match(const struct llm_kv_section *kv, const struct llm_kv_view *view)
{
    if (read_u32(view->tables) != kv->transposed || read_u32(view->tables + 4) != kv->n_keys) return false;
    for (size_t i = 0; i < kv->n_tables; i++) {
        uint8_t head[LLM_TABLE_HEAD];
        encode_table_head(&kv->tables[i], head);
        if (memcmp(view->tables + table_at(kv, i, view->n), head, sizeof head) != 0) return false;
    }
    return true;
}

/* The cells of a sequence are in one stream. */
static bool read_kv_section(const struct llm_state_format *format, const struct llm_kv_section *kv,
                            struct llm_cursor *cursor, struct llm_kv_view *view)
{
    uint32_t n_stream = (uint32_t)llm_next(cursor, 4);
    if (n_stream != 1 && n_stream != format->n_stream) return false;
    for (uint32_t i = 0; i < n_stream; i++) {
        uint32_t n_cells = (uint32_t)llm_next(cursor, 4);
        if (n_cells == 0) continue;
        if (view->n > 0) return false;
        view->n = n_cells;
        view->cells = llm_skip(cursor, (uint64_t)n_cells * format->cell_bytes);
        view->tables = llm_skip(cursor, tables_size(kv, n_cells));
        if (cursor->overrun || !tables_match(kv, view)) return false;
    }
    return !cursor->overrun;
}

static bool read_recurrent(const struct llm_state_format *format, struct llm_cursor *cursor, const uint8_t **state)
{
    size_t size = cursor->left, same = 8;
    const uint8_t *at = llm_skip(cursor, size), *model = (const uint8_t *)format->state.v;
    *state = NULL;
    if (size == format->no_state.len && memcmp(at, format->no_state.v, size) == 0) return true;
    /* All bytes but the position and the states themselves equal those of the template section. */
    if (size != format->state.len || read_u32(at) != read_u32(model)) return false;
    for (size_t i = 0; i < format->states.len; i++) {
        const struct llm_region *region = &format->states.v[i];
        if (memcmp(at + same, model + same, (size_t)region->offset - same) != 0) return false;
        same = (size_t)(region->offset + region->size);
    }
    if (memcmp(at + same, model + same, size - same) != 0) return false;
    *state = at;
    return true;
}

bool llm_parse_state(const struct llm_state_format *format, enum llm_state what, const void *bytes, size_t size,
                     struct llm_parsed_state *parsed)
{
    assert(format != NULL && parsed != NULL && (bytes != NULL || size == 0));
    *parsed = (struct llm_parsed_state){0};
    struct llm_cursor cursor = {.at = bytes, .left = size};
    const uint8_t *header = llm_skip(&cursor, LLM_HEADER_BYTES);
    if (header == NULL || read_u32(header) != format->magic) return false;
    for (size_t i = what == LLM_STATE_CHECKPOINT ? format->n_rows : 0; i < format->n_kv; i++)
        if (!read_kv_section(format, &format->kv[i], &cursor, &parsed->kv[i])) return false;
    return (!format->recurrent || read_recurrent(format, &cursor, &parsed->state)) && cursor.left == 0;
}

/* ---- Cells ---- */

int32_t llm_view_pos(const struct llm_state_format *format, const struct llm_kv_view *view, uint32_t cell)
{
    return read_i32(view->cells + cell * format->cell_bytes);
}

int32_t llm_state_pos(const uint8_t *state)
{
    return read_i32(state + 4);
}

bool llm_find_cells(const struct llm_state_format *format, const struct llm_kv_view *view, int32_t from, int32_t to,
                    struct llm_runs *runs)
{
    assert(view != NULL && runs != NULL);
    if (from < 0 || to < from || (uint32_t)(to - from) > view->n) return false;
    uint32_t n = (uint32_t)(to - from), found = 0;
    uint32_t *cell_of = mem_alloc((n + 1) * sizeof *cell_of); /* its index plus 1; 0: not found yet */
    bool ok = true;
    for (uint32_t i = 0; i < view->n && ok; i++) {
        int32_t pos = llm_view_pos(format, view, i);
        ok = read_u32(view->cells + i * format->cell_bytes + 4) == 1;
        if (pos < from || pos >= to) continue;
        ok = ok && cell_of[pos - from] == 0;
        cell_of[pos - from] = i + 1;
        found++;
    }
    ok = ok && found == n;
    for (uint32_t i = 0; i < n && ok; i++) {
        struct llm_run *last = runs->len == 0 ? NULL : &runs->v[runs->len - 1];
        uint32_t cell = cell_of[i] - 1;
        runs->n_cells++;
        if (last != NULL && last->view == view && last->first + last->n == cell) {
            last->n++;
            continue;
        }
        runs->v = mem_room(runs->v, runs->len, &runs->cap, sizeof *runs->v);
        runs->v[runs->len++] = (struct llm_run){.view = view, .first = cell, .n = 1};
    }
    free(cell_of);
    return ok;
}

/* ---- Writing ---- */

struct writer {
    uint8_t *start, *at;
    struct llm_regions *regions; /* NULL: not wanted */
};

static void write_bytes(struct writer *writer, const void *bytes, size_t size)
{
    memcpy(writer->at, bytes, size);
    writer->at += size;
}

static void write_u32(struct writer *writer, uint32_t value)
{
    write_bytes(writer, &value, sizeof value);
}

static void note_region(struct writer *writer, struct llm_region region)
{
    if (writer->regions == NULL) return;
    region.offset += (uint64_t)(writer->at - writer->start);
    writer->regions->v[writer->regions->len++] = region;
}

static void write_table(struct writer *writer, const struct llm_kv_section *kv, size_t table,
                        const struct llm_runs *runs)
{
    const struct llm_table *t = &kv->tables[table];
    uint8_t head[LLM_TABLE_HEAD];
    encode_table_head(t, head);
    write_bytes(writer, head, sizeof head);
    bool keys = table < kv->n_keys;
    note_region(writer, (struct llm_region){.what = keys ? 'K' : (kv->transposed ? 'v' : 'V'),
                                            .layer = (uint16_t)(keys ? table : table - kv->n_keys),
                                            .type = (uint16_t)t->type,
                                            .rows = runs->n_cells,
                                            .row_bytes = t->row_bytes,
                                            .size = runs->n_cells * t->row_bytes});
    size_t element = t->element, row = (size_t)t->row_bytes;
    size_t strips = element == 0 ? 1 : row / element, width = element == 0 ? row : element;
    for (size_t strip = 0; strip < strips; strip++) {
        for (size_t i = 0; i < runs->len; i++) {
            const struct llm_run *run = &runs->v[i];
            const uint8_t *rows = run->view->tables + table_at(kv, table, run->view->n) + LLM_TABLE_HEAD;
            write_bytes(writer, rows + (strip * run->view->n + run->first) * width, run->n * width);
        }
    }
}

static void write_kv_section(struct writer *writer, const struct llm_state_format *format,
                             const struct llm_kv_section *kv, const struct llm_runs *runs, uint32_t n_stream)
{
    static const int32_t no_sequence = 0; /* in place of the one that a cell names, which is not read */
    write_u32(writer, n_stream);
    write_u32(writer, runs->n_cells);
    for (size_t i = 0; i < runs->len; i++) {
        const uint8_t *cell = runs->v[i].view->cells + runs->v[i].first * format->cell_bytes;
        for (uint32_t j = 0; j < runs->v[i].n; j++, cell += format->cell_bytes) {
            write_bytes(writer, cell, format->cell_bytes - sizeof no_sequence);
            write_bytes(writer, &no_sequence, sizeof no_sequence);
        }
    }
    if (runs->n_cells > 0) {
        write_u32(writer, kv->transposed);
        write_u32(writer, kv->n_keys);
        for (size_t i = 0; i < kv->n_tables; i++) write_table(writer, kv, i, runs);
    }
    for (uint32_t i = 1; i < n_stream; i++) write_u32(writer, 0);
}

void llm_state_contents_release(struct llm_state_contents *contents)
{
    for (size_t i = 0; i < LLM_MAX_KV; i++) free(contents->runs[i].v);
}

bool llm_compose_state(const struct llm_state_format *format, const struct llm_state_contents *contents,
                       struct buf *out, struct llm_regions *regions)
{
    assert(contents->n_stream >= 1 && out != NULL);
    size_t first = contents->what == LLM_STATE_CHECKPOINT ? format->n_rows : 0, n_regions = format->states.len + 1;
    const void *state = contents->state != NULL ? (const void *)contents->state : format->no_state.v;
    size_t state_len = contents->state != NULL ? format->state.len : format->no_state.len;
    uint64_t size = LLM_HEADER_BYTES + (format->recurrent ? state_len : 0);
    for (size_t i = first; i < format->n_kv; i++)
        size += llm_kv_size(format, &format->kv[i], contents->runs[i].n_cells, contents->n_stream);
    uint8_t *bytes = malloc((size_t)size + 1);
    if (bytes == NULL) return false;
    for (size_t i = 0; i < format->n_kv; i++) n_regions += format->kv[i].n_tables;
    if (regions != NULL) *regions = (struct llm_regions){.v = mem_alloc(n_regions * sizeof *regions->v)};
    struct writer writer = {.start = bytes, .at = bytes, .regions = regions};
    write_u32(&writer, format->magic);
    write_u32(&writer, 0);
    for (size_t i = first; i < format->n_kv; i++)
        write_kv_section(&writer, format, &format->kv[i], &contents->runs[i], contents->n_stream);
    for (size_t i = 0; i < format->states.len && format->recurrent && contents->state != NULL; i++)
        note_region(&writer, format->states.v[i]);
    if (format->recurrent) write_bytes(&writer, state, state_len);
    *writer.at = '\0';
    buf_release(out);
    *out = (struct buf){.v = (char *)bytes, .len = (size_t)size, .cap = (size_t)size + 1};
    return true;
}

/* ---- Cutting and joining ---- */

bool llm_cut_rows(const struct llm_state_format *format, const void *raw, size_t size, int32_t from, int32_t to,
                  struct buf *slice, struct llm_regions *regions)
{
    assert(format != NULL && slice != NULL && regions != NULL);
    struct llm_parsed_state parsed;
    struct llm_state_contents contents = {.what = LLM_STATE_SNAPSHOT, .n_stream = 1};
    *regions = (struct llm_regions){0};
    bool ok = format->n_rows > 0 && from < to && llm_parse_state(format, LLM_STATE_SNAPSHOT, raw, size, &parsed) &&
              llm_find_cells(format, &parsed.kv[0], from, to, &contents.runs[0]) &&
              llm_compose_state(format, &contents, slice, regions);
    llm_state_contents_release(&contents);
    return ok;
}

bool llm_find_checkpoint(const struct llm_state_format *format, const struct llm_parsed_state *parsed, int32_t n,
                         struct llm_state_contents *contents)
{
    if (n <= 0 || (format->recurrent && parsed->state == NULL)) return false;
    if (format->recurrent && llm_state_pos(parsed->state) != n - 1) return false;
    for (size_t i = format->n_rows; i < format->n_kv; i++) {
        const struct llm_kv_view *view = &parsed->kv[i];
        if (view->n == 0 || view->n > (uint32_t)n) return false;
        if (!llm_find_cells(format, view, n - (int32_t)view->n, n, &contents->runs[i])) return false;
    }
    contents->state = parsed->state;
    return true;
}

bool llm_cut_checkpoint(const struct llm_state_format *format, const void *raw, size_t size, int32_t n,
                        struct buf *slice, struct llm_regions *regions)
{
    assert(format != NULL && slice != NULL && regions != NULL);
    struct llm_parsed_state parsed;
    struct llm_state_contents contents = {.what = LLM_STATE_CHECKPOINT, .n_stream = 1};
    *regions = (struct llm_regions){0};
    bool ok =
        llm_state_format_has_checkpoints(format) && llm_parse_state(format, LLM_STATE_CHECKPOINT, raw, size, &parsed) &&
        llm_find_checkpoint(format, &parsed, n, &contents) && llm_compose_state(format, &contents, slice, regions);
    llm_state_contents_release(&contents);
    return ok;
}

static bool find_all(const struct llm_state_format *format, const struct llm_state_slice *slices, size_t n,
                     struct llm_parsed_state *parsed, struct llm_runs *runs)
{
    for (size_t i = 0; i < n; i++) {
        const struct llm_state_slice *slice = &slices[i];
        if (slice->from != (i == 0 ? 0 : slices[i - 1].to) || slice->to <= slice->from) return false;
        if (!llm_parse_state(format, LLM_STATE_SNAPSHOT, slice->bytes, slice->size, &parsed[i])) return false;
        if (!llm_find_cells(format, &parsed[i].kv[0], slice->from, slice->to, runs)) return false;
    }
    return n > 0;
}

bool llm_join_rows(const struct llm_state_format *format, const struct llm_state_slice *slices, size_t n,
                   struct buf *joined)
{
    assert(format != NULL && (slices != NULL || n == 0) && joined != NULL);
    struct llm_state_contents contents = {.what = LLM_STATE_SNAPSHOT, .n_stream = format->n_stream};
    struct llm_parsed_state *parsed = mem_alloc((n + 1) * sizeof *parsed); /* the runs borrow from it */
    bool ok = format->n_rows > 0 && find_all(format, slices, n, parsed, &contents.runs[0]) &&
              llm_compose_state(format, &contents, joined, NULL);
    llm_state_contents_release(&contents);
    free(parsed);
    return ok;
}

/* ---- Media ---- */

/* Where a cell's entry has the place in the image: behind its position and the number of its sequences. */
enum { X_AT = 8, Y_AT = 12, WITH_PLACE = 24 };

static bool any_packed(const struct media_spans *media)
{
    for (size_t i = 0; media != NULL && i < media->len; i++)
        if (llm_is_packed(&media->v[i])) return true;
    return false;
}

/* The entries of a state's rows, in bytes that may be written. */
struct entries {
    uint8_t *v;
    size_t bytes; /* of one */
    uint32_t n;
};

static bool find_entries(const struct llm_state_format *format, void *raw, size_t size, struct entries *entries)
{
    struct llm_parsed_state parsed;
    if (format->cell_bytes < WITH_PLACE || !llm_parse_state(format, LLM_STATE_SNAPSHOT, raw, size, &parsed))
        return false;
    const struct llm_kv_view *view = &parsed.kv[0];
    *entries = (struct entries){.bytes = format->cell_bytes, .n = view->n};
    if (view->n > 0) entries->v = (uint8_t *)raw + (view->cells - (const uint8_t *)raw);
    return true;
}

static int32_t entry_number(const struct entries *entries, uint32_t i, size_t at)
{
    return read_i32(entries->v + i * entries->bytes + at);
}

static void set_position(const struct entries *entries, uint32_t i, int32_t value)
{
    memcpy(entries->v + i * entries->bytes, &value, sizeof value);
}

struct image_row {
    int32_t y, x;
    uint32_t entry;
};

static int by_place(const void *a, const void *b)
{
    const struct image_row *p = a, *q = b;
    if (p->y != q->y) return p->y < q->y ? -1 : 1;
    return (p->x > q->x) - (p->x < q->x);
}

/* Numbers the rows of one image, which all have its position, line by line. False: some of them are missing. */
static bool number_image(const struct entries *entries, const struct media_span *span, int32_t position,
                         const int32_t *positions)
{
    struct image_row *rows = mem_alloc((size_t)span->n * sizeof *rows);
    int32_t n = 0;
    for (uint32_t i = 0; i < entries->n; i++) {
        if (positions[i] != position) continue;
        if (n < span->n)
            rows[n] = (struct image_row){entry_number(entries, i, Y_AT), entry_number(entries, i, X_AT), i};
        n++;
    }
    bool whole = n == span->n;
    if (whole) qsort(rows, (size_t)n, sizeof *rows, by_place);
    for (int32_t i = 0; whole && i < n; i++) set_position(entries, rows[i].entry, span->at + i);
    free(rows);
    return whole || n == 0;
}

bool llm_rows_to_indices(const struct llm_state_format *format, const struct media_spans *media, void *raw, size_t size)
{
    struct entries entries;
    if (!any_packed(media)) return true;
    if (!find_entries(format, raw, size, &entries)) return false;
    int32_t *positions = mem_alloc((entries.n + 1) * sizeof *positions);
    for (uint32_t i = 0; i < entries.n; i++) positions[i] = entry_number(&entries, i, 0);
    for (uint32_t i = 0; i < entries.n; i++) set_position(&entries, i, media_spans_index(media, positions[i]));
    bool good = true;
    for (size_t i = 0; i < media->len && good; i++)
        if (llm_is_packed(&media->v[i]))
            good = number_image(&entries, &media->v[i], media_spans_position(media, media->v[i].at), positions);
    free(positions);
    return good;
}

const struct buf *llm_rows_to_positions(const struct llm_state_format *format, const struct media_spans *media,
                                        const struct buf *slice, struct buf *copy)
{
    struct entries entries;
    if (!any_packed(media)) return slice;
    buf_append(copy, slice->v, slice->len);
    if (!find_entries(format, copy->v, copy->len, &entries)) return NULL;
    for (uint32_t i = 0; i < entries.n; i++)
        set_position(&entries, i, media_spans_position(media, entry_number(&entries, i, 0)));
    return copy;
}

bool llm_checkpoint_set_end(const struct llm_state_format *format, void *raw, size_t size, int32_t end)
{
    struct llm_parsed_state parsed;
    bool windows = format->n_kv > format->n_rows;
    if (windows || !llm_parse_state(format, LLM_STATE_CHECKPOINT, raw, size, &parsed) || parsed.state == NULL)
        return false;
    int32_t last = end - 1;
    memcpy((uint8_t *)raw + (parsed.state - (const uint8_t *)raw) + sizeof(uint32_t), &last, sizeof last);
    return true;
}
