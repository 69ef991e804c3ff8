/* Carries out placements: gives waiting jobs their slots, and slots their sequences, as reuse_plan.c plans it. Jobs
 * keep their order, but do not block each other: a job that waits for one slot in particular does so in that slot's own
 * queue. Runs on the engine's thread, before each tick. */
#include "engine/core.h"
#include "engine/engine_status.h"
#include "engine/evict.h"
#include "engine/fetch.h"
#include "engine/reuse_plan.h"
#include "engine/save.h"

#include "base/log.h"
#include "base/memory.h"

#include <assert.h>
#include <stdlib.h>

/* ---- Carrying out ---- */

static enum llm_loaded share_prefix(struct engine *engine, struct seq *seq, const struct placement *p, int32_t n)
{
    seq->n_exact = p->source->n_exact;
    seq->n_messages = p->source->n_messages;
    seq->message_tokens = p->source->message_tokens;
    seq->message_hash = p->source->message_hash;
    p->source->last_used = clock_now(engine->clock);
    p->source->idle = (struct idle_account){0};
    save_inherit(seq, p->source, n);
    return seq_share(engine, p->source, seq, n);
}

/* The snapshot's own media say where it ends, until it is cut. */
static enum llm_loaded restore_snapshot(struct engine *engine, struct seq *seq, const struct placement *p)
{
    const struct snapshot *snapshot = p->snapshot;
    int32_t n = (int32_t)snapshot->tokens.len;
    seq->n_exact = snapshot->n_exact;
    snapshots_touch(engine->snapshots, snapshot);
    media_spans_copy(&seq->media, &snapshot->media);
    enum llm_loaded loaded = llm_seq_load(engine->context, seq->id, snapshot->bytes, snapshot->size, n);
    bool fits = loaded != LLM_LOADED || n == p->n || llm_seq_cut(engine->context, seq->id, p->n);
    return fits ? loaded : LLM_BAD_STATE;
}

/* Gives the sequence (the source itself, or an empty one) the cells of the placement; on failure none, which costs time
 * and nothing else. It has the prompt's media before anything is loaded, since they say at which positions rows belong;
 * they are those of the source as far as its cells are kept. EVICT_PENDING: there is no room yet, and the sequence is
 * empty. */
static enum evict_outcome load_prefix(struct engine *engine, const struct job *job, const struct placement *p,
                                      struct seq *seq)
{
    assert(p->how != PLACE_RESTORE || p->snapshot != NULL);
    if (p->how == PLACE_CONTINUE) {
        seq_cut_to(engine, seq, p->n);
        media_spans_copy(&seq->media, &job->media.spans);
        return EVICT_DONE;
    }
    media_spans_copy(&seq->media, &job->media.spans);
    int32_t n = p->how == PLACE_FETCH ? p->shared : p->n;
    /* KV rows that a load which found no room needs for certain. The cells of a sliding window are unknown: one step is
     * evicted at a time. */
    int32_t rows = p->how == PLACE_RESTORE ? (int32_t)p->snapshot->tokens.len : 1;
    enum llm_loaded loaded = LLM_BAD_STATE;
    enum evict_outcome evicted = EVICT_DONE;
    do {
        if (p->source != NULL && n > 0) loaded = share_prefix(engine, seq, p, n);
        if (p->how == PLACE_RESTORE) loaded = restore_snapshot(engine, seq, p);
        if (p->how == PLACE_RESTORE) media_spans_copy(&seq->media, &job->media.spans);
    } while (evict_for_load(engine, loaded, rows, &evicted));
    if (loaded == LLM_LOADED) {
        seq->n_cells = n;
    } else {
        seq_clear(engine, seq);
        save_cut(seq, 0);
    }
    if (seq->n_exact > seq->n_cells) seq->n_exact = seq->n_cells;
    return evicted == EVICT_PENDING ? EVICT_PENDING : EVICT_DONE;
}

static bool saves_checkpoints(const struct engine *engine, const struct job *job)
{
    return engine->policy.checkpoints && job->cache_prompt;
}

/* Binds the slot to its sequence, which has all the cells that were to be reused. */
static void bind_seq(struct engine *engine, struct slot *slot, const struct placement *p, struct seq *seq,
                     int32_t divergence)
{
    struct job *job = slot->job;
    draft_keep_past(engine, slot, p->source != NULL ? p->source : seq);
    suffix_index_truncate(&seq->suffixes, &seq->tokens, (int32_t)tokens_common_prefix(&seq->tokens, job->wanted));
    tokens_truncate(&seq->tokens, 0);
    tokens_append(&seq->tokens, job->wanted->v, job->wanted->len);
    job->wanted = &job->prompt;
    tokens_release(&slot->run->wanted);
    seq_enter(seq, SEQ_RUNNING);
    seq->slot = slot;
    seq->suspended = NULL;
    seq->uses++;
    seq->last_slot = slot->id;
    seq->scope = job->cache_prompt ? job->scope : SCOPE_PRIVATE;
    if (seq->n_cells < seq->message_tokens) seq->n_messages = 0;
    slot->seq = seq;
    slot_enter(slot, SLOT_PREFILLS);
    save_begin(engine, seq, job);
    if (job->hit != NULL && p->how == PLACE_FETCH) {
        fetch_begin(engine, slot, p->n);
    } else if (job->hit != NULL) { /* what the store has is not used */
        if (p->how == PLACE_FRESH) store_hit_count(job->hit, 0);
        fetch_release(job);
    }
    /* Where cells cannot be cut, saves checkpoints where prompts were seen to diverge. So the third agent with the same
     * system prompt reuses it, whether or not it comes as a message. Saves one where the request begins, too: others
     * may need that position after the sequence has moved on. */
    if (saves_checkpoints(engine, job)) {
        job_add_checkpoint(job, divergence);
        if (seq->n_cells > 0) seq_save_checkpoint(engine, seq);
    }
    if (slot->run->n_predicted == 0) {
        slot->run->n_cached = seq->n_cells;
        slot->run->n_too_short = p->too_short;
        metric_add(&engine->stats->cached_tokens, seq->n_cells);
    }
    log_event(LOG_INFO, "batch-engine", "slot-started", log_str("model", engine->name), log_int("slot", slot->id),
              log_int("seq", seq->id), log_str("id", job->id), log_int("prompt_tokens", slot->run->n_prompt),
              log_int("cached_tokens", slot->run->n_cached));
    if (p->too_short > 0)
        log_event(LOG_INFO, "batch-engine", "not reused: fewer tokens than cache_min_tokens", log_str("id", job->id),
                  log_int("tokens", p->too_short), log_int("cache_min_tokens", engine->policy.min_tokens));
}

/* The idle slot that computed last on the source, so that a conversation keeps its slot; else the least recently used
 * one. NULL: all are busy. */
static struct slot *choose_slot(struct engine *engine, const struct seq *source)
{
    struct slot *best = NULL;
    for (size_t i = 0; i < engine->n_slots; i++) {
        struct slot *slot = &engine->slots[i];
        if (slot->state != SLOT_IDLE) continue;
        if (source != NULL && source->last_slot == slot->id) return slot;
        if (best == NULL || slot->last_used < best->last_used) best = slot;
    }
    return best;
}

static struct run *begin_run(struct engine *engine, struct job *job)
{
    struct run *run = mem_alloc(sizeof *run);
    run->n_prompt = (int32_t)job->prompt.len;
    run->n_told = -1;
    run->n_kept = find_kept(engine, job);
    int32_t room = engine->window - run->n_prompt;
    run->max_tokens = job->max_tokens < room ? job->max_tokens : room;
    run->sampler = job->sampler;
    run->draft.serial = ++engine->drafting.n_replies;
    job->sampler = NULL;
    reply_init(&run->reply, job->stop, job->n_stop);
    run->started_at = clock_now(engine->clock);
    histogram_observe(&engine->stats->queue_wait, &histogram_seconds,
                      clock_to_ms(run->started_at - job->submitted_at) / 1e3);
    return run;
}

static void send_started(struct slot *slot, const struct placement *p)
{
    struct job *job = slot->job;
    struct run *run = slot->run;
    run->started_sent = true;
    bool to_come = p->how == PLACE_WAIT || p->how == PLACE_FETCH;
    int32_t cached = to_come ? p->n : run->n_cached;
    hearth_result result = {.slot = slot->id,
                            .n_prompt = run->n_prompt,
                            .cache_n = cached,
                            .prompt_n = run->n_prompt - cached,
                            .kept_n = run->n_kept,
                            .queue_ms = clock_to_ms(run->started_at - job->submitted_at)};
    job_note_stages(job, &result);
    job_send_started(job, &result);
}

/* Gives the slot a sequence with the cells of the placement. Evicts for both, but pins the source and holds the
 * snapshot, since an eviction may save another snapshot. False: there is no room yet. */
static bool assign_seq(struct engine *engine, struct slot *slot, const struct placement *p)
{
    int32_t divergence = saves_checkpoints(engine, slot->job) ? find_divergence(engine, slot->job) : 0;
    /* The snapshot or checkpoint in memory that will be loaded. */
    const struct snapshot *snapshot = p->how == PLACE_SHARE ? seq_checkpoint_at(engine, p->source, p->n) : p->snapshot;
    bool takes_cells = p->how == PLACE_CONTINUE || p->how == PLACE_SHARE;
    /* Asked before the placement is carried out, which cuts the source to where the prompt parts from it. */
    bool stays_kept = takes_cells && p->source->kept && orders_continue(slot->job, p->source, p->n);
    if (p->source != NULL) p->source->pinned = true;
    if (snapshot != NULL) snapshots_hold(engine->snapshots, snapshot);
    struct seq *seq = p->source;
    if (p->how == PLACE_CONTINUE)
        evict_cancel(engine, seq);
    else
        seq = evict_for_seq(engine); /* NULL: its eviction is pending */
    int64_t begun_at = clock_now(engine->clock);
    if (seq != NULL && load_prefix(engine, slot->job, p, seq) == EVICT_PENDING) slot_enter(slot, SLOT_AWAITS_LOAD);
    double took_ms = clock_to_ms(clock_now(engine->clock) - begun_at);
    if (p->source != NULL) p->source->pinned = false;
    if (snapshot != NULL) snapshots_unhold(engine->snapshots, snapshot);
    if (seq == NULL || slot->state == SLOT_AWAITS_LOAD) return false;
    if (p->n > 0 && p->how != PLACE_FETCH) slot->run->restore_ms += took_ms;
    if (p->how == PLACE_RESTORE) {
        bool loaded = seq->n_cells > 0;
        metric_add(&engine->stats->snapshots_restored, loaded);
        log_event(loaded ? LOG_INFO : LOG_WARN, "start-slot",
                  loaded ? "spc-restore" : "restore-spc: StateSeqSetData failed", log_int("dst_seq", seq->id),
                  log_int("cached_tokens", loaded ? p->n : 0), log_num("took_ms", took_ms));
        /* The prompt is computed now, and its snapshot can be saved again. */
        if (!loaded && p->snapshot != slot->run->snapshot) snapshots_drop(engine->snapshots, p->snapshot);
    }
    if (stays_kept) p->source->kept = false; /* the conversation goes on in `seq` */
    seq->kept = stays_kept;
    bind_seq(engine, slot, p, seq, divergence);
    return true;
}

/* Carries the placement out, as far as that is possible now. */
static void carry_out(struct engine *engine, struct slot *slot, const struct placement *p)
{
    if (slot->state != SLOT_AWAITS_SEQ) slot_enter(slot, SLOT_AWAITS_SEQ);
    slot->awaited = NULL;
    if (p->how == PLACE_WAIT) {
        slot->awaited = p->source;
        slot->awaited_use = p->source->uses;
        slot->awaited_cells = p->n;
        slot_enter(slot, SLOT_AWAITS_PREFIX);
        log_event(LOG_INFO, "batch-engine", "slot-pending", log_int("slot", slot->id), log_str("id", slot->job->id),
                  log_int("for_slot", p->source->slot->id), log_int("for_tokens", p->n));
    } else if (!assign_seq(engine, slot, p)) {
        return;
    }
    /* A resumed request has its cells again, or they are lost. */
    if (slot->run->snapshot != NULL) snapshots_drop(engine->snapshots, slot->run->snapshot);
    slot->run->snapshot = NULL;
    if (!slot->run->started_sent) send_started(slot, p);
    slot_tell_progress(engine, slot);
}

static void assign_slot(struct engine *engine, struct slot *slot, struct job *job, const struct placement *p)
{
    slot->job = job;
    slot->set = adapter_turns_join(&engine->turns, job->scales);
    slot->run = job->run != NULL ? job->run : begin_run(engine, job);
    job->run = NULL;
    job_enter(job, JOB_RUNNING);
    preempt_note_unblocked(job);
    slot->suspect_until = 0;
    slot->taken_at = clock_now(engine->clock);
    metric_add(&engine->stats->slots_busy, 1);
    slot->run->continues = reuse_log(engine, job, p);
    if (!slot->run->started_sent) nearest_note(engine, job, p);
    evict_cancel(engine, p->source); /* only once: two requests could cancel each other's evictions for ever */
    carry_out(engine, slot, p);
}

static bool is_still_waiting(const struct engine *engine, const struct slot *slot)
{
    const struct seq *seq = slot->awaited;
    if (slot->state == SLOT_AWAITS_LOAD) return true;
    if (slot->state == SLOT_AWAITS_SEQ) return evict_is_pending(engine);
    return seq->uses == slot->awaited_use && seq_is_prefilling(seq) && seq->n_cells < slot->awaited_cells;
}

/* Gives the job a slot, or queues it for the slot that has its conversation. */
static void place(struct engine *engine, struct slot *own, struct job *job)
{
    /* A suspended job has more tokens than at its first query, and its cells may be in the store by now. */
    if (engine->store != NULL && job->state == JOB_SUSPENDED && job->hit == NULL && job->cache_prompt)
        job->hit = store_find(engine->store, &(struct store_query){.user = engine->user,
                                                                   .identity = &job->identity,
                                                                   .tokens = job->wanted->v,
                                                                   .n = (int32_t)job->wanted->len - 1});
    struct placement p = find_placement(engine, job, job->run, true);
    if (p.how == PLACE_QUEUE) {
        struct slot *busy = p.source->slot;
        log_event(LOG_INFO, "batch-engine", "job-deferred", log_str("id", job->id), log_int("slot", busy->id));
        job_list_append(&busy->queue, job);
        return;
    }
    struct slot *slot = own != NULL ? own : choose_slot(engine, p.how == PLACE_CONTINUE ? p.source : NULL);
    assign_slot(engine, slot, job, &p);
}

void place_in(struct engine *engine, struct slot *slot, struct job *job)
{
    assert_thread(&engine->owner);
    struct placement p = find_placement(engine, job, job->run, false);
    assign_slot(engine, slot, job, &p);
}

void place_jobs(struct engine *engine)
{
    assert_thread(&engine->owner);
    /* Plans again for a pending slot when the sequence or the cells that it waits for are there, or the slot that
     * computes them ended before it had them. */
    for (size_t i = 0; i < engine->n_slots; i++) {
        struct slot *slot = &engine->slots[i];
        if (slot_state_shown(slot->state) != HEARTH_SLOT_PENDING || is_still_waiting(engine, slot)) continue;
        struct placement p = find_placement(engine, slot->job, slot->run, false);
        carry_out(engine, slot, &p);
    }
    /* An idle slot serves the jobs in its own queue first. */
    for (size_t i = 0; i < engine->n_slots; i++) {
        struct slot *slot = &engine->slots[i];
        while (slot->state == SLOT_IDLE && slot->queue.first != NULL)
            place(engine, slot, job_list_take_first(&slot->queue));
    }
    while (engine->waiting.first != NULL && choose_slot(engine, NULL) != NULL)
        place(engine, NULL, job_list_take_first(&engine->waiting));
    size_t waiting = engine->waiting.len;
    for (size_t i = 0; i < engine->n_slots; i++) waiting += engine->slots[i].queue.len;
    atomic_store_explicit(&engine->stats->jobs_waiting, (int64_t)waiting, memory_order_relaxed);
    atomic_store_explicit(&engine->stats->snapshot_bytes, (int64_t)snapshots_usage(engine->snapshots).bytes,
                          memory_order_relaxed);
}
