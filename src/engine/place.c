/* Which slot a request gets, and how much of what lies in the slot's cells it can go on from. */
#include "engine/core.h"

#include "base/log.h"

#include <stdlib.h>

/* How many leading tokens of the prompt the slot's cells hold already. The last token of the prompt is always
 * computed: its logits give the first token of the reply. */
static int32_t usable_prefix(const struct engine *engine, const struct slot *slot, const struct job *job)
{
    if (!job->cache_prompt) return 0;
    int32_t n = (int32_t)tokens_common_prefix(&slot->tokens, &job->prompt);
    if (n >= (int32_t)job->prompt.len) n = (int32_t)job->prompt.len - 1;
    if (!engine->deterministic) return n;
    /* A cold run would compute the rest of a piece together with what is cached of it, and what was generated
     * was computed row by row: only whole pieces of prompts are the same bit for bit. */
    if (n > slot->n_exact) n = slot->n_exact;
    return n / PLAN_PIECE * PLAN_PIECE;
}

/* Tokens that taking this slot costs: those to compute now, and those lost that somebody may come back for. */
static int32_t cost(const struct engine *engine, const struct slot *slot, const struct job *job)
{
    int32_t prefix = usable_prefix(engine, slot, job);
    return (int32_t)job->prompt.len - prefix + slot->n_cells - prefix;
}

/* The idle slot that costs least; of equal ones, the one unused for longest. NULL if all are busy. */
static struct slot *choose(struct engine *engine, const struct job *job)
{
    struct slot *best = NULL;
    int32_t best_cost = 0;
    for (size_t i = 0; i < engine->n_slots; i++) {
        struct slot *slot = &engine->slots[i];
        if (slot->state != SLOT_IDLE) continue;
        int32_t c = cost(engine, slot, job);
        if (best == NULL || c < best_cost || (c == best_cost && slot->last_used < best->last_used)) {
            best = slot;
            best_cost = c;
        }
    }
    return best;
}

static void log_started(const struct engine *engine, const struct slot *slot)
{
    log_event(LOG_INFO, "batch-engine", "slot-started", log_str("model", engine->name), log_int("slot", slot->id),
              log_int("seq", slot->seq), log_str("id", slot->job->id), log_int("prompt_tokens", slot->n_prompt),
              log_int("cached_tokens", slot->n_cached));
}

static void start(struct engine *engine, struct slot *slot, struct job *job)
{
    slot_keep(engine, slot, usable_prefix(engine, slot, job));
    tokens_truncate(&slot->tokens, 0);
    tokens_append(&slot->tokens, job->prompt.v, job->prompt.len);
    slot->job = job;
    slot->state = SLOT_PREFILL;
    slot->n_prompt = (int32_t)job->prompt.len;
    slot->n_cached = slot->n_cells;
    slot->n_predicted = 0;
    int32_t room = engine->window - slot->n_prompt;
    slot->max_tokens = job->max_tokens < room ? job->max_tokens : room;
    slot->sampler = llm_sampler_open(engine->model, &job->sampling, &job->prompt);
    reply_init(&slot->reply, job->stop, job->n_stop);
    slot->started_at = clock_now(engine->clock);
    histogram_observe(&engine->stats.queue_wait, &histogram_seconds,
                      clock_to_ms(slot->started_at - job->submitted_at) / 1e3);
    metric_add(&engine->stats.cached_tokens, slot->n_cached);
    metric_add(&engine->stats.slots_busy, 1);
    log_started(engine, slot);
    job_send_started(job, &(hearth_result){.slot = slot->id,
                                           .cache_n = slot->n_cached,
                                           .prompt_n = slot->n_prompt - slot->n_cached,
                                           .queue_ms = clock_to_ms(slot->started_at - job->submitted_at)});
}

void place_jobs(struct engine *engine)
{
    while (engine->waiting.first != NULL) {
        struct slot *slot = choose(engine, engine->waiting.first);
        if (slot == NULL) break;
        start(engine, slot, job_list_take_first(&engine->waiting));
    }
    atomic_store_explicit(&engine->stats.jobs_waiting, (int64_t)engine->waiting.len, memory_order_relaxed);
}
