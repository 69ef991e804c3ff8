/* Restores cells from the store. The store's threads read slabs into memory; between two ticks the engine's thread
 * copies a bounded number of bytes of them into the slot's sequence. Until all is there, or no more will come, the slot
 * has no tokens in any batch; then it computes the rest of its prompt.
 *
 * KV rows are loaded in order, and count as cells at once. A model with recurrent or SWA state has its checkpoint
 * loaded last, and until then the sequence has no cells that anybody could reuse. */
#include "engine/fetch.h"
#include "engine/core.h"
#include "engine/evict.h"
#include "engine/reuse_plan.h"

#include "base/log.h"

/* Bytes copied in between two ticks at most: some 3 ms on a CPU while a reply is being streamed. */
#define SLICE_BYTES      (16 << 20)
#define SLICE_BYTES_IDLE (256 << 20)

void fetch_release(struct job *job)
{
    store_hit_close(job->hit);
    job->hit = NULL;
}

/* Where rows are joined before they are loaded, a whole conversation would be in memory for each job that waits. */
void fetch_ahead(struct engine *engine, struct job *job)
{
    assert_thread(&engine->owner);
    bool waits = job->hit == NULL || engine->waiting.len >= engine->n_slots;
    if (waits || !llm_state_format_appends(engine->format)) return;
    struct placement p = find_placement(engine, job, job->run, true);
    if (p.how == PLACE_FETCH) store_fetch(job->hit, p.n);
}

void fetch_begin(struct engine *engine, struct slot *slot, int32_t n)
{
    assert_thread(&engine->owner);
    struct job *job = slot->job;
    slot->fetching = (struct fetching){.n = n, .began_at = clock_now(engine->clock)};
    /* Other slots may wait for these cells; where cells cannot be cut, for all of them. */
    if (!engine->policy.cuts_anywhere) job_add_checkpoint(job, n);
    if (!store_is_fetching(job->hit)) store_fetch(job->hit, n);
    store_skip(job->hit, slot->seq->n_cells);
    slot_enter(slot, SLOT_FETCHES);
}

void fetch_stop(struct engine *engine, struct slot *slot)
{
    assert_thread(&engine->owner);
    struct seq *seq = slot->seq;
    struct run *run = slot->run;
    struct job *job = slot->job;
    if (!slot_is_fetching(slot)) return;
    double took_ms = clock_to_ms(clock_now(engine->clock) - slot->fetching.began_at);
    if (seq->n_cells == 0) seq_clear(engine, seq); /* KV rows without their checkpoint */
    if (media_spans_whole(&seq->media, seq->n_cells) != seq->n_cells) seq_cut_to(engine, seq, seq->n_cells);
    /* Stored cells of a deterministic run were computed in whole prefill chunks. */
    if (engine->deterministic) seq->n_exact = prefill_chunk_end(&seq->media, seq->n_cells);
    run->restore_ms += took_ms;
    double rest_ns = took_ms * 1e6 - engine->load_ns * seq->n_cells;
    if (rest_ns > 0) engine_blend(&engine->fetch_ns, rest_ns);
    if (run->n_predicted == 0) {
        metric_add(&engine->stats->cached_tokens, seq->n_cells - run->n_cached); /* shared tokens were counted before */
        run->n_cached = seq->n_cells;
    }
    bool whole = seq->n_cells == slot->fetching.n;
    log_event(whole ? LOG_INFO : LOG_WARN, "store", whole ? "restored" : "restored in part", log_str("id", job->id),
              log_int("seq", seq->id), log_int("tokens", seq->n_cells), log_int("of_tokens", slot->fetching.n),
              log_str("tier", store_tier_names[store_hit_tier(job->hit)]), log_num("took_ms", took_ms));
    slot->fetching = (struct fetching){0};
    slot_enter(slot, SLOT_PREFILLS);
    store_hit_count(job->hit, seq->n_cells);
    fetch_release(job);
    /* Keeps cells that cannot be cut, as a checkpoint; a system prompt, so that the next request need not fetch it. */
    bool is_system =
        engine->policy.keeps_system_prompts && job->n_checkpoints > 0 && job->checkpoints[0] == seq->n_cells;
    if (seq->n_cells > 0 && (is_system || !engine->policy.cuts_anywhere)) seq_save_checkpoint(engine, seq);
}

/* ---- Slices from the store ---- */

enum loading { LOAD_DONE, LOAD_LATER, LOAD_FAILED };

static enum loading load_rows(struct engine *engine, struct seq *seq, const struct store_piece *piece)
{
    /* The first rows may be there already, shared with another sequence. */
    int32_t from = piece->from > seq->n_cells ? piece->from : seq->n_cells;
    struct llm_state_slice rows = {.bytes = piece->bytes, .size = piece->size, .from = from, .to = piece->to};
    if (from >= piece->to) return LOAD_DONE;
    if (!llm_state_format_appends(engine->format)) {
        bool all = llm_rows_load_all(engine->context, engine->format, seq->id, piece->bytes, piece->size, piece->to);
        return all ? LOAD_DONE : LOAD_FAILED;
    }
    enum llm_loaded loaded;
    enum evict_outcome evicted = EVICT_DONE;
    int64_t began_at;
    do {
        began_at = clock_now(engine->clock);
        loaded = llm_rows_load(engine->context, engine->format, seq->id, &rows);
    } while (evict_for_load(engine, loaded, piece->to - from, &evicted));
    if (loaded == LLM_LOADED)
        engine_blend(&engine->load_ns, (double)(clock_now(engine->clock) - began_at) / (rows.to - rows.from));
    return loaded == LLM_LOADED ? LOAD_DONE : evicted == EVICT_PENDING ? LOAD_LATER : LOAD_FAILED;
}

/* llama.cpp does not say how many cells a sliding window needs: evicts one step at a time until the load fits. */
static enum loading load_checkpoint(struct engine *engine, struct seq *seq, const struct store_piece *piece)
{
    enum llm_loaded loaded;
    enum evict_outcome evicted = EVICT_DONE;
    do loaded = llm_checkpoint_load(engine->context, engine->format, seq->id, piece->bytes, piece->size, piece->to);
    while (evict_for_load(engine, loaded, 1, &evicted));
    if (loaded == LLM_NO_ROOM && evicted == EVICT_PENDING) return LOAD_LATER;
    seq->n_cells = loaded == LLM_LOADED ? piece->to : 0;
    return loaded == LLM_LOADED ? LOAD_DONE : LOAD_FAILED;
}

static enum loading load(struct engine *engine, struct slot *slot, const struct store_piece *piece)
{
    struct seq *seq = slot->seq;
    if (piece->kind == SLAB_STATE) return load_checkpoint(engine, seq, piece);
    enum loading loading = load_rows(engine, seq, piece);
    if (loading == LOAD_DONE && !llm_state_format_has_checkpoints(engine->format)) seq->n_cells = piece->to;
    return loading;
}

/* Loads what the store has read for the slot, within the turn. Returns whether anything was loaded. */
static bool take_some(struct engine *engine, struct slot *slot, struct copy_turn *turn)
{
    struct fetching *fetching = &slot->fetching;
    bool any = false;
    while (!copy_turn_is_over(turn, clock_now(engine->clock))) {
        enum store_next next = STORE_PIECE; /* the one that found no room before */
        if (!fetching->piece_held) next = store_next_piece(slot->job->hit, &fetching->piece);
        fetching->piece_held = false;
        if (next == STORE_PENDING) return any;
        enum loading loading = next == STORE_PIECE ? load(engine, slot, &fetching->piece) : LOAD_FAILED;
        if (loading == LOAD_LATER) {
            fetching->piece_held = true;
            slot_enter(slot, SLOT_FETCH_AWAITS_ROOM);
            return any;
        }
        any = true;
        if (loading == LOAD_FAILED) {
            fetch_stop(engine, slot);
            slot_tell_progress(engine, slot);
            return true;
        }
        copy_turn_take(turn, fetching->piece.size);
    }
    return any;
}

bool fetch_step(struct engine *engine)
{
    assert_thread(&engine->owner);
    bool any = false, streams = false;
    for (size_t i = 0; i < engine->n_slots; i++)
        streams = streams || slot_state_shown(engine->slots[i].state) == HEARTH_SLOT_GENERATE;
    struct copy_turn turn = engine_copy_turn(engine, streams ? SLICE_BYTES : SLICE_BYTES_IDLE, streams);
    for (size_t i = 0; i < engine->n_slots; i++) {
        struct slot *slot = &engine->slots[i];
        if (slot->state == SLOT_FETCHES) any = take_some(engine, slot, &turn) || any;
    }
    return any;
}
