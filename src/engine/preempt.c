/* What becomes of a job that has waited for `cache_slot_timeout`: another request makes way for it, or, when every slot
 * is computing a prompt, the server says that it is busy.
 *
 * In two steps. One round of the loop decides who makes way and changes nothing else; the next one carries it out
 * before anything is planned, so that the victim has no rows in any batch. In between either may end: then nothing
 * happens.
 *
 * The victim is parked: its cells are kept, in their sequence or as a state outside the context, it waits in line like
 * everybody else, and goes on with the next token. Its client notices a pause. */
#include "engine/core.h"

#include "base/error.h"
#include "base/log.h"

/* ---- Every slot computes a prompt ---- */

static bool all_compute_prompts(const struct engine *engine)
{
    for (size_t i = 0; i < engine->n_slots; i++)
        if (engine->slots[i].state == SLOT_IDLE || engine->slots[i].state == SLOT_GENERATE) return false;
    return true;
}

static bool is_busy_for_too_long(const struct engine *engine, const struct job *job, int64_t now)
{
    return job->run == NULL && job->blocked_at != 0 && now - job->blocked_at >= engine->slot_timeout_ns;
}

static void fail_busy(struct engine *engine, struct job *job)
{
    hearth_error error;
    error_set(&error, HEARTH_BUSY, "server busy processing other requests, try again shortly");
    log_event(LOG_WARN, "imc", "server busy", log_str("id", job->id));
    finish_waiting(engine, job, &error);
}

/* The time that prompts hold up everybody has its own limit and does not count against the other. */
static void note_block(struct engine *engine, bool blocked, int64_t now)
{
    for (struct job *job = engine->waiting.first; job != NULL; job = job->next) {
        if (blocked && job->blocked_at == 0) {
            job->blocked_at = now;
            log_event(LOG_INFO, "imc", "all slots pending, waiting for slot", log_str("id", job->id));
        } else if (!blocked && job->blocked_at != 0) {
            job->queued_at += now - job->blocked_at;
            job->blocked_at = 0;
            log_event(LOG_INFO, "imc", "slot became available, retrying", log_str("id", job->id));
        }
    }
}

static void give_up_on_busy(struct engine *engine, int64_t now)
{
    struct job_list kept = {0};
    struct job *job;
    while ((job = job_list_take_first(&engine->waiting)) != NULL) {
        if (is_busy_for_too_long(engine, job, now))
            fail_busy(engine, job);
        else
            job_list_append(&kept, job);
    }
    engine->waiting = kept;
}

/* ---- Choosing ---- */

/* In a layout where its cells will be needed by the next request, a victim must be kept outside the context. */
static bool can_make_way(const struct engine *engine, const struct slot *slot)
{
    if (slot->state != SLOT_GENERATE || slot->deferred) return false;
    if (engine->unified || engine->preempt_fails) return true;
    if (engine->deterministic && !engine->exact_states) return false;
    return llm_seq_state_size(engine->context, slot->seq->id, LLM_STATE_WHOLE) <= states_room(engine->states);
}

/* The slot that computes on the job's own conversation. */
static struct slot *holder_of(struct engine *engine, const struct job *job)
{
    if (job->conversation.stable_end == 0 || !job->cache_prompt) return NULL;
    for (size_t i = 0; i < engine->n_slots; i++) {
        struct slot *slot = &engine->slots[i];
        if (slot->seq == NULL || slot->seq->scope != job->scope || !slot->job->cache_prompt) continue;
        size_t common = tokens_common_prefix(&slot->seq->tokens, &job->prompt);
        if ((int32_t)common >= job->conversation.stable_end) return slot;
    }
    return NULL;
}

static struct slot *longest_running(struct engine *engine)
{
    struct slot *longest = NULL;
    for (size_t i = 0; i < engine->n_slots; i++) {
        struct slot *slot = &engine->slots[i];
        if (!can_make_way(engine, slot)) continue;
        if (longest == NULL || slot->taken_at < longest->taken_at) longest = slot;
    }
    return longest;
}

static struct slot *victim_for(struct engine *engine, const struct job *job)
{
    struct slot *holder = holder_of(engine, job);
    return holder != NULL && can_make_way(engine, holder) ? holder : longest_running(engine);
}

static void schedule(struct engine *engine, struct slot *victim, const struct job *job, int64_t waited)
{
    engine->preemption = (struct preemption){victim, victim->job, job, waited};
    log_event(LOG_INFO, "batch-engine", "preempting-slot", log_int("slot", victim->id),
              log_str("victim_id", victim->job->id), log_int("victim_output_tokens", victim->run->n_predicted),
              log_num("victim_running_ms", clock_to_ms(clock_now(engine->clock) - victim->taken_at)),
              log_str("queued_job_id", job->id), log_num("queued_wait_ms", clock_to_ms(waited)));
}

/* The one that has waited longest is the first in its list. */
static bool schedule_for(struct engine *engine, const struct job *job, struct slot *own, int64_t now)
{
    if (job == NULL || job->blocked_at != 0 || now - job->queued_at < engine->slot_timeout_ns) return false;
    struct slot *victim = own != NULL ? own : victim_for(engine, job);
    if (victim == NULL || !can_make_way(engine, victim)) return false;
    schedule(engine, victim, job, now - job->queued_at);
    return true;
}

void preempt_decide(struct engine *engine)
{
    int64_t now = clock_now(engine->clock);
    bool blocked = all_compute_prompts(engine);
    note_block(engine, blocked, now);
    if (blocked) give_up_on_busy(engine, now);
    if (engine->preemption.victim != NULL) return;
    if (schedule_for(engine, engine->waiting.first, NULL, now)) return;
    for (size_t i = 0; i < engine->n_slots; i++)
        if (schedule_for(engine, engine->slots[i].queue.first, &engine->slots[i], now)) return;
}

/* ---- Carrying out ---- */

static bool still_waits(const struct engine *engine, const struct preemption *p)
{
    return engine->waiting.first == p->for_job || p->victim->queue.first == p->for_job;
}

/* The reply so far becomes part of what the request wants in its cells. */
static void park(struct engine *engine, struct slot *slot)
{
    struct job *job = slot->job;
    struct run *run = slot->run;
    const struct tokens *all = &slot->seq->tokens;
    size_t from = job->prompt.len;
    tokens_append(&job->prompt, all->v + from, all->len - from);
    if (engine->unified) {
        run->parked_in = slot->seq;
        run->parked_use = slot->seq->uses;
    } else {
        run->parked = seq_park(engine, slot->seq);
    }
    log_event(LOG_INFO, "batch-engine", "slot-parked", log_int("slot", slot->id), log_str("id", job->id),
              log_int("output_tokens", run->n_predicted), log_int("tokens", slot->seq->n_cells));
    slot->run = NULL;
    slot_release(engine, slot, slot->seq->n_cells);
    job->run = run;
    job->queued_at = clock_now(engine->clock);
    job->blocked_at = 0;
    job_list_append(&engine->waiting, job);
}

static void fail_preempted(struct engine *engine, struct slot *slot, const struct preemption *p)
{
    hearth_error error;
    error_set(&error, HEARTH_BUSY, "preempted by queued request %s after %.1fs wait", p->for_job->id,
              clock_to_ms(p->waited) / 1e3);
    finish_failed(engine, slot, &error);
}

void preempt_carry_out(struct engine *engine)
{
    struct preemption p = engine->preemption;
    engine->preemption = (struct preemption){0};
    if (p.victim == NULL || p.victim->job != p.victim_job || !still_waits(engine, &p)) return;
    if (!can_make_way(engine, p.victim)) return;
    metric_add(&engine->stats.preemptions, 1);
    if (engine->preempt_fails)
        fail_preempted(engine, p.victim, &p);
    else
        park(engine, p.victim);
}
