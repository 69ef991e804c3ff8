/* Where a request begins: which sequence it goes on from, whether it takes it, shares it or waits for it, and in which
 * slot it is computed. A placement is worked out as a value first and then carried out. */
#include "engine/core.h"

#include "base/log.h"

#include <stdlib.h>

/* With a stream for each sequence a prefix is shared by copying all of a stream, which takes about as long as computing
 * this part of its tokens. */
#define COPYING_PART 64

/* A prefix that another slot is computing is waited for when that saves at least so many tokens. */
#define WORTH_WAITING 64

struct placement {
    enum { PLACE_FRESH, PLACE_TAKE, PLACE_SHARE, PLACE_WAIT } how;
    struct seq *source; /* NULL: fresh */
    int32_t n;          /* tokens to go on from, or to wait for */
    int64_t cost;       /* tokens to compute, and tokens lost that somebody may come back for */
};

/* ---- What a sequence offers ---- */

/* How many leading tokens of the prompt the sequence stands for. The last token of a prompt is always computed: its
 * logits give the first token of the reply. */
static int32_t agreeing(const struct engine *engine, const struct seq *seq, const struct job *job)
{
    if (!job->cache_prompt) return 0;
    int32_t n = (int32_t)tokens_common_prefix(&seq->tokens, &job->prompt);
    if (n >= (int32_t)job->prompt.len) n = (int32_t)job->prompt.len - 1;
    /* Deterministic: a cold run would compute the rest of a piece together with what is cached of it. */
    return engine->deterministic ? n / PLAN_PIECE * PLAN_PIECE : n;
}

/* How many of them can be gone on from now. */
static int32_t usable(const struct engine *engine, const struct seq *seq, int32_t agree)
{
    int32_t n = agree < seq->n_cells ? agree : seq->n_cells;
    if (engine->deterministic && n > seq->n_exact) n = seq->n_exact / PLAN_PIECE * PLAN_PIECE;
    if (engine->cuts_anywhere || n == seq->n_cells) return n;
    return llm_seq_can_cut(engine->context, seq->id, n) ? n : 0;
}

/* How many of them there will be once the slot that computes on it has got there: for cells that cannot be cut, at the
 * places where the slot will leave a copy. */
static int32_t expected(const struct engine *engine, const struct seq *seq, int32_t agree)
{
    if (engine->cuts_anywhere) return agree;
    int32_t n = 0;
    for (size_t i = 0; i < seq->slot->job->n_bounds; i++) {
        int32_t bound = seq->slot->job->bounds[i];
        if (bound <= agree && bound > seq->n_cells) n = bound;
    }
    return n;
}

static bool is_coming(const struct seq *seq)
{
    return seq->slot != NULL && seq->slot->state == SLOT_PREFILL && !seq->slot->deferred;
}

/* ---- Weighing ---- */

/* Of ways that cost the same: taking what loses nothing by it is tidiest; but what can only be kept whole moves on when
 * it is taken, and is lost as a place to go back to. */
static int rank(const struct engine *engine, const struct placement *p)
{
    if (p->how == PLACE_TAKE) return engine->cuts_anywhere ? 0 : 2;
    return p->how == PLACE_SHARE ? 1 : 3;
}

static void consider(const struct engine *engine, struct placement *best, struct placement other)
{
    int better = rank(engine, best) - rank(engine, &other);
    bool older = best->source != NULL && other.source != NULL && other.source->last_used < best->source->last_used;
    bool preferred = better > 0 || (better == 0 && older);
    if (other.cost < best->cost || (other.cost == best->cost && preferred)) *best = other;
}

/* The sequence that a further one would take the place of: a free one, else the one unused for longest. NULL: every
 * other one is in use. */
static const struct seq *next_victim(const struct engine *engine, const struct seq *but_not)
{
    const struct seq *oldest = NULL;
    for (size_t i = 0; i < engine->n_seqs; i++) {
        const struct seq *seq = &engine->seqs[i];
        if (seq->slot != NULL || seq == but_not) continue;
        if (seq->n_cells == 0) return seq;
        if (oldest == NULL || seq->last_used < oldest->last_used) oldest = seq;
    }
    return oldest;
}

/* What is lost when the sequence keeps only n of its cells. Nothing, if its cells would be the next to go anyway: with
 * a stream for each sequence something has to go, in one pool of cells room is made when it is needed. */
static int64_t loss(const struct engine *engine, const struct seq *seq, int32_t n)
{
    bool goes_anyway = !engine->unified && next_victim(engine, NULL) == seq;
    return goes_anyway ? 0 : seq->n_cells - n;
}

static void weigh_taking(const struct engine *engine, const struct job *job, struct seq *seq, int32_t n,
                         struct placement *best)
{
    if (seq->slot != NULL || n == 0) return;
    int64_t cost = (int64_t)job->prompt.len - n + loss(engine, seq, n);
    consider(engine, best, (struct placement){PLACE_TAKE, seq, n, cost});
}

/* In one pool of cells sharing costs nothing, and leaves whatever follows the prefix where it is. */
static void weigh_sharing(const struct engine *engine, const struct job *job, struct seq *seq, int32_t n,
                          struct placement *best)
{
    const struct seq *victim = next_victim(engine, seq);
    bool whole = n == seq->n_cells;
    if (victim == NULL || n == 0 || (!engine->cuts_anywhere && !whole)) return;
    int64_t price = engine->unified ? 0 : engine->window / COPYING_PART + loss(engine, victim, 0);
    consider(engine, best, (struct placement){PLACE_SHARE, seq, n, (int64_t)job->prompt.len - n + price});
}

static void weigh_waiting(const struct engine *engine, const struct job *job, struct seq *seq, int32_t n, int32_t agree,
                          struct placement *best)
{
    if (!is_coming(seq)) return;
    int32_t later = expected(engine, seq, agree);
    if (later < n + WORTH_WAITING) return;
    int64_t cost = (int64_t)job->prompt.len - later + WORTH_WAITING;
    consider(engine, best, (struct placement){PLACE_WAIT, seq, later, cost});
}

/* Who asked that nothing of a request be kept gave its cells to nobody. */
static bool is_private(const struct seq *seq)
{
    return seq->slot != NULL && !seq->slot->job->cache_prompt;
}

static void weigh(const struct engine *engine, const struct job *job, struct seq *seq, struct placement *best)
{
    if (is_private(seq)) return;
    int32_t agree = agreeing(engine, seq, job), n = usable(engine, seq, agree);
    weigh_taking(engine, job, seq, n, best);
    weigh_sharing(engine, job, seq, n, best);
    weigh_waiting(engine, job, seq, n, agree, best);
}

static struct placement find_placement(struct engine *engine, const struct job *job)
{
    struct placement best = {PLACE_FRESH, NULL, 0, (int64_t)job->prompt.len};
    for (size_t i = 0; i < engine->n_seqs; i++) weigh(engine, job, &engine->seqs[i], &best);
    return best;
}

/* ---- Carrying out ---- */

static void log_started(const struct engine *engine, const struct slot *slot)
{
    log_event(LOG_INFO, "batch-engine", "slot-started", log_str("model", engine->name), log_int("slot", slot->id),
              log_int("seq", slot->seq->id), log_str("id", slot->job->id), log_int("prompt_tokens", slot->n_prompt),
              log_int("cached_tokens", slot->n_cached));
}

/* The sequence that the placement says, with its first n cells in place. */
static struct seq *obtain(struct engine *engine, const struct placement *p)
{
    if (p->how == PLACE_TAKE) {
        seq_keep(engine, p->source, p->n);
        return p->source;
    }
    struct seq *seq = seq_take_free(engine, p->source);
    bool shared = p->how == PLACE_SHARE && llm_seq_share(engine->context, p->source->id, seq->id, p->n);
    seq->n_cells = shared ? p->n : 0;
    seq->n_exact = shared && p->source->n_exact < p->n ? p->source->n_exact : seq->n_cells;
    if (!shared) llm_seq_clear(engine->context, seq->id);
    return seq;
}

static void bind(struct engine *engine, struct slot *slot, const struct placement *p)
{
    const struct tokens *prompt = &slot->job->prompt;
    struct seq *seq = obtain(engine, p);
    tokens_truncate(&seq->tokens, 0);
    tokens_append(&seq->tokens, prompt->v, prompt->len);
    seq->slot = slot;
    seq->uses++;
    seq->last_slot = slot->id;
    slot->seq = seq;
    slot->state = SLOT_PREFILL;
    slot->n_cached = seq->n_cells;
    metric_add(&engine->stats.cached_tokens, slot->n_cached);
    log_started(engine, slot);
}

static void wait_for(struct slot *slot, const struct placement *p)
{
    slot->state = SLOT_PENDING;
    slot->awaited = p->source;
    slot->awaited_use = p->source->uses;
    slot->awaited_cells = p->n;
    log_event(LOG_INFO, "batch-engine", "slot-pending", log_int("slot", slot->id), log_str("id", slot->job->id),
              log_int("for_slot", p->source->slot->id), log_int("for_tokens", p->n));
}

/* The idle slot that computed last on the sequence that is taken, so that a conversation stays where it was seen; else
 * the one unused for longest. NULL if all are busy. */
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

static void assign(struct engine *engine, struct slot *slot, struct job *job, const struct placement *p)
{
    slot->job = job;
    slot->n_prompt = (int32_t)job->prompt.len;
    slot->n_predicted = slot->n_cached = slot->suspect_until = 0;
    int32_t room = engine->window - slot->n_prompt;
    slot->max_tokens = job->max_tokens < room ? job->max_tokens : room;
    slot->sampler = llm_sampler_open(engine->model, &job->sampling, &job->prompt);
    reply_init(&slot->reply, job->stop, job->n_stop);
    slot->started_at = clock_now(engine->clock);
    histogram_observe(&engine->stats.queue_wait, &histogram_seconds,
                      clock_to_ms(slot->started_at - job->submitted_at) / 1e3);
    metric_add(&engine->stats.slots_busy, 1);
    if (p->how == PLACE_WAIT) {
        wait_for(slot, p);
    } else {
        bind(engine, slot, p);
    }
    job_send_started(job, &(hearth_result){.slot = slot->id,
                                           .cache_n = p->n,
                                           .prompt_n = slot->n_prompt - p->n,
                                           .queue_ms = clock_to_ms(slot->started_at - job->submitted_at)});
}

static bool is_still_coming(const struct slot *slot)
{
    const struct seq *seq = slot->awaited;
    return seq->uses == slot->awaited_use && is_coming(seq) && seq->n_cells < slot->awaited_cells;
}

/* The cells that a pending slot waits for may be there now, or their slot may have ended before it got so far: either
 * way the slot goes on from the best there is. */
static void release_pending(struct engine *engine)
{
    for (size_t i = 0; i < engine->n_slots; i++) {
        struct slot *slot = &engine->slots[i];
        if (slot->state != SLOT_PENDING || is_still_coming(slot)) continue;
        struct placement p = find_placement(engine, slot->job);
        if (p.how == PLACE_WAIT)
            wait_for(slot, &p);
        else
            bind(engine, slot, &p);
    }
}

void place_jobs(struct engine *engine)
{
    release_pending(engine);
    while (engine->waiting.first != NULL && choose_slot(engine, NULL) != NULL) {
        struct placement p = find_placement(engine, engine->waiting.first);
        assign(engine, choose_slot(engine, p.how == PLACE_TAKE ? p.source : NULL),
               job_list_take_first(&engine->waiting), &p);
    }
    atomic_store_explicit(&engine->stats.jobs_waiting, (int64_t)engine->waiting.len, memory_order_relaxed);
}
