/* Computes one tick: plans a batch, decodes it, samples and emits the next tokens.
 *
 * A decode call that fails is split until the fault is found: other requests continue, and only the one that cannot be
 * computed fails. Nothing here ever clears more than the cells of one sequence. Runs on the engine's thread. */
#include "engine/tick.h"
#include "engine/checkpoint_grid.h"
#include "engine/core.h"
#include "engine/draft.h"
#include "engine/engine_status.h"
#include "engine/evict.h"
#include "engine/fetch.h"
#include "engine/save.h"

#include "base/error.h"
#include "base/log.h"

static void compute_call(struct engine *engine, struct plan_share *shares, size_t n);

/* ---- What a tick is to compute ---- */

/* A position of the grid is left out where one of the prompt's own checkpoints is less than so many tokens before it.
 */
#define NEAR_ENOUGH 64

static bool is_near_checkpoint(const struct job *job, int32_t n)
{
    for (size_t i = 0; i < job->n_checkpoints; i++)
        if (job->checkpoints[i] <= n && n - job->checkpoints[i] < NEAR_ENOUGH) return true;
    return false;
}

static int32_t next_on_grid(const struct engine *engine, const struct job *job, int32_t from)
{
    int32_t n = (int32_t)job->prompt.len, most = seq_grid_most(engine, job), next = from;
    do next = checkpoint_grid_after(n, most, next);
    while (next != INT32_MAX && (is_near_checkpoint(job, next) || media_spans_whole(&job->media.spans, next) != next));
    return next;
}

static struct plan_need need_of(const struct engine *engine, const struct slot *slot)
{
    if (!slot_computes(slot)) return (struct plan_need){0};
    const struct seq *seq = slot->seq;
    const struct job *job = slot->job;
    int32_t wanted = (int32_t)seq->tokens.len, to = wanted;
    struct plan_need need = {.from = seq->n_cells,
                             .generating =
                                 slot->state == SLOT_GENERATES && wanted - seq->n_cells == 1 + draft_again(slot),
                             .set = slot->set};
    if (!media_need(slot, &need, &to)) {
        /* The prefill stops at the next checkpoint position, to save one where other prompts may diverge. */
        int32_t next = next_on_grid(engine, job, need.from);
        for (size_t i = 0; i < job->n_checkpoints; i++)
            if (job->checkpoints[i] > need.from && job->checkpoints[i] < next) next = job->checkpoints[i];
        need.to = next < to ? next : to;
    }
    need.scored = score_needs(job, &need);
    return need;
}

/* The prompt tokens that the tick may have. While a reply is being streamed, the tokens that its time limit allows. The
 * same while several prompts are computed, so that a short one does not wait for much of a long one. A prompt that is
 * alone gets a micro-batch. So it loses nothing and is always cut at the same positions, and a request that comes
 * meanwhile waits for no more than that. */
static int32_t prompt_budget(struct engine *engine, const struct adapter_turn *turn, int32_t generating,
                             int32_t prompts)
{
    int32_t drafted = 0;
    for (size_t i = 0; i < engine->n_slots; i++) {
        const struct plan_need *need = &engine->needs[i];
        drafted += need->drafted + (need->generating ? need->to - need->from - 1 : 0);
    }
    bool known = tick_budget_token_ns(&engine->tick_budget) > 0;
    if (turn->replies_only) return 0;
    if (generating == 0 && (prompts < 2 || !known)) return engine->n_ubatch;
    struct tick_room room = {
        .ns = turn->ns, .reply_tokens = engine->turns.sets[turn->set].replies + drafted, .most = engine->n_batch};
    return tick_budget_next(&engine->tick_budget, &room);
}

static bool is_held(const struct engine *engine, size_t i, int64_t now)
{
    const struct run *run = engine->slots[i].run;
    return engine->needs[i].generating && run->held_until > now;
}

/* A slot is held back only while others compute. */
static void find_needs(struct engine *engine)
{
    int64_t now = clock_now(engine->clock);
    bool others = false;
    for (size_t i = 0; i < engine->n_slots; i++) {
        engine->slots[i].mark.n = 0;
        engine->needs[i] = need_of(engine, &engine->slots[i]);
        others = others || (engine->needs[i].from < engine->needs[i].to && !is_held(engine, i, now));
    }
    for (size_t i = 0; others && i < engine->n_slots; i++)
        if (is_held(engine, i, now)) engine->needs[i] = (struct plan_need){0};
}

/* Returns the prompt tokens that the tick was allowed. */
static int32_t make_plan(struct engine *engine)
{
    int32_t generating = 0, prompts = 0; /* under all sets of adapters */
    engine->drafting.own_ns = 0;
    engine->drafting.accepted = 0;
    engine->drafting.fewest = INT32_MAX;
    find_needs(engine);
    for (size_t i = 0; i < engine->n_slots; i++) {
        const struct plan_need need = engine->needs[i];
        generating += need.generating;
        prompts += !need.generating && need.from < need.to;
    }
    struct adapter_turn turn =
        adapter_turns_next(&engine->turns, engine->needs, engine->n_slots, clock_now(engine->clock));
    size_t *first = &engine->turns.sets[turn.set].first;
    bool suspect = false, scores = false;
    for (size_t i = 0; i < engine->n_slots; i++) {
        const struct slot *slot = &engine->slots[i];
        /* A call of the set's failed, and it is not known yet which slot caused it. */
        if (slot->seq != NULL && slot->set == turn.set && slot->seq->n_cells < slot->suspect_until) suspect = true;
        if (engine->needs[i].scored && engine->needs[i].set == turn.set) scores = true;
    }
    if (!suspect) draft_plan(engine, &turn);
    int32_t scored = PREFILL_CHUNK;
    if (generating > 0 && !engine->deterministic && scores) { /* beside streams its time is taken from the turn */
        scored = score_rows(engine, turn.ns);
        turn.ns -= scored * engine->score_ns;
    }
    struct plan_limits limits = {.set = turn.set,
                                 .n_batch = engine->n_batch,
                                 .scored = scored,
                                 .budget = prompt_budget(engine, &turn, generating, prompts),
                                 .streaming = generating > 0,
                                 .deterministic = engine->deterministic,
                                 .one_slot_per_call = engine->one_slot_per_call || suspect,
                                 .first = *first};
    plan_make(&engine->plan, engine->needs, engine->n_slots, &limits);
    *first = engine->plan.first;
    return limits.budget;
}

/* ---- After a successful decode ---- */

/* From here on the conversation's messages, all but the last, name the sequence in logs and status. */
static void note_messages(struct slot *slot)
{
    const struct conversation *c = &slot->job->conversation;
    struct seq *seq = slot->seq;
    if (c->stable_end == 0 || seq->n_cells < c->stable_end || !slot->job->cache_prompt) return;
    size_t n = c->n_messages - 1;
    if (seq->n_messages == n && seq->message_tokens == c->stable_end && seq->message_hash == c->hashes[n]) return;
    seq->n_messages = n;
    seq->message_tokens = c->stable_end;
    seq->message_hash = c->hashes[n];
    reuse_log_built(slot);
}

static void apply_share(struct engine *engine, const struct plan_share *share, int32_t first_token)
{
    struct slot *slot = &engine->slots[share->slot];
    struct seq *seq = slot->seq;
    int32_t n = share->to - share->from;
    score_share(engine, slot, share, first_token);
    if (seq->n_exact == share->from && prefill_chunk_end(&seq->media, share->from) == share->from)
        seq->n_exact = prefill_chunk_end(&seq->media, share->to);
    seq->n_cells = share->to;
    media_computed(slot, share);
    int32_t of_prompt = (share->to < slot->run->n_prompt ? share->to : slot->run->n_prompt) - share->from;
    if (of_prompt > 0) metric_add(&engine->stats->prompt_tokens, of_prompt);
    bool at_checkpoint = false;
    if (slot->state == SLOT_PREFILLS) {
        for (size_t i = 0; slot->job->cache_prompt && i < slot->job->n_checkpoints; i++)
            at_checkpoint = at_checkpoint || slot->job->checkpoints[i] == seq->n_cells;
        if (at_checkpoint || next_on_grid(engine, slot->job, seq->n_cells - 1) == seq->n_cells)
            seq_save_checkpoint(engine, seq);
        if (engine->policy.keeps_conversations) note_messages(slot);
    }
    slot->run->sampled_ns = 0;
    slot->run->draft.back_to = 0; /* a wrong draft of this call sets it again */
    if (share->drafted > 0) sample_drafted(engine, slot, share->drafted, first_token + n - 1);
    save_progress(engine, slot, at_checkpoint);
    slot_tell_progress(engine, slot);
    if (share->drafted == 0 && seq->n_cells == (int32_t)seq->tokens.len) sample_one(engine, slot, first_token + n - 1);
}

/* ---- After a failed one ---- */

static void fail_share(struct engine *engine, const struct plan_share *share, enum llm_decoded outcome)
{
    static const struct {
        hearth_code code;
        const char *message;
    } texts[] = {
        [LLM_NO_CELLS] = {HEARTH_TOO_LONG, "unable to process request: the context window is full. Please reduce the "
                                           "input size or increase the context window"},
        [LLM_ABORTED] = {HEARTH_CANCELLED, "request was cancelled"},
        [LLM_REFUSED] = {HEARTH_INTERNAL, "unable to process request: the input could not be processed. Please try "
                                          "reducing the input size or context length"},
        [LLM_FAILED] = {HEARTH_INTERNAL, "an internal error occurred while processing your request"},
    };
    struct slot *slot = &engine->slots[share->slot];
    hearth_error error;
    error_set(&error, texts[outcome].code, "%s", texts[outcome].message);
    log_event(LOG_WARN, "batch-engine", "decode-error", log_int("slot", slot->id), log_str("id", slot->job->id),
              log_int("position", share->from), log_int("tokens", share->to - share->from),
              log_str("error", error.message));
    finish_failed(engine, slot, &error);
}

/* The slot that gives up its cells when not even one more token fits: the prompt with most cells, before any reply.
 * NULL where that would help nobody, because no other slot is computing. */
static struct slot *choose_yielding(struct engine *engine, struct slot *starved)
{
    struct slot *most = NULL;
    size_t computed = 0;
    for (size_t i = 0; i < engine->n_slots; i++) {
        struct slot *slot = &engine->slots[i];
        if (slot->seq == NULL || slot_has_yielded(slot)) continue;
        computed++;
        if (slot_state_shown(slot->state) == HEARTH_SLOT_PREFILL &&
            (most == NULL || slot->seq->n_cells > most->seq->n_cells))
            most = slot;
    }
    if (computed < 2) return NULL;
    return most != NULL ? most : starved;
}

static bool yield_cells(struct engine *engine, struct slot *starved)
{
    struct slot *slot = choose_yielding(engine, starved);
    if (slot == NULL) return false;
    log_event(LOG_INFO, "batch-engine", "slot-yielded", log_int("slot", slot->id), log_str("id", slot->job->id),
              log_int("tokens", slot->seq->n_cells));
    fetch_stop(engine, slot);
    seq_cut_to(engine, slot->seq, 0);
    slot_enter(slot, slot->state == SLOT_GENERATES ? SLOT_REPLY_YIELDED : SLOT_PREFILL_YIELDED);
    return true;
}

static void split_call(struct engine *engine, struct plan_share *shares, size_t n, enum llm_decoded outcome)
{
    if (n > 1) {
        compute_call(engine, shares, n / 2);
        compute_call(engine, shares + n / 2, n - n / 2);
    } else if (outcome == LLM_NO_CELLS && shares->to - shares->from > 1 && !engine->needs[shares->slot].at_once) {
        shares->to = shares->from + (shares->to - shares->from) / 2; /* the rest comes with the next tick */
        compute_call(engine, shares, 1);
    } else if (outcome == LLM_NO_CELLS && yield_cells(engine, &engine->slots[shares->slot])) {
        compute_call(engine, shares, 1);
    } else {
        fail_share(engine, shares, outcome);
    }
}

/* A call that cannot be made is tried with less of the drafts before anything else is done about it: with half of them,
 * or none. False: it has none. */
static bool drop_drafts(struct engine *engine, struct plan_share *shares, size_t n, bool half)
{
    int32_t dropped = 0;
    for (size_t i = 0; i < n; i++) {
        int32_t left = half ? shares[i].drafted / 2 : 0;
        dropped += shares[i].drafted - left;
        shares[i].drafted = left;
    }
    if (dropped > 0) draft_dropped(engine, !half);
    engine->plan.n_tokens -= dropped;
    engine->plan.n_drafted -= dropped;
    return dropped > 0;
}

static void recover(struct engine *engine, struct plan_share *shares, size_t n, enum llm_decoded outcome)
{
    /* Some tokens may have reached their cells before the call ended: back to n_cells. */
    if (outcome == LLM_ABORTED || outcome == LLM_FAILED) seq_verify_all(engine);
    /* Sequences whose cells cannot be cut have lost all of them in the failed call. Each slot computes up to this
     * position in calls of its own, which shows the one that fails. */
    for (size_t i = 0; outcome == LLM_FAILED && i < n; i++) engine->slots[shares[i].slot].suspect_until = shares[i].to;
    /* Aborted: the cancelled requests are finished before the next tick, which computes the others again. */
    if (outcome == LLM_ABORTED) return;
    if (drop_drafts(engine, shares, n, false))
        compute_call(engine, shares, n);
    else
        split_call(engine, shares, n, outcome);
}

/* ---- One decode call ---- */

/* Fills the batch for the call, unless it has rows in the place of tokens; returns how many of either. */
static int32_t fill_batch(struct engine *engine, const struct plan_share *shares, size_t n)
{
    int32_t n_tokens = 0;
    if (engine->needs[shares->slot].rows) return shares->to - shares->from;
    for (size_t i = 0; i < n; i++) {
        const struct seq *seq = engine->slots[shares[i].slot].seq;
        for (int32_t pos = shares[i].from; pos < shares[i].to; pos++)
            engine->batch[n_tokens++] =
                (struct llm_batch_token){.token = seq->tokens.v[pos],
                                         .pos = pos,
                                         .seq = seq->id,
                                         .logits = score_wants(engine->slots[shares[i].slot].job, pos)};
        if (shares[i].to == (int32_t)seq->tokens.len) engine->batch[n_tokens - 1].logits = true;
        for (int32_t k = 0; k < shares[i].drafted; k++)
            engine->batch[n_tokens++] =
                (struct llm_batch_token){.token = engine->slots[shares[i].slot].run->draft.tokens[k],
                                         .pos = shares[i].to + k,
                                         .seq = seq->id,
                                         .logits = true};
    }
    return n_tokens;
}

static enum llm_decoded decode(struct engine *engine, struct plan_share *shares, size_t n, int32_t n_tokens)
{
    llm_adapt(engine->context, &(struct llm_adapters){.v = engine->adapters,
                                                      .scales = engine->slots[shares->slot].job->scales,
                                                      .n = engine->n_adapters});
    engine->running = shares;
    engine->n_running = n;
    int64_t begin = clock_now(engine->clock), cpu_begin = clock_cpu_of_process();
    enum llm_decoded outcome = engine->needs[shares->slot].rows ? media_decode(engine, shares)
                                                                : llm_decode(engine->context, engine->batch, n_tokens);
    /* A part of the first call after a switch of adapters is the switch: a call's cost is learned from the rest. */
    int64_t ns = clock_now(engine->clock) - begin;
    int64_t switching = engine->switching_ns < ns / 2 ? engine->switching_ns : ns / 2;
    engine->switching_ns = 0;
    engine->switched_ns += switching;
    engine->computed.ns += ns - switching;
    engine->computed.cpu_ns += clock_cpu_of_process() - cpu_begin - switching; /* one thread does it */
    engine->n_running = 0;
    metric_add(&engine->stats->decode_calls, 1);
    return outcome;
}

/* Takes prompts out of the call until a pending eviction has freed cells; returns the shares left, which are
 * replies. */
static size_t postpone_prompts(struct engine *engine, struct plan_share *shares, size_t n)
{
    size_t left = 0;
    for (size_t i = 0; i < n; i++) {
        struct slot *slot = &engine->slots[shares[i].slot];
        int32_t n_tokens = shares[i].to - shares[i].from;
        if (slot->state == SLOT_GENERATES) {
            shares[left++] = shares[i];
            continue;
        }
        slot_enter(slot, SLOT_PREFILL_AWAITS_ROOM);
        engine->plan.n_tokens -= n_tokens; /* not computed, so they must not count in the cost per token */
        engine->plan.n_prompt_tokens -= n_tokens;
    }
    return left;
}

/* Evicts for the call, or at least for the shares that cannot wait. False: the call cannot be made. Where a cut takes a
 * restore from a checkpoint, and a save, there is one cut for the prompts as a whole. */
static bool evict_for_call(struct engine *engine, struct plan_share *shares, size_t *n, int32_t n_tokens)
{
    bool replies_alone = true;
    int32_t whole = 0; /* cells that the shares take, with what is left of their prompts after them */
    for (size_t i = 0; i < *n; i++) {
        const struct slot *slot = &engine->slots[shares[i].slot];
        int32_t end = (int32_t)slot->job->prompt.len;
        whole += (end > shares[i].to ? end : shares[i].to) - shares[i].from;
        if (slot->state != SLOT_GENERATES) replies_alone = false;
    }
    if (replies_alone) return evict_now(engine, n_tokens);
    enum evict_outcome evicted = evict_for_cells(engine, engine->policy.cuts_anywhere ? n_tokens : whole);
    if (evicted == EVICT_PENDING) *n = postpone_prompts(engine, shares, *n);
    return evicted != EVICT_NOTHING && *n > 0;
}

static void compute_call(struct engine *engine, struct plan_share *shares, size_t n)
{
    size_t n_live = 0;
    for (size_t i = 0; i < n; i++) { /* a slot that gave up its cells meanwhile begins again with a later tick */
        const struct slot *slot = &engine->slots[shares[i].slot];
        if (slot_computes(slot) && slot->seq->n_cells == shares[i].from) shares[n_live++] = shares[i];
    }
    n = n_live;
    if (n == 0) return;
    int32_t n_tokens;
    int64_t before;
    enum llm_decoded outcome;
    do {
        draft_mark(engine, shares, n);
        n_tokens = fill_batch(engine, shares, n);
        before = engine->computed.ns;
        outcome = decode(engine, shares, n, n_tokens);
    } while (outcome == LLM_NO_CELLS &&
             (drop_drafts(engine, shares, n, true) || evict_for_call(engine, shares, &n, n_tokens)));
    if (n == 0) return;
    if (outcome != LLM_DECODED) {
        recover(engine, shares, n, outcome);
        return;
    }
    idle_observe(engine, shares, n, engine->computed.ns - before);
    histogram_observe(&engine->stats->batch, &histogram_tokens, n_tokens);
    engine->computed.n_tokens += n_tokens;
    int32_t first_token = 0;
    for (size_t i = 0; i < n; i++) {
        int32_t rows = plan_rows(&shares[i]);
        apply_share(engine, &shares[i], first_token);
        first_token += rows;
    }
    draft_complete(engine, shares, n); /* needs no logits of the call any more, as what follows may */
    for (size_t i = 0; i < n; i++) end_reply(engine, &engine->slots[shares[i].slot]);
}

/* The tick has ended, after `took` nanoseconds. */
static void note_costs(struct engine *engine, int32_t n_tokens, int32_t allowed, int64_t took)
{
    const struct plan *plan = &engine->plan;
    bool whole = engine->computed.n_tokens == n_tokens;
    struct tick_cost seen = {.prompt_tokens = plan->n_prompt_tokens,
                             .reply_tokens = plan->n_tokens - plan->n_prompt_tokens,
                             .allowed = allowed};
    took = draft_plain_ns(engine, took - engine->drafting.own_ns);
    tick_budget_observe(&engine->tick_budget, &seen, took - engine->switched_ns - engine->scoring_ns);
    struct adapter_tick tick = {.ns = took, .now = clock_now(engine->clock)};
    if (whole) {
        tick.reply_tokens = seen.reply_tokens - plan->n_drafted;
        tick.prompt_tokens = seen.prompt_tokens;
        if (thread_scaling_observe(&engine->scaling, &engine->computed))
            log_event(LOG_DEBUG, "batch-engine", "threads-changed", log_str("model", engine->name),
                      log_int("tokens", n_tokens),
                      log_int("threads", thread_scaling_threads(&engine->scaling, n_tokens)));
    }
    adapter_turns_observe(&engine->turns, &tick);
}

void tick(struct engine *engine)
{
    assert_thread(&engine->owner);
    int64_t begin = clock_now(engine->clock);
    int32_t allowed = make_plan(engine);
    struct plan *plan = &engine->plan;
    int32_t n_tokens = plan->n_tokens, threads = thread_scaling_threads(&engine->scaling, n_tokens);
    llm_set_threads(engine->context, threads);
    engine->computed = (struct scaling_tick){0};
    engine->switching_ns = (int64_t)adapter_turns_switch_ns(&engine->turns);
    engine->switched_ns = engine->scoring_ns = 0;
    for (size_t i = 0; i < plan->n_calls; i++)
        compute_call(engine, plan->shares + plan->calls[i], plan->calls[i + 1] - plan->calls[i]);
    int64_t took = clock_now(engine->clock) - begin;
    draft_learn(engine);
    note_costs(engine, n_tokens, allowed, took);
    atomic_store_explicit(&engine->stats->threads, threads, memory_order_relaxed);
    metric_add(&engine->stats->ticks, 1);
    histogram_observe(&engine->stats->tick, &histogram_seconds, clock_to_ms(took) / 1e3);
}
