/* Positions of rows and indices of tokens, where media make them differ: see state_layout.h. No state; any thread. */
#include "base/memory.h"
#include "llm/state_layout.h"

#include <stdlib.h>
#include <string.h>

/* Where a cell's entry has the place in the image: behind its position and the number of its sequences. */
enum { X_AT = 8, Y_AT = 12, WITH_PLACE = 24 };

static bool is_packed(const struct media_span *span)
{
    return span->n_pos != span->n;
}

static bool any_packed(const struct media_spans *media)
{
    for (size_t i = 0; media != NULL && i < media->len; i++)
        if (is_packed(&media->v[i])) return true;
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

static int32_t number_at(const struct entries *entries, uint32_t i, size_t at)
{
    int32_t value;
    memcpy(&value, entries->v + i * entries->bytes + at, sizeof value);
    return value;
}

static void set_number(const struct entries *entries, uint32_t i, int32_t value)
{
    memcpy(entries->v + i * entries->bytes, &value, sizeof value);
}

/* ---- To indices ---- */

/* A row of an image. */
struct row {
    int32_t y, x;
    uint32_t entry;
};

static int by_place(const void *a, const void *b)
{
    const struct row *p = a, *q = b;
    if (p->y != q->y) return p->y < q->y ? -1 : 1;
    return (p->x > q->x) - (p->x < q->x);
}

/* Numbers the rows of one image, which all have its position, line by line. False: some of them are missing. */
static bool number_image(const struct entries *entries, const struct media_span *span, int32_t position,
                         const int32_t *positions)
{
    struct row *rows = mem_alloc((size_t)span->n * sizeof *rows);
    int32_t n = 0;
    for (uint32_t i = 0; i < entries->n; i++) {
        if (positions[i] != position) continue;
        if (n < span->n) rows[n] = (struct row){number_at(entries, i, Y_AT), number_at(entries, i, X_AT), i};
        n++;
    }
    bool whole = n == span->n;
    if (whole) qsort(rows, (size_t)n, sizeof *rows, by_place);
    for (int32_t i = 0; whole && i < n; i++) set_number(entries, rows[i].entry, span->at + i);
    free(rows);
    return whole || n == 0;
}

bool llm_rows_to_indices(const struct llm_state_format *format, const struct media_spans *media, void *raw, size_t size)
{
    struct entries entries;
    if (!any_packed(media)) return true;
    if (!find_entries(format, raw, size, &entries)) return false;
    int32_t *positions = mem_alloc((entries.n + 1) * sizeof *positions);
    for (uint32_t i = 0; i < entries.n; i++) positions[i] = number_at(&entries, i, 0);
    for (uint32_t i = 0; i < entries.n; i++) set_number(&entries, i, media_spans_index(media, positions[i]));
    bool good = true;
    for (size_t i = 0; i < media->len && good; i++)
        if (is_packed(&media->v[i]))
            good = number_image(&entries, &media->v[i], media_spans_position(media, media->v[i].at), positions);
    free(positions);
    return good;
}

/* ---- To positions ---- */

const struct buf *llm_rows_to_positions(const struct llm_state_format *format, const struct media_spans *media,
                                        const struct buf *slice, struct buf *copy)
{
    struct entries entries;
    if (!any_packed(media)) return slice;
    buf_append(copy, slice->v, slice->len);
    if (!find_entries(format, copy->v, copy->len, &entries)) return NULL;
    for (uint32_t i = 0; i < entries.n; i++)
        set_number(&entries, i, media_spans_position(media, number_at(&entries, i, 0)));
    return copy;
}

/* ---- Checkpoints ---- */

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
