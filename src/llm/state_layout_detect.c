/* Learns the layout of a context's states from one of them. What can be anything is read off; what must be as it is
 * decides whether the layout is known at all. No state; any thread. */
#include "llm/state_layout.h"

#include "base/memory.h"

#include <ggml.h>
#include <stdlib.h>
#include <string.h>

/* Limits that no model comes near, and the two sizes of an entry in a table of cells. */
enum { MAX_LAYERS = 4096, CELL_BYTES = 12, PLACE_BYTES = 12 };

static const uint64_t MAX_ROW = 1 << 30;

/* The state of the first n tokens of sequence 0. Reading beyond its bytes gives zeros and is remembered. */
struct lesson {
    const uint8_t *at;
    size_t left;
    int32_t n;
    bool ended;
};

static void skip(struct lesson *lesson, uint64_t size)
{
    lesson->ended = lesson->ended || size > lesson->left;
    if (lesson->ended) return;
    lesson->at += size;
    lesson->left -= (size_t)size;
}

static uint64_t number(struct lesson *lesson, size_t size)
{
    const uint8_t *at = lesson->at;
    uint64_t value = 0;
    skip(lesson, size);
    if (!lesson->ended) memcpy(&value, at, size);
    return value;
}

static bool learn_table(struct lesson *lesson, struct llm_kv *kv, bool transposed, uint64_t n_cells)
{
    struct llm_table *table = &kv->tables[kv->n_tables++];
    *table = (struct llm_table){.type = (int32_t)number(lesson, 4), .before = kv->row_bytes};
    if (transposed) {
        table->element = (uint32_t)number(lesson, 4);
        if (table->element == 0) return false;
        table->row_bytes = table->element * number(lesson, 4);
    } else {
        table->row_bytes = number(lesson, 8);
    }
    if (table->row_bytes > MAX_ROW || table->type < 0 || table->type >= GGML_TYPE_COUNT) return false;
    kv->row_bytes += table->row_bytes;
    skip(lesson, n_cells * table->row_bytes);
    return !lesson->ended;
}

static bool learn_tables(struct lesson *lesson, struct llm_kv *kv, bool with_values, uint64_t n_cells)
{
    uint64_t transposed = number(lesson, 4);
    kv->n_keys = (uint32_t)number(lesson, 4);
    if (transposed > 1 || kv->n_keys > MAX_LAYERS) return false;
    kv->transposed = transposed == 1;
    kv->tables = mem_alloc((2 * (size_t)kv->n_keys + 1) * sizeof *kv->tables);
    for (uint32_t i = 0; i < kv->n_keys; i++)
        if (!learn_table(lesson, kv, false, n_cells)) return false;
    for (uint32_t i = 0; i < kv->n_keys && with_values; i++)
        if (!learn_table(lesson, kv, kv->transposed, n_cells)) return false;
    return true;
}

static bool learn_cells(struct lesson *lesson, size_t cell_bytes, uint64_t n_cells)
{
    for (uint64_t i = 0; i < n_cells; i++) {
        if (number(lesson, 4) >= (uint64_t)lesson->n || number(lesson, 4) != 1) return false;
        skip(lesson, cell_bytes - CELL_BYTES);
        if (number(lesson, 4) != 0) return false;
    }
    return !lesson->ended;
}

static bool learn_kv(struct lesson *lesson, struct llm_state_format *format, struct llm_kv *kv, bool with_values)
{
    bool learnt = false;
    if (number(lesson, 4) != format->n_stream) return false;
    for (uint32_t i = 0; i < format->n_stream; i++) {
        uint64_t n_cells = number(lesson, 4);
        if (n_cells == 0) continue;
        if (learnt || n_cells > (uint64_t)lesson->n || !learn_cells(lesson, format->cell_bytes, n_cells)) return false;
        if (!learn_tables(lesson, kv, with_values, n_cells)) return false;
        learnt = true;
    }
    return learnt;
}

/* One state after the other: half of them first ones, half second ones, in the order of their layers. */
static bool learn_states(struct llm_state_format *format)
{
    struct lesson lesson = {.at = (const uint8_t *)format->state.v, .left = format->state.len};
    struct llm_regions *states = &format->states;
    skip(&lesson, 3 * 4);
    uint64_t transposed = number(&lesson, 4), n_layers = number(&lesson, 4);
    if (transposed != 0 || n_layers > MAX_LAYERS) return false;
    while (lesson.left > 0 && !lesson.ended) {
        uint16_t type = (uint16_t)number(&lesson, 4);
        uint64_t size = number(&lesson, 8);
        states->v = mem_grow(states->v, states->len + 1, sizeof *states->v);
        states->v[states->len++] = (struct llm_region){
            .type = type, .rows = 1, .row_bytes = size, .size = size, .offset = format->state.len - lesson.left};
        skip(&lesson, size);
    }
    for (size_t i = 0; i < states->len; i++) {
        bool second = i >= states->len / 2;
        states->v[i].what = second ? 'S' : 'R';
        states->v[i].layer = (uint16_t)(second ? i - states->len / 2 : i);
    }
    return !lesson.ended && states->len > 0 && states->len % 2 == 0;
}

/* What cannot be told apart is one state: from the end of its one cell on. */
static void learn_recurrent(struct llm_state_format *format, struct lesson *lesson)
{
    enum { CELL_END = 12 };
    buf_clear(&format->state);
    buf_append(&format->state, lesson->at, lesson->left);
    skip(lesson, lesson->left);
    if (learn_states(format) || format->state.len <= CELL_END) return;
    uint64_t size = format->state.len - CELL_END;
    format->states.v = mem_grow(format->states.v, 1, sizeof *format->states.v);
    format->states.v[0] =
        (struct llm_region){.what = 'M', .rows = 1, .row_bytes = size, .offset = CELL_END, .size = size};
    format->states.len = 1;
}

static void forget(struct llm_state_format *format)
{
    for (size_t i = 0; i < format->n_kv; i++) {
        free(format->kv[i].tables);
        format->kv[i] = (struct llm_kv){0};
    }
    format->states.len = 0;
}

/* Two things cannot be read off: whether cells tell their place, and whether there are values. */
static bool learn_as(struct llm_state_format *format, const struct buf *whole, int32_t n, bool with_places,
                     bool with_values)
{
    struct lesson lesson = {.at = (const uint8_t *)whole->v, .left = whole->len, .n = n};
    struct llm_parsed parsed;
    forget(format);
    format->cell_bytes = CELL_BYTES + (with_places ? PLACE_BYTES : 0);
    format->magic = (uint32_t)number(&lesson, 4);
    skip(&lesson, 4);
    for (size_t i = 0; i < format->n_kv; i++)
        if (!learn_kv(&lesson, format, &format->kv[i], with_values)) return false;
    if (format->recurrent) learn_recurrent(format, &lesson);
    return llm_parse(format, LLM_STATE_SNAPSHOT, whole->v, whole->len, &parsed) &&
           (!format->recurrent || (parsed.state != NULL && llm_state_pos(parsed.state) == n - 1));
}

bool llm_learn(struct llm_state_format *format, const struct buf *whole, int32_t n)
{
    for (int way = 0; way < 4; way++)
        if (learn_as(format, whole, n, (way & 1) != 0, (way & 2) == 0)) return true;
    return false;
}
