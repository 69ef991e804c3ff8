/* Chooses the cheapest reuse plan of a request. It continues on a sequence, shares its prefix, restores a snapshot,
 * fetches from the store, waits for a prefix that another slot computes, or computes everything. With a stream of cells
 * for each sequence it may also queue for the slot that computes on its conversation. Costs are counted in tokens to
 * compute. Evictions, and the time to copy or to wait, are converted into tokens.
 *
 * Only tokens decide: a sequence offers as many cells as it has leading tokens in common with the prompt. Reads the
 * engine's state and changes nothing but the store's lookup; place.c carries the plan out. Runs on the engine's
 * thread. */
#include "engine/reuse_plan.h"
#include "engine/checkpoint_grid.h"
#include "engine/core.h"
#include "engine/evict.h"
#include "engine/tick.h"

/* Loading a snapshot takes about as long as computing this part of its tokens. */
#define LOADING_PART 64

/* The cost of fetching follows from the store's recent read times. Until a computed token's time is known, fetching is
 * assumed to take this part of computing. */
#define FETCHING_PART 32

/* Fetching leaves the CPUs to others: so short a time, in nanoseconds, costs nothing. */
#define SOON_NS 5e6

/* A request waits for a prefix that another slot is computing if that saves at least so many tokens; the wait itself
 * counts as half of them. */
#define WORTH_WAITING 64

/* The cost of waiting for a slot that generates, in tokens: seconds on a CPU, and the length of a reply is unknown. */
#define WORTH_QUEUEING 1024

/* ---- What a sequence offers ---- */

/* Leading tokens of the prompt that may be reused. The last one is always computed: its logits give the first token of
 * the reply. */
static int32_t reusable(const struct engine *engine, const struct job *job)
{
    int32_t all = score_reusable(job, (int32_t)job->wanted->len - 1), system = job->conversation.system_end;
    if (!job->cache_prompt || !cache_policy_keeps(&engine->policy)) return 0;
    return engine->policy.keeps_system_prompts && system < all ? system : all;
}

/* Leading tokens that the prompt has in common with the sequence. */
static int32_t common_tokens(const struct engine *engine, const struct seq *seq, const struct job *job)
{
    if (seq->scope != job->scope) return 0;
    int32_t n = (int32_t)tokens_common_prefix(&seq->tokens, job->wanted), most = reusable(engine, job);
    return cache_policy_whole(&engine->policy, &job->media.spans, n < most ? n : most);
}

/* Likewise, if they are enough for cache_min_tokens. */
static int32_t matching(const struct engine *engine, const struct seq *seq, const struct job *job)
{
    return cache_policy_worth(&engine->policy, common_tokens(engine, seq, job));
}

/* How many of `match` common tokens the sequence can give now, enough for cache_min_tokens or not. The media among them
 * are the same as in the prompt. */
static int32_t available(const struct engine *engine, const struct seq *seq, int32_t match)
{
    int32_t n = cache_policy_exact(&engine->policy, match < seq->n_cells ? match : seq->n_cells, seq->n_exact);
    n = cache_policy_whole(&engine->policy, &seq->media, n);
    /* The checkpoints of a stream are for its own slot, since llama.cpp copies whole streams with the next call
     * only. */
    bool only_whole = seq->slot != NULL && !engine->policy.shares_parts;
    if (only_whole && n != seq->n_cells) return 0;
    return seq_can_keep(engine, seq, n);
}

static int32_t usable(const struct engine *engine, const struct seq *seq, int32_t match)
{
    return cache_policy_worth(&engine->policy, available(engine, seq, match));
}

/* How many of `match` common tokens the sequence will be able to give while its slot computes on. Where cells cannot be
 * cut: at the slot's checkpoints, and with a stream of cells for each sequence only at a system prompt's. */
static int32_t available_later(const struct engine *engine, const struct seq *seq, int32_t match)
{
    if (engine->policy.cuts_anywhere) return match;
    if (engine->policy.queues_for_slot) return 0;
    const struct job *job = seq->slot->job;
    int32_t n = checkpoint_grid_before((int32_t)job->prompt.len, seq_grid_most(engine, job), match);
    if (n <= seq->n_cells) n = 0;
    for (size_t i = 0; i < job->n_checkpoints; i++) {
        int32_t position = job->checkpoints[i];
        if (position <= match && position > seq->n_cells && position > n) n = position;
    }
    return n;
}

bool seq_is_prefilling(const struct seq *seq)
{
    return seq->state == SEQ_RUNNING && slot_state_shown(seq->slot->state) == HEARTH_SLOT_PREFILL &&
           seq->slot->state != SLOT_PREFILL_YIELDED;
}

/* ---- Costs ---- */

/* Among plans of equal cost, prefers continuing on a sequence, if nothing is lost by it, then sharing. */
static int preference(const struct placement *p)
{
    return p->how == PLACE_CONTINUE ? 0 : p->how == PLACE_SHARE ? 1 : 2;
}

static void keep_cheaper(struct placement *best, struct placement other)
{
    int better = preference(best) - preference(&other);
    bool older = best->source != NULL && other.source != NULL && other.source->last_used < best->source->last_used;
    bool preferred = better > 0 || (better == 0 && older);
    if (other.cost < best->cost || (other.cost == best->cost && preferred)) *best = other;
}

/* The cost of cutting the sequence to n cells: half of the cells lost, since perhaps no request wants them again, while
 * what is computed now is certain. Nothing if it is the next victim anyway. With a stream of cells for each sequence
 * some sequence must be evicted. One pool of cells evicts only when it is full. */
static int64_t cost_of_losing(const struct engine *engine, const struct seq *seq, int32_t n)
{
    bool is_next = !engine->policy.one_pool && next_victim(engine, ROOM_FOR_SEQ, NULL).seq == seq;
    return is_next ? 0 : (seq->n_cells - n + 1) / 2;
}

static int64_t cost_of_seq(const struct engine *engine, const struct seq *but_not)
{
    if (engine->policy.one_pool) return 0;
    const struct seq *victim = next_victim(engine, ROOM_FOR_SEQ, but_not).seq;
    return victim == NULL ? 0 : cost_of_losing(engine, victim, 0);
}

static void consider_continue(const struct engine *engine, const struct job *job, struct seq *seq, int32_t n,
                              struct placement *best)
{
    if (seq->slot != NULL || n == 0 || seq->suspended != NULL) return;
    /* Going back to a checkpoint on the sequence itself may find no room: its present sliding window is freed for the
     * saved one, unless another sequence shares it. A new sequence can wait for room; this one could not. */
    bool may_fail = sharing_most(&engine->sharing, seq->id) > 0 && llm_has_window(engine->context) &&
                    !llm_seq_can_cut(engine->context, seq->id, n);
    /* Another prompt leaves a kept conversation whole, as long as there is another sequence to take. */
    bool is_kept = seq->kept && !orders_continue(job, seq, n);
    if ((may_fail || is_kept) && can_have_seq(engine, seq)) return;
    /* With a stream of cells for each sequence keeping all cells would take another one, with all that it has: only
     * what is lost beyond that counts. */
    const struct seq *other = engine->policy.one_pool ? NULL : next_victim(engine, ROOM_FOR_SEQ, NULL).seq;
    int32_t evicted = other == NULL ? 0 : other->n_cells;
    int64_t cost = (int64_t)job->wanted->len - n;
    if (seq->n_cells - n > evicted) cost += cost_of_losing(engine, seq, n + evicted);
    keep_cheaper(best, (struct placement){.how = PLACE_CONTINUE, .source = seq, .n = n, .cost = cost});
}

/* In one pool of cells sharing is free, and leaves whatever follows the prefix in place. With a stream of cells for
 * each sequence, cells that cannot be cut are shared whole or not at all. */
static void consider_share(const struct engine *engine, const struct job *job, struct seq *seq, int32_t n,
                           struct placement *best)
{
    bool whole = n == seq->n_cells;
    if (n == 0 || !can_have_seq(engine, seq) || (!whole && !engine->policy.shares_parts)) return;
    int64_t cost = (int64_t)job->wanted->len - n + engine->policy.sharing_cost + cost_of_seq(engine, seq);
    keep_cheaper(best, (struct placement){.how = PLACE_SHARE, .source = seq, .n = n, .cost = cost});
}

static void consider_wait(const struct engine *engine, const struct job *job, struct seq *seq, int32_t n, int32_t match,
                          struct placement *best)
{
    if (!seq_is_prefilling(seq)) return;
    int32_t later = available_later(engine, seq, match);
    if (later < n + WORTH_WAITING) return;
    int64_t cost = (int64_t)job->wanted->len - later + WORTH_WAITING / 2;
    keep_cheaper(best, (struct placement){.how = PLACE_WAIT, .source = seq, .n = later, .cost = cost});
    /* A slot that fetches from the store has its cells soon, and they need not be in the cells twice. */
    int32_t soon = !slot_is_fetching(seq->slot) ? 0 : later < seq->slot->fetching.n ? later : seq->slot->fetching.n;
    if (soon < n + WORTH_WAITING) return;
    keep_cheaper(best, (struct placement){
                           .how = PLACE_WAIT, .source = seq, .n = soon, .cost = (int64_t)job->wanted->len - soon});
}

static void consider_snapshots(const struct engine *engine, const struct job *job, struct placement *best)
{
    int32_t n = 0;
    const struct snapshot *snapshot = snapshots_find(engine->snapshots, job->wanted->v, reusable(engine, job),
                                                     job->scope, engine->policy.cuts_anywhere, &n);
    if (snapshot == NULL) return;
    n = cache_policy_exact(&engine->policy, n, snapshot->n_exact);
    n = cache_policy_worth(&engine->policy, cache_policy_whole(&engine->policy, &job->media.spans, n));
    if (n == 0 || (!engine->policy.cuts_anywhere && n != (int32_t)snapshot->tokens.len)) return;
    int64_t loaded = (int64_t)snapshot->tokens.len;
    int64_t cost = (int64_t)job->wanted->len - n + loaded / LOADING_PART + cost_of_seq(engine, NULL);
    keep_cheaper(best, (struct placement){.how = PLACE_RESTORE, .snapshot = snapshot, .n = n, .cost = cost});
}

/* The sequence that has most of the first n tokens in cells that can be shared: those need not be fetched. */
static struct seq *find_shared(const struct engine *engine, const struct job *job, int32_t n, int32_t *shared)
{
    struct seq *most = NULL;
    *shared = 0;
    for (size_t i = 0; i < engine->n_seqs && engine->policy.shares_for_free; i++) {
        struct seq *seq = &engine->seqs[i];
        int32_t has = usable(engine, seq, matching(engine, seq, job));
        if (has > n) has = n;
        if (has <= *shared || !can_have_seq(engine, seq)) continue;
        most = seq;
        *shared = has;
    }
    return most;
}

/* How many of the tokens that the store has can be reused. */
static int32_t fetchable(const struct engine *engine, const struct job *job)
{
    int32_t all = store_hit_tokens(job->hit),
            n = cache_policy_worth(&engine->policy, cache_policy_whole(&engine->policy, &job->media.spans, all));
    return n == all || engine->policy.cuts_anywhere ? n : 0;
}

static void consider_fetch(const struct engine *engine, const struct job *job, struct placement *best)
{
    if (job->hit == NULL || !can_have_seq(engine, NULL)) return;
    double token_ns = tick_budget_token_ns(&engine->tick_budget);
    if (!store_is_fetching(job->hit)) {
        store_find_again(job->hit, job->wanted->v, reusable(engine, job));
        store_choose_tier(job->hit, token_ns);
    }
    int32_t n = fetchable(engine, job);
    if (n == 0) return;
    struct placement fetch = {.how = PLACE_FETCH, .n = n};
    fetch.source = find_shared(engine, job, n, &fetch.shared);
    if (fetch.shared == n) return; /* nothing is left to fetch */
    /* The time to fetch them is converted into tokens that could be computed meanwhile. */
    double ns = store_hit_read_ns(job->hit, fetch.shared, n);
    int64_t meanwhile = (n - fetch.shared) / FETCHING_PART;
    if (token_ns > 0) {
        double tokens = ns > SOON_NS ? ns / token_ns : 0;
        meanwhile = tokens < INT32_MAX ? (int64_t)tokens : INT32_MAX;
    }
    fetch.cost = (int64_t)job->wanted->len - n + meanwhile + 1 + cost_of_seq(engine, NULL);
    keep_cheaper(best, fetch);
}

/* ---- Queueing for a slot ---- */

/* With a stream of cells for each sequence a request that takes another sequence evicts the cells there. If the slot
 * that computes on its conversation has far more of it, the request waits for that slot. */
static void consider_queue(const struct engine *engine, const struct job *job, struct seq *seq, struct placement *best)
{
    if (seq->slot == NULL || slot_state_shown(seq->slot->state) != HEARTH_SLOT_GENERATE) return;
    int32_t match = seq_can_keep(engine, seq, matching(engine, seq, job));
    if (match == 0) return;
    const struct seq *victim = best->how == PLACE_CONTINUE ? NULL : next_victim(engine, ROOM_FOR_SEQ, NULL).seq;
    int64_t evicted_tokens = victim == NULL ? 0 : victim->n_cells;
    int64_t cost = (int64_t)job->wanted->len - match + WORTH_QUEUEING;
    if (cost < best->cost + evicted_tokens)
        *best = (struct placement){.how = PLACE_QUEUE, .source = seq, .n = match, .cost = cost - evicted_tokens};
}

/* ---- Resuming ---- */

/* A suspended request resumes on the very cells that it had, even in deterministic mode in the middle of a chunk.
 * False: they are gone. */
static bool find_suspended(const struct engine *engine, const struct job *job, const struct run *run,
                           struct placement *p)
{
    int32_t n = (int32_t)job->wanted->len - 1;
    struct seq *seq = suspended_in(engine, run);
    if (seq != NULL && seq->n_cells == n)
        *p = (struct placement){.how = PLACE_CONTINUE, .source = seq, .n = n};
    else if (run->snapshot != NULL && (int32_t)run->snapshot->tokens.len == n)
        *p = (struct placement){.how = PLACE_RESTORE, .snapshot = run->snapshot, .n = n};
    else
        return false;
    return true;
}

int32_t find_resident(const struct engine *engine, const struct job *job)
{
    struct placement beside = {.how = PLACE_FRESH, .cost = INT64_MAX};
    consider_snapshots(engine, job, &beside);
    int32_t most = beside.n;
    for (size_t i = 0; i < engine->n_seqs; i++) {
        int32_t n = usable(engine, &engine->seqs[i], matching(engine, &engine->seqs[i], job));
        if (n > most) most = n;
    }
    return most;
}

int32_t find_reusable(const struct engine *engine, const struct job *job, int32_t resident)
{
    int32_t stored = job->hit == NULL ? 0 : fetchable(engine, job);
    return stored > resident ? stored : resident;
}

int32_t find_kept(const struct engine *engine, const struct job *job)
{
    int32_t all = (int32_t)job->prompt.len - 1, system = job->conversation.system_end;
    if (!job->cache_prompt || !cache_policy_keeps(&engine->policy)) return 0;
    int32_t n = engine->policy.keeps_system_prompts && system < all ? system : all;
    return cache_policy_worth(&engine->policy, cache_policy_whole(&engine->policy, &job->media.spans, n));
}

int32_t find_divergence(const struct engine *engine, const struct job *job)
{
    int32_t most = 0;
    for (size_t i = 0; i < engine->n_seqs; i++) {
        const struct seq *seq = &engine->seqs[i];
        int32_t match = matching(engine, seq, job);
        if (match > most) most = match;
    }
    return most;
}

/* The most that could be reused, if it were enough for cache_min_tokens. A system prompt shorter than that is not even
 * kept. */
static int32_t find_too_short(const struct engine *engine, const struct job *job)
{
    bool only_system = engine->policy.keeps_system_prompts && job->cache_prompt;
    int32_t most = only_system ? job->conversation.system_end : 0;
    for (size_t i = 0; i < engine->n_seqs; i++) {
        int32_t n = available(engine, &engine->seqs[i], common_tokens(engine, &engine->seqs[i], job));
        if (n > most) most = n;
    }
    return most < engine->policy.min_tokens ? most : 0;
}

struct placement find_placement(struct engine *engine, const struct job *job, const struct run *run, bool may_queue)
{
    assert_thread(&engine->owner);
    struct placement best = {.how = PLACE_FRESH, .cost = (int64_t)job->wanted->len};
    if (run != NULL && find_suspended(engine, job, run, &best)) return best;
    for (size_t i = 0; i < engine->n_seqs; i++) {
        struct seq *seq = &engine->seqs[i];
        int32_t match = matching(engine, seq, job), n = usable(engine, seq, match);
        consider_continue(engine, job, seq, n, &best);
        consider_share(engine, job, seq, n, &best);
        consider_wait(engine, job, seq, n, match, &best);
    }
    consider_snapshots(engine, job, &best);
    consider_fetch(engine, job, &best);
    if (best.how == PLACE_FRESH) best.too_short = find_too_short(engine, job);
    if (!may_queue || !engine->policy.queues_for_slot) return best;
    for (size_t i = 0; i < engine->n_seqs; i++) consider_queue(engine, job, &engine->seqs[i], &best);
    return best;
}
