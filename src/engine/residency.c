/* What the cells hold: sequences that are computed on, resident ones, and what goes when there is no room.
 *
 * Cells that several sequences share are counted by llama.cpp: cutting one sequence frees only what nobody else
 * holds. So a shared prefix lives as long as its last owner, and nothing here needs to know who shares what. */
#include "engine/core.h"

#include "base/log.h"

/* Cells are given up in pieces of at least so many, so that a full pool does not ask for room at every tick. */
#define ROOM_STEP 256

void seq_keep(struct engine *engine, struct seq *seq, int32_t n)
{
    bool cut = n > 0 && llm_seq_cut(engine->context, seq->id, n);
    if (cut && llm_seq_end(engine->context, seq->id) == n) {
        seq->n_cells = n;
    } else {
        /* Recurrent states and sliding windows cannot always be cut, and a decode that broke off may have taken them
         * along: then everything is computed again. */
        llm_seq_clear(engine->context, seq->id);
        seq->n_cells = 0;
    }
    if (seq->n_exact > seq->n_cells) seq->n_exact = seq->n_cells;
    if (seq->slot != NULL && seq->slot->n_cached > seq->n_cells) seq->slot->n_cached = seq->n_cells;
}

static void settle(struct seq *seq)
{
    tokens_truncate(&seq->tokens, (size_t)seq->n_cells);
    seq->hash = tokens_short_hash(&seq->tokens);
}

void seq_retire(struct engine *engine, struct seq *seq)
{
    seq->slot = NULL;
    seq->last_used = clock_now(engine->clock);
    seq->last_used_unix_ms = clock_unix_ms();
    settle(seq);
}

void seq_verify_all(struct engine *engine)
{
    for (size_t i = 0; i < engine->n_seqs; i++) {
        struct seq *seq = &engine->seqs[i];
        if (llm_seq_end(engine->context, seq->id) == seq->n_cells) continue;
        seq_keep(engine, seq, seq->n_cells);
        if (seq->slot == NULL) settle(seq);
    }
}

static struct seq *least_recently_used(struct engine *engine, const struct seq *but_not)
{
    struct seq *oldest = NULL;
    for (size_t i = 0; i < engine->n_seqs; i++) {
        struct seq *seq = &engine->seqs[i];
        if (seq->slot != NULL || seq->n_cells == 0 || seq == but_not) continue;
        if (oldest == NULL || seq->last_used < oldest->last_used) oldest = seq;
    }
    return oldest;
}

static struct seq *find_free(struct engine *engine, const struct seq *but_not)
{
    for (size_t i = 0; i < engine->n_seqs; i++) {
        struct seq *seq = &engine->seqs[i];
        if (seq->slot == NULL && seq->n_cells == 0 && seq != but_not) return seq;
    }
    return NULL;
}

static void evict(struct engine *engine, struct seq *seq, int32_t keep)
{
    int32_t had = seq->n_cells;
    seq_keep(engine, seq, keep);
    settle(seq);
    log_event(LOG_INFO, "batch-engine", "resident-cells-dropped", log_int("seq", seq->id),
              log_int("tokens", had - seq->n_cells), log_int("kept", seq->n_cells));
}

struct seq *seq_take_free(struct engine *engine, const struct seq *but_not)
{
    struct seq *seq = find_free(engine, but_not);
    if (seq != NULL) return seq;
    seq = least_recently_used(engine, but_not);
    if (seq != NULL) evict(engine, seq, 0);
    return seq;
}

void seq_remember(struct engine *engine, const struct seq *seq)
{
    if (engine->cuts_anywhere || !engine->unified) return;
    struct seq *copy = seq_take_free(engine, seq);
    if (copy == NULL || !llm_seq_share(engine->context, seq->id, copy->id, seq->n_cells)) return;
    tokens_truncate(&copy->tokens, 0);
    tokens_append(&copy->tokens, seq->tokens.v, (size_t)seq->n_cells);
    copy->n_cells = seq->n_cells;
    copy->n_exact = seq->n_exact;
    copy->last_slot = seq->last_slot;
    seq_retire(engine, copy);
}

bool seq_make_room(struct engine *engine, int32_t rows)
{
    struct seq *oldest = least_recently_used(engine, NULL);
    if (oldest == NULL) return false;
    int32_t keep = oldest->n_cells - (rows > ROOM_STEP ? rows : ROOM_STEP);
    evict(engine, oldest, keep > 0 ? keep : 0);
    return true;
}
