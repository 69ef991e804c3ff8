/* Moves rows down in the pool of cells. Attention looks over all cells up to the highest one in use; when conversations
 * have left, the free cells below those that stay cost as much as theirs did (decode_cost.h). Each decode call is
 * charged with that, but for the cells that running streams are about to fill. Once the sum is what moving the rows
 * above would take, they are moved into the free cells, a slice between two ticks. As with idle conversations (idle.c),
 * it never costs more than twice what the best choice would have. Prompts that are being computed are charged in
 * advance.
 *
 * Only rows that their sequence shares with no other one are moved, since a moved row is a copy. Runs on the engine's
 * thread. */
#include "engine/core.h"

#include "base/log.h"

/* How long the engine's thread may move rows between two ticks, in nanoseconds: as a part of the longest gap that a
 * stream may have. */
#define PART_OF_GAP 16

/* A slice has at least so many rows, and the first one no more: then its time per row is known. */
#define ROWS_MIN 16

/* Nothing is moved faster than this, in bytes a nanosecond. */
#define FASTEST_MOVE 10.0

static double row_ns(const struct engine *engine)
{
    double least = (double)llm_state_format_row_bytes(engine->format) / FASTEST_MOVE;
    return engine->compaction.row_ns > least ? engine->compaction.row_ns : least;
}

/* Where the cells in use could end: streams that run together leave a part of a block free each, and fill it. */
static int32_t lowest_top(const struct engine *engine, const struct llm_cell_map *map)
{
    int32_t n_streams = (int32_t)metric_get(&engine->stats->slots_busy);
    return map->used + (n_streams > 1 ? LLM_CELL_BLOCK * n_streams : 0);
}

void compaction_observe(struct engine *engine, const struct llm_cell_map *map, int32_t n_tokens)
{
    assert_thread(&engine->owner);
    int32_t free = map->top - lowest_top(engine, map);
    if (free > 0) engine->compaction.paid_ns += decode_cost_of_idle(&engine->decode_cost, free, 1, n_tokens);
}

/* Moves one slice of the sequence's own rows that lie at `limit` or above. False: it has none. */
static bool move_slice(struct engine *engine, struct seq *seq, int32_t limit)
{
    struct llm_positions above = llm_seq_above(engine->context, seq->id, limit);
    double fit = engine->tick_budget.max_ns / PART_OF_GAP / row_ns(engine);
    int32_t shared = sharing_most(&engine->sharing, seq->id), most = ROWS_MIN;
    if (engine->compaction.row_ns > 0 && fit >= ROWS_MIN) most = fit < engine->n_batch ? (int32_t)fit : engine->n_batch;
    int32_t from = above.from > shared ? above.from : shared, to = above.to - from > most ? from + most : above.to;
    if (from >= to) return false;
    int64_t began_at = clock_now(engine->clock);
    bool moved = llm_rows_move(engine->context, engine->format, seq->id, from, to);
    double ns = (double)(clock_now(engine->clock) - began_at) / (to - from);
    engine_blend(&engine->compaction.row_ns, ns);
    if (moved) {
        metric_add(&engine->stats->moved_rows, to - from);
        return true;
    }
    log_event(LOG_WARN, "imc", "cells cannot be moved: they are computed again", log_int("seq", seq->id),
              log_int("from", from), log_int("tokens", to - from));
    seq_verify_all(engine);
    return false;
}

void compaction_step(struct engine *engine)
{
    assert_thread(&engine->owner);
    struct llm_cell_map map;
    if (engine->policy.idle != ENGINE_IDLE_PRICED || engine->format == NULL) return;
    if (!llm_cells_map(engine->context, &map)) return;
    int32_t limit = lowest_top(engine, &map);
    if (map.top <= limit) {
        engine->compaction.paid_ns = 0; /* for what is free below was paid */
        return;
    }
    double to_come = idle_tokens_to_come(engine), calls = to_come / engine->n_ubatch;
    double cost =
        engine->compaction.paid_ns + decode_cost_of_idle(&engine->decode_cost, map.top - limit, calls, to_come);
    if (cost < row_ns(engine)) return; /* not even one row: they are not counted */
    if (cost < row_ns(engine) * llm_cells_above(engine->context, limit)) return;
    bool moved = false;
    for (size_t i = 0; i < engine->n_seqs && !moved; i++) {
        struct seq *seq = &engine->seqs[i];
        bool is_filled = seq->state == SEQ_RUNNING && slot_is_fetching(seq->slot);
        moved = seq->n_cells > 0 && !is_filled && move_slice(engine, seq, limit);
    }
    if (!moved) engine->compaction.paid_ns = 0; /* the rest is shared */
}
