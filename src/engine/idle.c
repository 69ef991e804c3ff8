/* How long an idle conversation stays in the cells. It stays as long as nobody else is served: then it costs nothing.
 * While others are computed, each of their decode calls takes longer by what masked cells cost (decode_cost.h), and the
 * sequence is charged with that. Once it has cost others as much as bringing it back from the store would, it leaves.
 * So it never costs more than twice the best choice of one who knows when it is wanted again (the ski rental problem).
 * The prompts that are being computed are known, and charged in advance.
 *
 * A conversation leaves only if it is stored and not kept by order. All cells in use must be a small part of what the
 * tier may hold of this model, so that leaving loses nothing. Cells that a running sequence shares are free; those that
 * only idle ones share are charged to the one that was used last. Runs on the engine's thread, which waits for nothing
 * here. */
#include "engine/core.h"
#include "engine/evict.h"
#include "engine/save.h"

#include "base/log.h"

/* The cells in use may be at most this part of what the store may hold. */
#define PART_OF_QUOTA 2

/* Nothing comes back faster than this, in bytes a nanosecond: before it has cost so much the store is not asked. */
#define FASTEST_READ 20.0

/* ---- Who needs which cells ---- */

static bool is_idle(const struct seq *seq)
{
    return seq->slot == NULL && seq->n_cells > 0;
}

/* Running sequences come first, then the idle ones, the one used last first: cells that several share are needed by the
 * first of them. */
static bool comes_before(const struct seq *a, const struct seq *b)
{
    if (is_idle(a) != is_idle(b)) return !is_idle(a);
    if (is_idle(a) && a->last_used != b->last_used) return a->last_used > b->last_used;
    return a->id < b->id;
}

static int32_t cells_needed_by(const struct engine *engine, const struct seq *seq)
{
    int32_t shared = 0;
    for (size_t i = 0; i < engine->n_seqs; i++) {
        const struct seq *other = &engine->seqs[i];
        int32_t common = sharing_between(&engine->sharing, seq->id, (int32_t)i);
        if (common > shared && comes_before(other, seq)) shared = common;
    }
    return seq->n_cells - shared;
}

/* Each sequence is compared with each other one only when one of them began, ended or was cut. In every other call of a
 * long reply the cells of running sequences are just added up. */
double idle_count_cells(struct engine *engine)
{
    assert_thread(&engine->owner);
    struct idle_count now = {0}, *last = &engine->idle_count;
    bool changed = false;
    for (size_t i = 0; i < engine->n_seqs; i++) {
        struct seq *seq = &engine->seqs[i];
        bool idle = is_idle(seq);
        struct counted_seq is = {.uses = seq->uses, .n_cells = idle ? seq->n_cells : seq->n_cells > 0, .idle = idle};
        const struct counted_seq *was = &seq->counted;
        if (was->uses != is.uses || was->n_cells != is.n_cells || was->idle != idle) changed = true;
        seq->counted = is;
        if (!idle) now.running += seq->n_cells;
    }
    now.used = last->used + now.running - last->running;
    if (changed) {
        now.used = 0;
        for (size_t i = 0; i < engine->n_seqs; i++) {
            struct seq *seq = &engine->seqs[i];
            seq->idle.cells = seq->n_cells == 0 ? 0 : cells_needed_by(engine, seq);
            now.used += seq->idle.cells;
        }
    }
    *last = now;
    return now.used;
}

/* ---- Charging ---- */

void idle_observe(struct engine *engine, const struct plan_share *shares, size_t n, int64_t ns)
{
    assert_thread(&engine->owner);
    if (engine->policy.idle != ENGINE_IDLE_PRICED) return;
    struct llm_cell_map map;
    bool mapped = llm_cells_map(engine->context, &map);
    struct decode_call call = {.used = mapped ? map.top : idle_count_cells(engine)};
    for (size_t i = 0; i < n; i++) {
        int32_t n_tokens = plan_rows(&shares[i]);
        call.n_tokens += n_tokens;
        call.attended += (double)n_tokens * (2 * shares[i].from + n_tokens + 1) / 2;
    }
    if (!mapped) call.used += call.n_tokens; /* they are not counted yet */
    decode_cost_observe(&engine->decode_cost, &call, ns);
    if (mapped) compaction_observe(engine, &map, call.n_tokens);
    for (size_t i = 0; i < engine->n_seqs; i++) {
        struct seq *seq = &engine->seqs[i];
        if (is_idle(seq))
            seq->idle.paid_ns += decode_cost_of_idle(&engine->decode_cost, seq->idle.cells, 1, call.n_tokens);
    }
}

/* ---- Leaving ---- */

double idle_tokens_to_come(const struct engine *engine)
{
    double n = 0;
    for (size_t i = 0; i < engine->n_slots; i++) {
        const struct slot *slot = &engine->slots[i];
        if (slot_state_shown(slot->state) != HEARTH_SLOT_PREFILL) continue;
        int32_t has =
            slot_is_fetching(slot) ? slot->fetching.n : slot->seq->n_cells; /* or will have, without computing */
        n += (double)slot->seq->tokens.len - has;
    }
    return n;
}

static bool wants(const struct job *job, const struct seq *seq)
{
    return job->scope == seq->scope &&
           (int32_t)tokens_common_prefix(&seq->tokens, job->wanted) > seq->n_cells - seq->idle.cells;
}

static bool any_wants(const struct job_list *jobs, const struct seq *seq)
{
    for (const struct job *job = jobs->first; job != NULL; job = job->next)
        if (wants(job, seq)) return true;
    return false;
}

/* A job that waits, for a slot or in one, will reuse its cells. */
static bool is_wanted(const struct engine *engine, const struct seq *seq)
{
    if (any_wants(&engine->waiting, seq)) return true;
    for (size_t i = 0; i < engine->n_slots; i++) {
        const struct slot *slot = &engine->slots[i];
        if (any_wants(&slot->queue, seq)) return true;
        if (slot_state_shown(slot->state) == HEARTH_SLOT_PENDING && wants(slot->job, seq)) return true;
    }
    return false;
}

/* Whether it has cost, or will cost for certain, more than bringing it back, and no job waits for it. The store is
 * asked rarely: first when the cells have cost anything to speak of and no save of them is under way. Then when the
 * cost has reached the price, or has doubled where something is missing. */
static bool is_too_dear(const struct engine *engine, struct seq *seq, double cost_ns)
{
    struct idle_account *account = &seq->idle;
    double least = (double)llm_state_format_row_bytes(engine->format) * account->cells / FASTEST_READ;
    bool leaves = engine->policy.idle == ENGINE_IDLE_LEAVES;
    if (!leaves && (cost_ns <= least || cost_ns < account->ask_at_ns)) return false;
    if (is_wanted(engine, seq)) return false;
    enum save_status status = save_status(engine, seq);
    if (status == SAVE_PENDING) return false;
    bool stored = status == SAVE_COMPLETE;
    if (stored) {
        struct store_query query = save_query(engine, seq);
        double read_ns = store_read_back_ns(engine->store, &query, account->cells);
        double fetch_ns = read_ns > engine->fetch_ns ? read_ns : engine->fetch_ns;
        account->back_ns = fetch_ns + engine->load_ns * account->cells;
        stored = read_ns >= 0; /* else not all of it is */
    }
    if (stored && (leaves || cost_ns >= account->back_ns)) return true;
    account->ask_at_ns = stored ? account->back_ns : 2 * cost_ns;
    return false;
}

void idle_step(struct engine *engine)
{
    assert_thread(&engine->owner);
    if (engine->policy.idle == ENGINE_IDLE_STAYS || engine->store == NULL) return;
    double used = idle_count_cells(engine), to_come = idle_tokens_to_come(engine), calls = to_come / engine->n_ubatch;
    double bytes = used * (double)llm_state_format_row_bytes(engine->format);
    if (!store_is_on(engine->store) ||
        bytes * PART_OF_QUOTA > (double)store_save_quota(engine->store) / engine->store_sharers)
        return; /* what leaves would not stay stored for long */
    for (size_t i = 0; i < engine->n_seqs; i++) {
        struct seq *seq = &engine->seqs[i];
        if (seq->state != SEQ_IDLE || seq->idle.cells <= 0 || seq->pinned || seq->kept || seq->scope == SCOPE_PRIVATE)
            continue;
        double cost = seq->idle.paid_ns + decode_cost_of_idle(&engine->decode_cost, seq->idle.cells, calls, to_come);
        if (!is_too_dear(engine, seq, cost)) continue;
        log_event(LOG_INFO, "imc", "idle conversation leaves the cells", log_int("seq", seq->id),
                  log_int("tokens", seq->n_cells), log_num("cost_ms", cost / 1e6),
                  log_num("back_ms", seq->idle.back_ns / 1e6));
        evict_stored(engine, seq);
        metric_add(&engine->stats->idle_evictions, 1);
    }
}
