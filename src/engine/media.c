/* Media in prompts: when their rows are computed, and how. A prompt with an image or a sound is tokens, then rows, then
 * tokens; a decode call of rows holds nothing else. Rows are encoded on another thread while the text before them is
 * computed. A slot that has come to rows which are not there yet has no share in any tick. The thread that encodes them
 * pokes the engine. Runs on the engine's thread. */
#include "engine/core.h"
#include "engine/tick.h"

#include "base/error.h"
#include "base/log.h"
#include "llm/projector.h"

/* Media that are encoded ahead, behind the one that comes next. */
#define AHEAD 1

/* The first medium that is not whole in the slot's cells; their number: there is none. */
static size_t next_medium(const struct slot *slot)
{
    const struct media_spans *media = &slot->job->media.spans;
    size_t i = 0;
    while (i < media->len && media->v[i].at + media->v[i].n <= slot->seq->n_cells) i++;
    return i;
}

static enum job_rows ask_for_rows(const struct slot *slot, size_t i, struct job_span_rows *rows, hearth_error *error)
{
    const struct job_media *media = &slot->job->media;
    return media->rows(media->ud, i, rows, error);
}

static void step(struct engine *engine, struct slot *slot)
{
    const struct media_spans *media = &slot->job->media.spans;
    struct job_span_rows rows;
    hearth_error error;
    size_t first = next_medium(slot);
    bool waits = false;
    for (size_t i = first; i < media->len && i <= first + AHEAD; i++) {
        enum job_rows found = ask_for_rows(slot, i, &rows, &error);
        bool comes_now = slot->seq->n_cells >= media->v[i].at;
        waits = waits || (comes_now && found == JOB_ROWS_PENDING);
        if (!comes_now || found != JOB_ROWS_FAILED) continue;
        finish_failed(engine, slot, &error);
        return;
    }
    if (waits && slot->state == SLOT_PREFILLS) slot_enter(slot, SLOT_PREFILL_AWAITS_ROWS);
    if (waits && slot->state == SLOT_GENERATES) slot_enter(slot, SLOT_REPLY_AWAITS_ROWS);
    if (!waits && slot->state == SLOT_PREFILL_AWAITS_ROWS) slot_enter(slot, SLOT_PREFILLS);
    if (!waits && slot->state == SLOT_REPLY_AWAITS_ROWS) slot_enter(slot, SLOT_GENERATES);
}

void media_step(struct engine *engine)
{
    assert_thread(&engine->owner);
    for (size_t i = 0; i < engine->n_slots; i++) {
        struct slot *slot = &engine->slots[i];
        bool looks =
            slot_computes(slot) || slot->state == SLOT_PREFILL_AWAITS_ROWS || slot->state == SLOT_REPLY_AWAITS_ROWS;
        if (looks && slot->job->media.spans.len > 0) step(engine, slot);
    }
}

bool media_need(const struct slot *slot, struct plan_need *need, int32_t *to)
{
    const struct media_spans *media = &slot->job->media.spans;
    size_t i = next_medium(slot);
    if (i == media->len) return false;
    const struct media_span *span = &media->v[i];
    if (need->from < span->at) {
        if (*to > span->at) *to = span->at;
        return false;
    }
    need->to = span->at + span->n;
    need->rows = true;
    need->at_once = !span->causal;
    return true;
}

enum llm_decoded media_decode(struct engine *engine, const struct plan_share *share)
{
    assert_thread(&engine->owner);
    const struct slot *slot = &engine->slots[share->slot];
    size_t i = next_medium(slot);
    const struct media_span *span = &slot->job->media.spans.v[i];
    struct job_span_rows rows;
    hearth_error error;
    if (ask_for_rows(slot, i, &rows, &error) != JOB_ROWS_READY) return LLM_REFUSED;
    int32_t skip = share->from - span->at;
    struct llm_media_rows batch = {.seq = slot->seq->id,
                                   .from = share->from,
                                   .n = share->to - share->from,
                                   .rows = rows.v + (size_t)skip * rows.width,
                                   .places = rows.places == NULL ? NULL : rows.places + skip,
                                   .causal = span->causal,
                                   .logits = share->to == (int32_t)slot->seq->tokens.len};
    return llm_decode_rows(engine->context, &batch);
}

void media_computed(const struct slot *slot, const struct plan_share *share)
{
    const struct job_media *media = &slot->job->media;
    for (size_t i = 0; i < media->spans.len; i++) {
        const struct media_span *span = &media->spans.v[i];
        int32_t end = span->at + span->n;
        if (end <= share->from || end > share->to) continue;
        media->computed(media->ud, i);
        log_event(LOG_DEBUG, "imc-media-cache", span->n_pos == span->n ? "decoded-media" : "decoded-image-mrope",
                  log_str("id", slot->job->id), log_int("seq", slot->seq->id), log_int("from", span->at),
                  log_int("tokens", span->n), log_int("positions", span->n_pos));
    }
}
