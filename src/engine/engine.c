/* The engine's thread: its loop, and what other threads may do with it. They put jobs into a mailbox and read a copy of
 * its status (slot_status.c); everything else belongs to the engine's thread. */
#include "engine/core.h"
#include "engine/engine_status.h"
#include "engine/evict.h"
#include "engine/fetch.h"
#include "engine/reuse_plan.h"
#include "engine/save.h"
#include "engine/tick.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "llm/model_identity.h"

#include <stdio.h>
#include <stdlib.h>

/* How often waiting jobs are checked while every slot waits for the store. */
#define STALLED_STEP clock_from_ms(20)

/* ---- Abort ---- */

/* Aborts a decode call when nobody wants what it computes. One cancelled client of several does not abort it: the
 * others would lose their tokens, and while a reply is being streamed a tick is short anyway. Where cells cannot be
 * cut, aborting may lose every sequence's cells, also at the end, before they are saved. Then only a prompt that is
 * alone in the call, and therefore perhaps long, is aborted. */
static bool should_abort(void *ud)
{
    const struct engine *engine = ud;
    if (engine->n_running == 0) return false; /* it computes what is kept: draft_complete() */
    if (!engine->policy.cuts_anywhere && engine->n_running > 1) return false;
    if (atomic_load_explicit(&engine->stop_now, memory_order_relaxed)) return true;
    for (size_t i = 0; i < engine->n_running; i++)
        if (!job_is_cancelled(engine->slots[engine->running[i].slot].job)) return false;
    return true;
}

const struct engine_stats *engine_stats(const struct engine *engine)
{
    return engine->stats;
}

const struct store_user *engine_store_user(const struct engine *engine)
{
    return engine->user;
}

bool engine_wants_checkpoints(const struct engine *engine)
{
    return engine->policy.checkpoints;
}

int32_t engine_window(const struct engine *engine)
{
    return engine->window;
}

/* ---- The thread ---- */

static bool any_slot_busy(const struct engine *engine)
{
    return metric_get(&engine->stats->slots_busy) > 0;
}

/* Jobs may wait although every slot is idle: when all slots became free in the tick before. */
static bool has_work(const struct engine *engine)
{
    for (size_t i = 0; i < engine->n_slots; i++)
        if (engine->slots[i].queue.first != NULL && !engine->stalled) return true;
    bool computes = any_slot_busy(engine) || engine->waiting.first != NULL;
    return engine->copied || (computes && !engine->stalled);
}

/* Decides where the prefill stops to save a checkpoint or a system prompt's snapshot. */
static void set_checkpoints(const struct engine *engine, struct job *job)
{
    int32_t system = job->conversation.system_end;
    if (engine->policy.keeps_system_prompts) {
        job->checkpoints[0] = system;
        job->n_checkpoints = cache_policy_worth(&engine->policy, system) > 0;
    } else if (engine->policy.checkpoints && job->cache_prompt && job->conversation.n_messages == 0) {
        /* Its middle and near its end, since nothing says where the next prompt will diverge. */
        int32_t all = (int32_t)job->prompt.len, ends[] = {all / 2, all - 64, all - 16};
        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) job_add_checkpoint(job, ends[i]);
    }
    if (!engine->policy.loads_states) job->n_checkpoints = 0;
    size_t n = 0;
    for (size_t i = 0; i < job->n_checkpoints; i++) {
        int32_t whole = cache_policy_whole(&engine->policy, &job->media.spans, job->checkpoints[i]);
        if (whole > 0 && (n == 0 || whole > job->checkpoints[n - 1])) job->checkpoints[n++] = whole;
    }
    job->n_checkpoints = n;
}

static void accept_job(struct engine *engine, struct job *job)
{
    job->wanted = &job->prompt;
    if (engine->store == NULL) fetch_release(job); /* it looked the store up before the engine left that */
    set_checkpoints(engine, job);
    if (job->only_lookup) {
        lookup_answer(engine, job);
        return;
    }
    job_enter(job, JOB_QUEUED);
    fetch_ahead(engine, job);
    job_list_append(&engine->waiting, job);
}

static bool has_not_begun(const struct job *job)
{
    return job->state == JOB_QUEUED;
}

static bool is_any(const struct job *job)
{
    return job != NULL;
}

/* A drain refuses every job that has no slot. Suspended jobs have begun, and may finish until the deadline. */
static void fail_refused(struct engine *engine)
{
    bool (*matches)(const struct job *) = atomic_load(&engine->stop_now) ? is_any : has_not_begun;
    struct job_list refused = {0};
    struct job *job;
    hearth_error error;
    job_list_move_matching(&engine->waiting, &refused, matches);
    for (size_t i = 0; i < engine->n_slots; i++) job_list_move_matching(&engine->slots[i].queue, &refused, matches);
    error_set(&error, HEARTH_UNAVAILABLE, "engine shutting down");
    pthread_mutex_lock(&engine->mutex);
    engine->drained_pending += refused.len;
    pthread_mutex_unlock(&engine->mutex);
    while ((job = job_list_take_first(&refused)) != NULL) finish_waiting(engine, job, &error);
}

/* Sleeps until there is mail. While every slot waits for the store, wakes for pending evictions, and for jobs that wait
 * for a slot. */
static void sleep_until_mail(struct engine *engine)
{
    engine->busy = engine->stalled;
    if (!engine->busy) pthread_cond_broadcast(&engine->drained);
    int64_t deadline = engine->stalled ? evict_deadline(engine) : CLOCK_NEVER;
    if (engine->stalled && engine->waiting.first != NULL) {
        int64_t step = clock_now(engine->clock) + STALLED_STEP;
        if (step < deadline) deadline = step;
    }
    engine->clock->wait(engine->clock, &engine->mail, &engine->mutex, deadline);
    if (clock_now(engine->clock) >= deadline) engine->stalled = false;
}

/* Accepts the jobs and orders that have come in; sleeps first when there is nothing to do. False: the engine ends. */
static bool take_mail(struct engine *engine)
{
    pthread_mutex_lock(&engine->mutex);
    while (engine->inbox.first == NULL && !engine->poked && !engine->closing && !has_work(engine))
        sleep_until_mail(engine);
    engine->busy = true;
    engine->poked = false;
    struct job_list mail = engine->inbox;
    struct engine_order *orders = engine->orders;
    engine->inbox = (struct job_list){0};
    engine->orders = NULL;
    bool draining = engine->draining, closing = engine->closing;
    pthread_mutex_unlock(&engine->mutex);
    struct job *job;
    forget_changed(engine);
    while ((job = job_list_take_first(&mail)) != NULL) accept_job(engine, job);
    orders_carry_out(engine, orders);
    if (draining) fail_refused(engine);
    return !closing || has_work(engine);
}

static void work(struct engine *engine)
{
    bool fetched = fetch_step(engine), computes = false;
    media_step(engine);
    for (size_t i = 0; i < engine->n_slots; i++) computes = computes || slot_computes(&engine->slots[i]);
    if (computes) {
        idle_step(engine);
        compaction_step(engine);
        tick(engine);
    }
    engine->copied = save_step(engine) || fetched;
    bool cleared = finish_clear_saved(engine);
    engine->stalled = any_slot_busy(engine) && !computes && !engine->copied && !cleared;
}

static void *run(void *ud)
{
    struct engine *engine = ud;
    thread_claim(&engine->owner);
    llm_begin_computing(engine->context);
    log_event(LOG_INFO, "batch-engine", "started", log_str("model", engine->name),
              log_int("slots", (int64_t)engine->n_slots), log_int("context_window", engine->window),
              log_int("n_batch", engine->n_batch));
    while (take_mail(engine)) {
        evict_step(engine);
        finish_cancelled(engine);
        preempt_carry_out(engine);
        place_jobs(engine);
        preempt_decide(engine);
        status_publish(engine);
        work(engine);
        status_publish(engine);
        engine_check(engine);
    }
    save_all(engine);
    thread_release(&engine->owner);
    log_event(LOG_INFO, "batch-engine", "stopped", log_str("model", engine->name));
    return NULL;
}

/* ---- From other threads ---- */

void engine_submit(struct engine *engine, struct job *job)
{
    job->queued_at = clock_now(engine->clock);
    pthread_mutex_lock(&engine->mutex);
    bool refused = engine->draining;
    if (!refused) {
        job_enter(job, JOB_SUBMITTED);
        job_list_append(&engine->inbox, job);
        engine->busy = true;
        pthread_cond_signal(&engine->mail);
    }
    pthread_mutex_unlock(&engine->mutex);
    if (refused) job_fail_with(job, HEARTH_UNAVAILABLE, "submit: engine shutting down");
}

bool engine_give_order(struct engine *engine, struct engine_order *order)
{
    order->next = NULL;
    pthread_mutex_lock(&engine->mutex);
    bool taken = !engine->draining;
    struct engine_order **last = &engine->orders;
    while (*last != NULL) last = &(*last)->next;
    if (taken) {
        *last = order;
        engine->poked = true;
        pthread_cond_signal(&engine->mail);
    }
    pthread_mutex_unlock(&engine->mutex);
    return taken;
}

void engine_poke(struct engine *engine)
{
    pthread_mutex_lock(&engine->mutex);
    engine->poked = true;
    pthread_cond_signal(&engine->mail);
    pthread_mutex_unlock(&engine->mutex);
}

void engine_drain(struct engine *engine, int64_t deadline)
{
    pthread_mutex_lock(&engine->mutex);
    bool first = !engine->draining;
    if (first)
        log_event(LOG_INFO, "batch-engine", "drain-started", log_str("model", engine->name),
                  log_int("active_slots", metric_get(&engine->stats->slots_busy)));
    engine->draining = true;
    engine->poked = true;
    engine->busy = true;
    pthread_cond_signal(&engine->mail);
    while (engine->busy) {
        if (deadline != CLOCK_NEVER && clock_now(engine->clock) >= deadline &&
            !atomic_exchange(&engine->stop_now, true)) {
            engine->poked = true;
            pthread_cond_signal(&engine->mail);
        }
        int64_t until = atomic_load(&engine->stop_now) ? CLOCK_NEVER : deadline;
        engine->clock->wait(engine->clock, &engine->drained, &engine->mutex, until);
    }
    if (first)
        log_event(LOG_INFO, "batch-engine", "drain-finished", log_str("model", engine->name),
                  log_int("drained_pending", (int64_t)engine->drained_pending));
    pthread_mutex_unlock(&engine->mutex);
}

/* ---- Life ---- */

static void init_slots(struct engine *engine, size_t n_slots, size_t n_seqs)
{
    engine->n_slots = n_slots;
    engine->n_seqs = n_seqs;
    engine->slots = mem_alloc(n_slots * sizeof *engine->slots);
    engine->seqs = mem_alloc(n_seqs * sizeof *engine->seqs);
    engine->needs = mem_alloc(n_slots * sizeof *engine->needs);
    engine->status = mem_alloc(n_slots * sizeof *engine->status);
    engine->residents = mem_alloc(n_seqs * sizeof *engine->residents);
    engine->stored = mem_alloc(n_seqs * sizeof *engine->stored);
    for (size_t i = 0; i < n_slots; i++) engine->slots[i].id = (int32_t)i;
    for (size_t i = 0; i < n_seqs; i++) {
        engine->seqs[i].id = (int32_t)i;
        llm_seq_set_media(engine->context, (int32_t)i, &engine->seqs[i].media);
    }
    sharing_init(&engine->sharing, n_seqs);
    plan_init(&engine->plan, n_slots);
    adapter_turns_init(&engine->turns, n_slots, engine->n_adapters, engine->tick_budget.max_ns);
    status_publish(engine);
}

static void free_engine(struct engine *engine)
{
    atomic_store(&engine->stats->slots_busy, 0); /* the counters may outlive the engine, its gauges may not */
    atomic_store(&engine->stats->jobs_waiting, 0);
    atomic_store(&engine->stats->snapshot_bytes, 0);
    atomic_store(&engine->stats->threads, 0);
    if (engine->joined != NULL) store_remove_user(engine->joined, engine->user);
    for (size_t i = 0; i < engine->n_seqs; i++) {
        tokens_release(&engine->seqs[i].tokens);
        media_spans_release(&engine->seqs[i].media);
        suffix_index_release(&engine->seqs[i].suffixes);
        save_release(&engine->seqs[i]);
    }
    draft_model_close(engine->drafting.model);
    for (size_t i = 0; i < engine->n_slots; i++) draft_mark_release(&engine->slots[i].mark);
    free(engine->user);
    llm_state_format_close(engine->format);
    snapshots_close(engine->snapshots);
    llm_context_close(engine->context);
    plan_release(&engine->plan);
    adapter_turns_release(&engine->turns);
    pthread_mutex_destroy(&engine->mutex);
    pthread_mutex_destroy(&engine->status_mutex);
    pthread_cond_destroy(&engine->mail);
    pthread_cond_destroy(&engine->drained);
    sharing_release(&engine->sharing);
    free(engine->slots);
    free(engine->seqs);
    free(engine->needs);
    free(engine->status);
    free(engine->residents);
    free(engine->stored);
    free(engine->batch);
    buf_release(&engine->token_bytes);
    llm_logprobs_close(engine->logprobs);
    free(engine->name);
    free(engine);
}

static void wake(void *ud)
{
    engine_poke(ud);
}

static bool may_store(void *ud)
{
    return file_watch_check(((struct engine *)ud)->watch) == FILES_SAME;
}

/* Snapshots and stored cells depend on these, beside weights and tokens. */
static struct identity identity_of(const struct engine *engine, const struct engine_params *params,
                                   struct identity identity)
{
    const struct llm_context_params *c = &params->context;
    struct buf text = {0};
    buf_append(&text, identity.context, sizeof identity.context);
    llm_context_describe(engine->context, &text);
    buf_printf(&text, "deterministic %d\n", engine->deterministic);
    if (engine->deterministic) { /* the last bits depend on these, too: only such runs as this one reuse its cells */
        buf_printf(&text, "rows %d\nthreads %d\noffload %d %d\nlayers %d\ncpu %s\nbuild %s\n",
                   c->n_ubatch < PREFILL_CHUNK ? c->n_ubatch : PREFILL_CHUNK, llm_threads(engine->context),
                   c->offload_kqv, c->op_offload, params->n_gpu_layers, llm_cpu_features(), llm_build());
        llm_describe_gpus(&text);
    }
    sha256_of(text.v, text.len, identity.context);
    buf_release(&text);
    return identity;
}

/* Connects the engine to the store where anything is cached, where restored cells are exact if that was promised, and
 * where src/llm can split the state of this model. */
static void join_store(struct engine *engine, const struct engine_params *params)
{
    if (params->store == NULL || !cache_policy_keeps(&engine->policy) || !engine->policy.loads_states) return;
    hearth_error error;
    struct identity identity = {0};
    if (params->identify != NULL && !params->identify(params->identify_ud, &identity)) return;
    engine->format = llm_state_format_open(engine->context, &error);
    if (engine->format == NULL) {
        log_event(LOG_WARN, "store", "off for this model", log_str("model", engine->name),
                  log_str("reason", error.message));
        return;
    }
    engine->store = engine->joined = params->store;
    engine->store_sharers = params->store_sharers > 0 ? params->store_sharers : 1;
    engine->stride = params->stride;
    engine->continued_interval = params->continued_interval;
    engine->evict_timeout_ns = params->evict_timeout_ns;
    engine->user = mem_alloc(sizeof *engine->user);
    *engine->user = (struct store_user){.identity = identity_of(engine, params, identity),
                                        .codec = codec_of(engine->format),
                                        .wake = wake,
                                        .may_store = may_store,
                                        .ud = engine};
    store_expect(engine->store, llm_state_format_row_bytes(engine->format) * (uint64_t)engine->stride);
}

static int open_draft_model(struct engine *engine, const struct engine_params *params, hearth_error *error)
{
    if (!engine->drafts || params->draft.model.model == NULL) return HEARTH_OK;
    struct draft_model_params model = params->draft.model;
    if (model.context.head == LLM_HEAD_EAGLE) model.context.other = engine->context;
    engine->drafting.model = draft_model_open(&model, params->max_token_gap_ns / DRAFT_GAP_PART, engine->clock, error);
    if (engine->drafting.model != NULL) return HEARTH_OK;
    if (!params->draft.model.optional) return (int)error->code;
    log_event(LOG_WARN, "batch-engine", "no-draft-model", log_str("model", engine->name),
              log_str("reason", error->message));
    return HEARTH_OK;
}

struct engine *engine_open(const struct engine_params *params, hearth_error *error)
{
    struct engine *engine = mem_alloc(sizeof *engine);
    struct llm_context_params context = params->context;
    context.abort = should_abort;
    context.ud = engine;
    engine->context = llm_context_open(params->model, &context, error);
    if (engine->context == NULL) {
        free(engine);
        return NULL;
    }
    engine->name = mem_strdup(params->name);
    engine->model = params->model;
    engine->adapters = params->adapters;
    engine->n_adapters = params->n_adapters;
    engine->logprobs = llm_logprobs_open(params->model);
    engine->clock = params->clock;
    engine->watch = params->watch;
    engine->changes = file_watch_changes(params->watch);
    engine->stats = params->stats != NULL ? params->stats : &engine->own_stats;
    engine->window = context.window;
    engine->n_batch = context.n_batch;
    engine->n_ubatch = context.n_ubatch < context.n_batch ? context.n_ubatch : context.n_batch;
    engine->deterministic = params->deterministic;
    engine->slot_timeout_ns = params->slot_timeout_ns;
    engine->preempt_fails = params->preempt_fails;
    engine->logs_words = params->logs_words;
    engine->snapshots = snapshots_open(params->snapshot_budget);
    engine->batch = mem_alloc((size_t)context.n_batch * sizeof *engine->batch);
    tick_budget_init(&engine->tick_budget, params->max_token_gap_ns, PREFILL_CHUNK / 2);
    engine->tick_budget.copies_from = llm_copies_from(engine->context);
    engine->tick_budget.copied_tokens = engine->n_ubatch;
    /* Flash attention splits one token's row among the threads, and the result depends on where. */
    thread_scaling_init(&engine->scaling, llm_threads(engine->context),
                        engine->deterministic || llm_on_devices(engine->context));
    pthread_mutex_init(&engine->mutex, NULL);
    pthread_mutex_init(&engine->status_mutex, NULL);
    clock_cond_init(&engine->mail);
    clock_cond_init(&engine->drained);
    engine->policy = cache_policy_of(&(struct cache_policy_facts){.caching = params->caching,
                                                                  .idle = params->idle,
                                                                  .min_tokens = params->cache_min_tokens,
                                                                  .window = context.window,
                                                                  .deterministic = params->deterministic,
                                                                  .unified = context.unified,
                                                                  .cuts_anywhere = llm_cuts_anywhere(engine->context),
                                                                  .has_window = llm_has_window(engine->context)});
    engine->one_slot_per_call = engine->deterministic || llm_one_seq_a_call(engine->context);
    engine->drafts = draft_init(&engine->drafting, &params->draft) && !engine->one_slot_per_call;
    engine->drafting.marks = !llm_cuts_after_call(engine->context);
    join_store(engine, params);
    init_slots(engine, (size_t)params->n_slots, (size_t)context.n_seq);
    bool opened = open_draft_model(engine, params, error) == HEARTH_OK;
    if (opened && thread_start(&engine->thread, run, engine, "computes", error) == HEARTH_OK) return engine;
    free_engine(engine);
    return NULL;
}

void engine_close(struct engine *engine)
{
    if (engine == NULL) return;
    engine_drain(engine, clock_now(engine->clock));
    pthread_mutex_lock(&engine->mutex);
    engine->closing = true;
    pthread_cond_signal(&engine->mail);
    pthread_mutex_unlock(&engine->mutex);
    pthread_join(engine->thread, NULL);
    free_engine(engine);
}
