/* How far a request has come, and its end: its last event, which of its cells stay resident, and the slot's release.
 * Runs on the engine's thread. */
#include "engine/core.h"
#include "engine/fetch.h"
#include "engine/reuse_plan.h"
#include "engine/save.h"

#include "base/error.h"
#include "base/log.h"

#include <stdlib.h>

hearth_result slot_result(const struct slot *slot)
{
    const struct run *run = slot->run;
    bool any = run->n_predicted > 0;
    hearth_result result = {
        .slot = slot->id,
        .n_prompt = run->n_prompt,
        .cache_n = run->n_cached,
        .kept_n = run->n_kept,
        .prompt_n = run->n_prompt - run->n_cached,
        .too_short_n = run->n_too_short,
        .predicted_n = run->n_predicted,
        .draft_n = run->draft.n_drafted,
        .draft_accepted_n = run->draft.n_accepted,
        .queue_ms = clock_to_ms(run->started_at - slot->job->submitted_at),
        .prompt_ms = any ? clock_to_ms(run->first_token_at - run->started_at) : 0,
        .predicted_ms = any ? clock_to_ms(run->last_token_at - run->first_token_at) : 0,
        .restore_ms = run->restore_ms,
    };
    job_note_stages(slot->job, &result);
    return result;
}

void slot_tell_progress(const struct engine *engine, struct slot *slot)
{
    struct run *run = slot->run;
    if (!slot->job->progress || run->n_predicted > 0 || slot->seq == NULL || slot_is_fetching(slot)) return;
    int32_t n = slot->seq->n_cells < run->n_prompt ? slot->seq->n_cells : run->n_prompt;
    if (n <= run->n_told) return;
    run->n_told = n;
    hearth_result so_far = slot_result(slot);
    so_far.prompt_n = n > run->n_cached ? n - run->n_cached : 0;
    if (so_far.prompt_n > 0) so_far.prompt_ms = clock_to_ms(clock_now(engine->clock) - run->started_at);
    job_send_progress(slot->job, &so_far);
}

bool keeps_cells(const struct engine *engine, const struct job *job)
{
    return job->cache_prompt && engine->policy.keeps_conversations;
}

static void end_run(struct engine *engine, struct job *job, struct run *run)
{
    if (run == NULL) return;
    struct seq *seq = suspended_in(engine, run);
    if (seq != NULL) {
        seq->suspended = NULL;
        seq_enter(seq, seq->state == SEQ_SUSPENDED ? SEQ_IDLE : SEQ_IDLE_LEAVES);
    }
    if (seq != NULL && !keeps_cells(engine, job)) {
        seq_cut_to(engine, seq, 0);
        seq_retire(engine, seq);
        slots_try_again(engine, false);
    }
    if (run->snapshot != NULL) snapshots_drop(engine->snapshots, run->snapshot);
    llm_sampler_close(run->sampler);
    reply_release(&run->reply);
    job->wanted = &job->prompt;
    tokens_release(&run->wanted);
    draft_release(&run->draft);
    free(run);
}

void slots_try_again(struct engine *engine, bool yielded)
{
    assert_thread(&engine->owner);
    static const enum slot_state next[SLOT_STATES] = {[SLOT_AWAITS_LOAD] = SLOT_AWAITS_SEQ,
                                                      [SLOT_FETCH_AWAITS_ROOM] = SLOT_FETCHES,
                                                      [SLOT_PREFILL_AWAITS_ROOM] = SLOT_PREFILLS,
                                                      [SLOT_PREFILL_YIELDED] = SLOT_PREFILLS,
                                                      [SLOT_REPLY_YIELDED] = SLOT_GENERATES};
    for (size_t i = 0; i < engine->n_slots; i++) {
        struct slot *slot = &engine->slots[i];
        if (slot_awaits_room(slot) || (yielded && slot_has_yielded(slot))) slot_enter(slot, next[slot->state]);
    }
}

struct job *slot_release(struct engine *engine, struct slot *slot, int32_t keep)
{
    assert_thread(&engine->owner);
    struct job *job = slot->job;
    if (slot->seq != NULL) {
        struct seq *seq = slot->seq;
        if (keep == 0) save_flush(engine, seq);
        seq_cut_to(engine, seq, keep);
        seq_retire(engine, seq);
        if (keep == 0)
            log_event(LOG_DEBUG, "finish-slot", "seq-cleared", log_int("slot", slot->id), log_int("seq", seq->id));
    }
    fetch_release(job);
    adapter_turns_leave(&engine->turns, slot->set);
    slot_enter(slot, SLOT_IDLE);
    slot->seq = NULL;
    slot->job = NULL;
    slot->run = NULL;
    slot->awaited = NULL;
    slot->last_used = clock_now(engine->clock);
    metric_add(&engine->stats->slots_busy, -1);
    slots_try_again(engine, true);
    return job;
}

/* Ends the request and releases its slot. The caller sends the job's last event afterwards: the slot must be idle
 * before the client learns of the end, or its next request could find it busy. */
static struct job *end_slot(struct engine *engine, struct slot *slot, const char *how, double *save_ms)
{
    struct seq *seq = slot->seq;
    log_event(LOG_INFO, "batch-engine", "slot-finished", log_str("model", engine->name), log_int("slot", slot->id),
              log_int("seq", seq == NULL ? -1 : seq->id), log_str("id", slot->job->id), log_str("how", how),
              log_int("total_prompt", slot->run->n_prompt), log_int("output_tokens", slot->run->n_predicted),
              log_num("time_ms", clock_to_ms(clock_now(engine->clock) - slot->run->started_at)),
              log_int("active_streams", metric_get(&engine->stats->slots_busy) - 1));
    nearest_log(engine, slot);
    fetch_stop(engine, slot);
    bool stays = seq != NULL && keeps_cells(engine, slot->job);
    int64_t saves_at = clock_now(engine->clock);
    bool spent = seq != NULL && !stays && !save_flush(engine, seq);
    end_run(engine, slot->job, slot->run);
    slot->run = NULL;
    if (stays && seq->n_cells > 0) save_finished(engine, seq);
    *save_ms = engine->store == NULL ? 0 : clock_to_ms(clock_now(engine->clock) - saves_at);
    struct job *job = slot_release(engine, slot, stays || spent ? seq->n_cells : 0);
    if (spent && seq->state == SEQ_IDLE) seq_enter(seq, SEQ_SPENT);
    return job;
}

bool finish_clear_saved(struct engine *engine)
{
    assert_thread(&engine->owner);
    bool any = false;
    for (size_t i = 0; i < engine->n_seqs; i++) {
        struct seq *seq = &engine->seqs[i];
        bool spent = seq_state_staying(seq->state) == SEQ_SPENT;
        if (!spent || save_status(engine, seq) != SAVE_COMPLETE) continue;
        seq_cut_to(engine, seq, 0);
        seq_retire(engine, seq);
        any = true;
    }
    if (any) slots_try_again(engine, false);
    return any;
}

void finish_done(struct engine *engine, struct slot *slot, hearth_finish finish, const char *stop_string)
{
    assert_thread(&engine->owner);
    hearth_result result = slot_result(slot);
    result.finish = finish;
    for (size_t i = 0; i + slot->job->n_own_stop < slot->job->n_stop; i++)
        if (slot->job->stop[i] == stop_string) result.stop_string = stop_string; /* the request has asked for it */
    if (stop_string == NULL) {
        reply_finish(&slot->run->reply);
        if (slot->run->reply.ready.len > 0)
            job_send_text(slot->job,
                          &(struct job_text){.text = &slot->run->reply.ready, .token = -1, .result = result});
    }
    metric_add(&engine->stats->requests_done, 1);
    struct job *job = end_slot(engine, slot, finish == HEARTH_FINISH_STOP ? "stop" : "length", &result.save_ms);
    job_done(job, &result);
}

void finish_failed(struct engine *engine, struct slot *slot, const hearth_error *error)
{
    assert_thread(&engine->owner);
    bool cancelled = error->code == HEARTH_CANCELLED;
    metric_add(cancelled ? &engine->stats->requests_cancelled : &engine->stats->requests_failed, 1);
    double save_ms;
    job_fail(end_slot(engine, slot, error->message, &save_ms), error);
}

void finish_waiting(struct engine *engine, struct job *job, const hearth_error *error)
{
    assert_thread(&engine->owner);
    bool cancelled = error->code == HEARTH_CANCELLED;
    metric_add(cancelled ? &engine->stats->requests_cancelled : &engine->stats->requests_failed, 1);
    end_run(engine, job, job->run);
    job->run = NULL;
    fetch_release(job);
    job_fail(job, error);
}

static void cancel_in_list(struct engine *engine, struct job_list *list, const hearth_error *error)
{
    struct job_list gone = {0};
    struct job *job;
    job_list_move_matching(list, &gone, job_is_cancelled);
    while ((job = job_list_take_first(&gone)) != NULL) finish_waiting(engine, job, error);
}

void finish_cancelled(struct engine *engine)
{
    assert_thread(&engine->owner);
    hearth_error cancelled, stopping;
    error_set(&cancelled, HEARTH_CANCELLED, "request was cancelled");
    error_set(&stopping, HEARTH_UNAVAILABLE, "engine shutting down");
    cancel_in_list(engine, &engine->waiting, &cancelled);
    bool stop_now = atomic_load(&engine->stop_now);
    for (size_t i = 0; i < engine->n_slots; i++) {
        struct slot *slot = &engine->slots[i];
        cancel_in_list(engine, &slot->queue, &cancelled);
        if (slot->state == SLOT_IDLE) continue;
        if (job_is_cancelled(slot->job))
            finish_failed(engine, slot, &cancelled);
        else if (stop_now)
            finish_failed(engine, slot, &stopping);
    }
}
