/* Preemption: a job that has waited for `cache_slot_timeout` gets a slot. Another request is suspended (or fails, where
 * `preempt: fail` says so) and gives it its slot; or, when every slot is computing a prompt, the job fails with "server
 * busy".
 *
 * It takes two steps: one round of the loop chooses the victim and changes nothing else. The next one carries it out
 * before a tick is planned, so that the victim has no tokens in any batch. If the victim or the job ends in between,
 * nothing happens.
 *
 * A suspended request keeps its cells, in their sequence or as a snapshot in host memory. It waits in the queue like
 * any other job, and resumes with its next token; its client notices a pause. */
#include "engine/core.h"

#include "base/error.h"
#include "base/log.h"

/* ---- While every slot computes a prompt ---- */

/* The queues: of each slot, then the common one. A job in a slot's queue came before all those that have not been
 * placed yet. */
static struct job_list *list_at(struct engine *engine, size_t i)
{
    return i < engine->n_slots ? &engine->slots[i].queue : &engine->waiting;
}

/* Since when the job has waited while every slot computed a prompt. */
static int64_t blocked_since(const struct engine *engine, const struct job *job)
{
    return job->queued_at > engine->blocked_at ? job->queued_at : engine->blocked_at;
}

void preempt_note_unblocked(struct job *job)
{
    if (!job->blocked) return;
    job->blocked = false;
    log_event(LOG_INFO, "imc", "slot became available, retrying", log_str("id", job->id));
}

static void block_jobs(struct engine *engine, struct job_list *list, int64_t now)
{
    struct job_list kept = {0};
    struct job *job;
    while ((job = job_list_take_first(list)) != NULL) {
        if (!job->blocked) log_event(LOG_INFO, "imc", "all slots pending, waiting for slot", log_str("id", job->id));
        job->blocked = true;
        if (job->state != JOB_QUEUED || now - blocked_since(engine, job) < engine->slot_timeout_ns) {
            job_list_append(&kept, job);
            continue;
        }
        hearth_error error;
        error_set(&error, HEARTH_BUSY, "server busy processing other requests, try again shortly");
        log_event(LOG_WARN, "imc", "server busy", log_str("id", job->id));
        finish_waiting(engine, job, &error);
    }
    *list = kept;
}

static void update_blocked(struct engine *engine, int64_t now)
{
    bool blocked = true, was_blocked = engine->blocked_at != 0;
    for (size_t i = 0; i < engine->n_slots; i++) {
        hearth_slot_state shown = slot_state_shown(engine->slots[i].state);
        if (shown == HEARTH_SLOT_IDLE || shown == HEARTH_SLOT_GENERATE) blocked = false;
    }
    if (blocked && !was_blocked) engine->blocked_at = now;
    for (size_t i = 0; i <= engine->n_slots; i++) {
        struct job_list *list = list_at(engine, i);
        if (blocked) block_jobs(engine, list, now);
        /* Time spent while every slot computed a prompt has a limit of its own, and does not count as waiting. */
        for (struct job *job = list->first; was_blocked && !blocked && job != NULL; job = job->next) {
            job->queued_at += now - blocked_since(engine, job);
            preempt_note_unblocked(job);
        }
    }
    if (!blocked) engine->blocked_at = 0;
}

/* ---- Choosing a victim ---- */

/* Whether the slot's request can be suspended. With a stream of cells for each sequence the next request needs its
 * cells: then a snapshot of them must fit into memory. */
static bool can_be_preempted(const struct engine *engine, const struct slot *slot)
{
    /* a request that has to compute its cells again has made no progress since it got its slot */
    if (slot->state != SLOT_GENERATES || slot->seq->n_cells + 1 != (int32_t)slot->seq->tokens.len) return false;
    if (engine->policy.one_pool || engine->preempt_fails) return true;
    if (!engine->policy.loads_states) return false;
    return llm_seq_state_size(engine->context, slot->seq->id, LLM_STATE_SNAPSHOT) <=
           snapshots_available(engine->snapshots);
}

/* The slot that computes on the job's own conversation. */
static struct slot *slot_of_conversation(struct engine *engine, const struct job *job)
{
    if (job->conversation.stable_end == 0 || !job->cache_prompt) return NULL;
    for (size_t i = 0; i < engine->n_slots; i++) {
        struct slot *slot = &engine->slots[i];
        if (slot->seq == NULL || slot->seq->scope != job->scope) continue;
        size_t common = tokens_common_prefix(&slot->seq->tokens, &job->prompt);
        if ((int32_t)common >= job->conversation.stable_end) return slot;
    }
    return NULL;
}

/* The slot of the job's conversation, else the one that has run longest. NULL: none can be preempted. */
static struct slot *victim_for(struct engine *engine, const struct job *job)
{
    struct slot *own = slot_of_conversation(engine, job), *longest = NULL;
    if (own != NULL && can_be_preempted(engine, own)) return own;
    for (size_t i = 0; i < engine->n_slots; i++) {
        struct slot *slot = &engine->slots[i];
        if (!can_be_preempted(engine, slot)) continue;
        if (longest == NULL || slot->taken_at < longest->taken_at) longest = slot;
    }
    return longest;
}

void preempt_decide(struct engine *engine)
{
    assert_thread(&engine->owner);
    int64_t now = clock_now(engine->clock);
    update_blocked(engine, now);
    for (size_t i = 0; i <= engine->n_slots; i++) {
        const struct job *job = list_at(engine, i)->first; /* it has waited longest in its queue */
        int64_t waited = job == NULL ? 0 : now - job->queued_at;
        if (job == NULL || waited < engine->slot_timeout_ns) continue;
        struct slot *victim = i < engine->n_slots ? &engine->slots[i] : victim_for(engine, job);
        if (victim == NULL || !can_be_preempted(engine, victim)) continue;
        engine->preemption = (struct preemption){victim, job, waited};
        log_event(LOG_INFO, "batch-engine", "preempting-slot", log_int("slot", victim->id),
                  log_str("victim_id", victim->job->id), log_int("victim_output_tokens", victim->run->n_predicted),
                  log_num("victim_running_ms", clock_to_ms(clock_now(engine->clock) - victim->taken_at)),
                  log_str("queued_job_id", job->id), log_num("queued_wait_ms", clock_to_ms(waited)));
        return;
    }
}

/* ---- Carrying out ---- */

struct seq *suspended_in(const struct engine *engine, const struct run *run)
{
    for (size_t i = 0; i < engine->n_seqs; i++)
        if (engine->seqs[i].suspended == run) return &engine->seqs[i];
    return NULL;
}

/* Suspends the slot's request: its prompt and its reply so far are what it wants in its cells when it resumes. */
static void suspend(struct engine *engine, struct slot *slot)
{
    struct job *job = slot->job;
    struct run *run = slot->run;
    struct seq *seq = slot->seq;
    tokens_append(&run->wanted, seq->tokens.v, seq->tokens.len);
    job->wanted = &run->wanted;
    if (!engine->policy.one_pool) run->snapshot = seq_save_pinned(engine, seq);
    log_event(LOG_INFO, "batch-engine", "slot-parked", log_int("slot", slot->id), log_str("id", job->id),
              log_int("output_tokens", run->n_predicted), log_int("tokens", seq->n_cells));
    slot->run = NULL;
    bool needed = engine->policy.one_pool || keeps_cells(engine, job);
    slot_release(engine, slot, needed ? seq->n_cells : 0);
    if (engine->policy.one_pool && seq->n_cells > 0) {
        seq->suspended = run;
        seq_enter(seq, SEQ_SUSPENDED);
    }
    job->run = run;
    job_enter(job, JOB_SUSPENDED);
    job->queued_at = clock_now(engine->clock);
    job_list_append(&engine->waiting, job);
}

void preempt_carry_out(struct engine *engine)
{
    assert_thread(&engine->owner);
    struct preemption p = engine->preemption;
    engine->preemption = (struct preemption){0};
    if (p.victim == NULL || !can_be_preempted(engine, p.victim)) return; /* its slot is idle if it has ended */
    bool is_waiting = engine->waiting.first == p.for_job;
    struct job_list *list = is_waiting ? &engine->waiting : &p.victim->queue;
    /* It has left; another one at its address has not waited so long. */
    if (list->first != p.for_job) return;
    if (clock_now(engine->clock) - list->first->queued_at < engine->slot_timeout_ns) return;
    for (size_t i = 0; is_waiting && i < engine->n_slots; i++)
        if (engine->slots[i].state == SLOT_IDLE) return;
    struct job *job = job_list_take_first(list);
    metric_add(&engine->stats->preemptions, 1);
    if (engine->preempt_fails) {
        hearth_error error;
        error_set(&error, HEARTH_BUSY, "preempted by queued request %s after %.1fs wait", job->id,
                  clock_to_ms(p.waited) / 1e3);
        finish_failed(engine, p.victim, &error);
    } else {
        suspend(engine, p.victim);
    }
    place_in(engine, p.victim, job);
}
