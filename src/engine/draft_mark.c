/* Takes back what a wrong draft has left in the cells. Cells are cut; a recurrent state cannot be. So where a model has
 * one, the state is copied before the call. After a wrong draft the sequence goes back to the copy, and computes the
 * tokens that were right again, together with the next one. Nothing is sampled twice. */
#include "engine/core.h"
#include "engine/draft.h"

#include "base/log.h"
#include "base/memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static void note_time(struct engine *engine, double *known, int64_t began_at)
{
    int64_t ns = clock_now(engine->clock) - began_at;
    engine->drafting.own_ns += ns;
    engine_blend(known, (double)ns);
}

static bool copy_state(struct engine *engine, struct slot *slot)
{
    struct draft_mark *mark = &slot->mark;
    struct seq *seq = slot->seq;
    if (mark->n == seq->n_cells) return true; /* the call is made once more, with less */
    size_t size = llm_seq_state_size(engine->context, seq->id, LLM_STATE_CHECKPOINT);
    if (size > mark->cap) {
        free(mark->bytes);
        mark->bytes = mem_alloc(size);
        memset(mark->bytes, 1, size); /* memory is slow when it is touched first */
        mark->cap = size;
    }
    int64_t began_at = clock_now(engine->clock);
    mark->size = size > 0 ? llm_seq_save(engine->context, seq->id, LLM_STATE_CHECKPOINT, mark->bytes, size) : 0;
    mark->n = mark->size > 0 ? seq->n_cells : 0;
    note_time(engine, &engine->drafting.mark_ns, began_at);
    return mark->n > 0;
}

void draft_mark(struct engine *engine, struct plan_share *shares, size_t n)
{
    for (size_t i = 0; i < n && engine->drafting.marks; i++) {
        if (shares[i].drafted == 0 || copy_state(engine, &engine->slots[shares[i].slot])) continue;
        engine->plan.n_tokens -= shares[i].drafted;
        engine->plan.n_drafted -= shares[i].drafted;
        shares[i].drafted = 0;
        draft_dropped(engine, false);
    }
}

void draft_cut(struct engine *engine, struct slot *slot, int32_t n)
{
    struct seq *seq = slot->seq;
    const struct draft_mark *mark = &slot->mark;
    int64_t began_at = clock_now(engine->clock);
    if (!engine->drafting.marks) {
        seq_cut_to(engine, seq, n);
    } else if (llm_seq_rewind(engine->context, seq->id, mark->bytes, mark->size, mark->n) == LLM_LOADED) {
        note_time(engine, &engine->drafting.back_ns, began_at);
        seq_cut_to(engine, seq, mark->n);
        slot->run->draft.back_to = seq->n_cells;
    } else {
        seq_cut_to(engine, seq, 0);
    }
    if (seq->n_cells > 0) return;
    log_event(LOG_WARN, "batch-engine", "draft-not-cut", log_str("model", engine->name), log_int("slot", slot->id),
              log_str("id", slot->job->id));
    slot->job->draft_max = 0;
}

static bool went_back(const struct slot *slot)
{
    return slot->run->draft.back_to > 0 && slot->run->draft.back_to == slot->seq->n_cells;
}

/* Where its cells are dropped nothing is missing. */
static bool is_incomplete(const struct engine *engine, const struct slot *slot)
{
    return slot->run->ending.how != GOES_ON && went_back(slot) && keeps_cells(engine, slot->job);
}

void draft_complete(struct engine *engine, const struct plan_share *shares, size_t n)
{
    int32_t n_tokens = 0;
    for (size_t i = 0; i < n && engine->drafting.marks; i++) {
        const struct slot *slot = &engine->slots[shares[i].slot];
        const struct seq *seq = slot->seq;
        for (int32_t pos = seq->n_cells; is_incomplete(engine, slot) && pos < (int32_t)seq->tokens.len; pos++)
            engine->batch[n_tokens++] =
                (struct llm_batch_token){.token = seq->tokens.v[pos], .pos = pos, .seq = seq->id};
    }
    assert(n_tokens <= engine->n_batch); /* fewer than the call had */
    if (n_tokens == 0) return;
    int64_t began_at = clock_now(engine->clock);
    bool decoded = llm_decode(engine->context, engine->batch, n_tokens) == LLM_DECODED;
    engine->drafting.own_ns += clock_now(engine->clock) - began_at;
    for (size_t i = 0; i < n && decoded; i++) {
        const struct slot *slot = &engine->slots[shares[i].slot];
        if (is_incomplete(engine, slot)) slot->seq->n_cells = (int32_t)slot->seq->tokens.len;
    }
    if (!decoded) seq_verify_all(engine);
}

int32_t draft_again(const struct slot *slot)
{
    const struct seq *seq = slot->seq;
    return went_back(slot) ? (int32_t)seq->tokens.len - seq->n_cells - 1 : 0;
}

void draft_mark_release(struct draft_mark *mark)
{
    free(mark->bytes);
    *mark = (struct draft_mark){0};
}
