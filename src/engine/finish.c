/* The end of a request: its last event, what stays in the slot's cells, the slot idle again. */
#include "engine/core.h"

#include "base/error.h"
#include "base/log.h"

static hearth_result result_of(const struct slot *slot)
{
    bool any = slot->n_predicted > 0;
    return (hearth_result){
        .slot = slot->id,
        .cache_n = slot->n_cached,
        .prompt_n = slot->n_prompt - slot->n_cached,
        .predicted_n = slot->n_predicted,
        .queue_ms = clock_to_ms(slot->started_at - slot->job->submitted_at),
        .prompt_ms = any ? clock_to_ms(slot->first_token_at - slot->started_at) : 0,
        .predicted_ms = any ? clock_to_ms(slot->last_token_at - slot->first_token_at) : 0,
    };
}

static void log_finished(const struct engine *engine, const struct slot *slot, const char *how)
{
    log_event(LOG_INFO, "batch-engine", "slot-finished", log_str("model", engine->name), log_int("slot", slot->id),
              log_int("seq", slot->seq == NULL ? -1 : slot->seq->id), log_str("id", slot->job->id), log_str("how", how),
              log_int("total_prompt", slot->n_prompt), log_int("output_tokens", slot->n_predicted),
              log_num("time_ms", clock_to_ms(clock_now(engine->clock) - slot->started_at)),
              log_int("active_streams", metric_get(&engine->stats.slots_busy) - 1));
}

/* Makes the slot idle and returns its job, whose last event is still to be sent: the slot must be free before the
 * client hears of the end, or its next request could find it busy. */
static struct job *let_go(struct engine *engine, struct slot *slot, const char *how)
{
    struct job *job = slot->job;
    log_finished(engine, slot, how);
    llm_sampler_close(slot->sampler);
    reply_release(&slot->reply);
    if (slot->seq != NULL) {
        seq_keep(engine, slot->seq, job->cache_prompt ? slot->seq->n_cells : 0);
        seq_retire(engine, slot->seq);
    }
    slot->state = SLOT_IDLE;
    slot->seq = NULL;
    slot->job = NULL;
    slot->sampler = NULL;
    slot->last_used = clock_now(engine->clock);
    metric_add(&engine->stats.slots_busy, -1);
    for (size_t i = 0; i < engine->n_slots; i++) engine->slots[i].deferred = false; /* there may be room again */
    return job;
}

void finish_done(struct engine *engine, struct slot *slot, hearth_finish finish, const char *stop_string)
{
    hearth_result result = result_of(slot);
    result.finish = finish;
    result.stop_string = stop_string;
    if (stop_string == NULL) {
        reply_finish(&slot->reply);
        if (slot->reply.ready.len > 0) job_send_text(slot->job, slot->reply.ready.v, slot->reply.ready.len, -1);
    }
    metric_add(&engine->stats.requests_done, 1);
    job_done(let_go(engine, slot, finish == HEARTH_FINISH_STOP ? "stop" : "length"), &result);
}

void finish_failed(struct engine *engine, struct slot *slot, const hearth_error *error)
{
    bool cancelled = error->code == HEARTH_CANCELLED;
    metric_add(cancelled ? &engine->stats.requests_cancelled : &engine->stats.requests_failed, 1);
    job_fail(let_go(engine, slot, error->message), error);
}

void finish_cancelled(struct engine *engine)
{
    struct job_list gone = job_list_take_matching(&engine->waiting, job_is_cancelled);
    metric_add(&engine->stats.requests_cancelled, (int64_t)gone.len);
    job_list_fail(&gone, HEARTH_CANCELLED, "request was cancelled");

    bool stop_now = atomic_load(&engine->stop_now);
    hearth_error error;
    for (size_t i = 0; i < engine->n_slots; i++) {
        struct slot *slot = &engine->slots[i];
        if (slot->state == SLOT_IDLE) continue;
        if (job_is_cancelled(slot->job))
            error_set(&error, HEARTH_CANCELLED, "request was cancelled");
        else if (stop_now)
            error_set(&error, HEARTH_UNAVAILABLE, "engine shutting down");
        else
            continue;
        finish_failed(engine, slot, &error);
    }
}
