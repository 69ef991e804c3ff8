/* Eviction of resident sequences from the KV cells: which one, how many of its cells, and when.
 *
 * A sequence whose cells are stored is evicted at once. Another one gets a pending eviction: save.c copies it out in
 * slices, and it is evicted when the store has it, or when saving fails or takes longer than `evict_save_timeout_ms`.
 * Until then its cells stay usable, and a request that wants them cancels the eviction. The slot that needs the room
 * waits without tokens in any batch. A conversation that leaves by order does so although nobody waits, once it is
 * stored. It stays where it cannot be stored. Nothing here blocks the engine's thread. Replies that are being streamed
 * wait for no disk. For their next tokens the least recently used sequence is evicted as soon as the backlog has a copy
 * of all that it takes. Where none is stored, one whose eviction is pending comes before the least recently used.
 *
 * Which one is next: where a sequence is needed, a free one comes first, then one whose cells another sequence has as
 * well. After these, and where cells are needed, comes the least recently used of those that are stored, then the least
 * recently used of all. Then come those of suspended requests, which will resume on them, and last those that are kept
 * by order (orders.c). Placement plans with this order (reuse_plan.c).
 *
 * A sequence loses cells from its end, at least EVICT_STEP at a time: cells_to_keep(). */
#include "engine/evict.h"
#include "engine/core.h"
#include "engine/save.h"

#include "base/log.h"

/* Cells are evicted at least so many at a time, so that a full pool does not evict at every tick. */
#define EVICT_STEP 256

bool seq_is_shared_whole(const struct engine *engine, const struct seq *seq)
{
    return engine->policy.cuts_anywhere && sharing_most(&engine->sharing, seq->id) == seq->n_cells;
}

/* ---- Groups of resident sequences ---- */

/* In the order in which they are evicted, up to KEPT. */
enum group {
    UNCLAIMED, /* no suspended request will resume on it, and no order keeps it */
    SUSPENDED,
    KEPT,
    LEAVING, /* its eviction is pending; the three before are of those that stay */
    LEAVING_SUSPENDED,
    DUPLICATE
};

static bool belongs(const struct engine *engine, const struct seq *seq, enum group group)
{
    bool leaves = seq_state_leaves(seq->state), suspended = seq->suspended != NULL;
    switch (group) {
    case UNCLAIMED:
        return !leaves && !suspended && !seq->kept;
    case SUSPENDED:
        return !leaves && suspended && !seq->kept;
    case KEPT:
        return !leaves && seq->kept;
    case LEAVING:
        return leaves && !suspended;
    case LEAVING_SUSPENDED:
        return leaves && suspended;
    case DUPLICATE:
        break;
    }
    return !suspended && !seq->kept && seq_is_shared_whole(engine, seq);
}

/* Nothing is lost with its cells. */
static bool is_safe(const struct engine *engine, const struct seq *seq)
{
    return seq_is_shared_whole(engine, seq) || save_status(engine, seq) == SAVE_COMPLETE;
}

/* Of a group; `safe`: of those with which nothing is lost. */
static struct seq *least_recently_used(const struct engine *engine, enum group group, bool safe,
                                       const struct seq *but_not)
{
    struct seq *oldest = NULL;
    for (size_t i = 0; i < engine->n_seqs; i++) {
        struct seq *seq = &engine->seqs[i];
        if (seq->state <= SEQ_RUNNING || (oldest != NULL && seq->last_used >= oldest->last_used)) continue;
        if (seq->pinned || seq == but_not) continue;
        if (belongs(engine, seq, group) && (!safe || is_safe(engine, seq))) oldest = seq;
    }
    return oldest;
}

/* ---- The order ---- */

static struct victim victim_for_cells(const struct engine *engine, const struct seq *but_not)
{
    for (enum group group = UNCLAIMED; group <= KEPT; group++) {
        struct seq *oldest = least_recently_used(engine, group, false, but_not);
        if (oldest == NULL) continue;
        if (is_safe(engine, oldest)) return (struct victim){oldest, true};
        struct seq *safe = least_recently_used(engine, group, true, but_not);
        return safe != NULL ? (struct victim){safe, true} : (struct victim){oldest, false};
    }
    return (struct victim){0};
}

struct victim next_victim(const struct engine *engine, enum room room, const struct seq *but_not)
{
    if (room == ROOM_FOR_CELLS) return victim_for_cells(engine, but_not);
    for (size_t i = 0; i < engine->n_seqs; i++)
        if (engine->seqs[i].state == SEQ_FREE) return (struct victim){&engine->seqs[i], true};
    struct seq *seq = least_recently_used(engine, DUPLICATE, false, but_not);
    return seq != NULL ? (struct victim){seq, true} : victim_for_cells(engine, but_not);
}

struct seq *next_pending_victim(const struct engine *engine)
{
    struct seq *seq = least_recently_used(engine, LEAVING, false, NULL);
    return seq != NULL ? seq : least_recently_used(engine, LEAVING_SUSPENDED, false, NULL);
}

bool can_have_seq(const struct engine *engine, const struct seq *but_not)
{
    for (size_t i = 0; i < engine->n_seqs; i++)
        if (engine->seqs[i].state != SEQ_RUNNING && &engine->seqs[i] != but_not) return true;
    return false;
}

/* ---- Waiting slots ---- */

static size_t count_awaiting(const struct engine *engine)
{
    size_t n = 0;
    for (size_t i = 0; i < engine->n_slots; i++) n += engine->slots[i].state == SLOT_AWAITS_SEQ;
    return n;
}

static size_t count_free(const struct engine *engine)
{
    size_t n = 0;
    for (size_t i = 0; i < engine->n_seqs; i++) n += engine->seqs[i].state == SEQ_FREE;
    return n;
}

/* Sequences that pending evictions will free. */
static size_t count_to_be_free(const struct engine *engine)
{
    size_t n = 0;
    for (size_t i = 0; i < engine->n_seqs; i++)
        n += seq_state_leaves(engine->seqs[i].state) && engine->seqs[i].eviction.keep == 0;
    return n;
}

static bool is_any_slot_waiting(const struct engine *engine)
{
    for (size_t i = 0; i < engine->n_slots; i++)
        if (slot_awaits_room(&engine->slots[i])) return true;
    return count_free(engine) < count_awaiting(engine);
}

static void try_again_unless_pending(struct engine *engine)
{
    if (next_pending_victim(engine) == NULL) slots_try_again(engine, false);
}

/* ---- Evicting ---- */

/* Evicts all cells but `keep`. Returns how many cells were freed: those that no other sequence has. */
static int32_t evict_cells(struct engine *engine, struct seq *seq, int32_t keep)
{
    int32_t had = seq->n_cells, shared = sharing_most(&engine->sharing, seq->id);
    struct run *run = seq->suspended;
    if (run != NULL && run->snapshot == NULL && !seq_is_shared_whole(engine, seq))
        run->snapshot = seq_save_pinned(engine, seq);
    if (run != NULL && seq->scope == SCOPE_PRIVATE) keep = 0; /* nobody else may reuse a part of it */
    if (keep == 0)
        log_event(LOG_INFO, "imc", "evicting LRU slot", log_int("slot", seq->last_slot), log_int("seq", seq->id),
                  log_int("evicted-msgs", (int64_t)seq->n_messages), log_int("evicted-tokens", had));
    seq_cut_to(engine, seq, keep);
    seq_truncate_tokens(seq);
    log_event(LOG_INFO, "batch-engine", "resident-cells-dropped", log_int("seq", seq->id),
              log_int("tokens", had - seq->n_cells), log_int("kept", seq->n_cells));
    return had - (seq->n_cells > shared ? seq->n_cells : shared);
}

/* Evicts before the cells are stored: copies out first what the backlog takes. */
static int32_t evict_unsaved(struct engine *engine, struct seq *seq, int32_t keep)
{
    int64_t now = clock_now(engine->clock);
    save_flush(engine, seq);
    if (seq->saving.n_events > 0) store_count_dropped(engine->store);
    log_event(LOG_WARN, "store", "evicted before it was stored", log_int("seq", seq->id),
              log_int("tokens", seq->n_cells), log_int("copied", seq->saving.n),
              log_num("waited_ms", seq_state_leaves(seq->state) ? clock_to_ms(now - seq->eviction.began_at) : 0));
    return evict_cells(engine, seq, keep);
}

void evict_stored(struct engine *engine, struct seq *seq)
{
    assert_thread(&engine->owner);
    seq_cut_to(engine, seq, 0);
    seq_truncate_tokens(seq);
    slots_try_again(engine, false);
}

static void keep_resident(struct engine *engine, struct seq *seq)
{
    seq->eviction = (struct pending_eviction){0};
    seq_enter(seq, seq_state_staying(seq->state));
    slots_try_again(engine, false);
}

enum eviction_check { EVICT_LATER, EVICT_SAVED, EVICT_UNSAVED };

/* Tokens that are missing after its save jobs have ended were dropped by the store, or failed: they are copied out once
 * more. */
static enum eviction_check check_eviction(struct engine *engine, struct seq *seq)
{
    struct pending_eviction *eviction = &seq->eviction;
    enum save_status status = save_status(engine, seq);
    while (status == SAVE_MISSING && eviction->attempts < SAVE_ATTEMPTS) {
        eviction->attempts++;
        save_before_eviction(engine, seq);
        status = save_status(engine, seq);
    }
    if (status == SAVE_COMPLETE) return EVICT_SAVED;
    if (status == SAVE_MISSING) return EVICT_UNSAVED;
    /* A store that has not got past a wait which missed its deadline is not waited for again. */
    if (engine->hung && store_is_done(engine->store, engine->user, engine->hung_at) &&
        store_has_room(engine->store, engine->user, 1))
        engine->hung = false;
    if (engine->hung) return EVICT_UNSAVED;
    if (clock_now(engine->clock) < eviction->deadline) return EVICT_LATER;
    engine->hung = true;
    engine->hung_at = engine->last_ticket;
    return EVICT_UNSAVED;
}

static void carry_out_eviction(struct engine *engine, struct seq *seq, enum eviction_check check)
{
    if (check == EVICT_UNSAVED)
        evict_unsaved(engine, seq, seq->eviction.keep);
    else
        evict_cells(engine, seq, seq->eviction.keep);
    slots_try_again(engine, false);
}

static void start_eviction(struct engine *engine, struct seq *seq, int32_t keep)
{
    int64_t now = clock_now(engine->clock), left = CLOCK_NEVER - now;
    seq_enter(seq, seq_state_leaving(seq->state));
    seq->eviction = (struct pending_eviction){
        .keep = keep,
        .began_at = now,
        .deadline = engine->evict_timeout_ns < left ? now + engine->evict_timeout_ns : CLOCK_NEVER,
        .attempts = 1};
    save_before_eviction(engine, seq);
}

/* Begins the sequence's eviction. False: it is pending. */
static bool begin_eviction(struct engine *engine, struct seq *seq, int32_t keep)
{
    start_eviction(engine, seq, keep);
    enum eviction_check check = check_eviction(engine, seq);
    if (check != EVICT_LATER) carry_out_eviction(engine, seq, check);
    return check != EVICT_LATER;
}

/* One that is pending for a slot may be of a part of the cells, and ends when nobody waits any more. */
bool evict_ordered(struct engine *engine, struct seq *seq)
{
    assert_thread(&engine->owner);
    if (save_status(engine, seq) == SAVE_COMPLETE) {
        evict_cells(engine, seq, 0);
        slots_try_again(engine, false);
        return true;
    }
    if (!seq_state_leaves(seq->state)) start_eviction(engine, seq, 0);
    seq->eviction.keep = 0;
    seq->eviction.ordered = true;
    enum eviction_check check = check_eviction(engine, seq);
    if (check == EVICT_SAVED) carry_out_eviction(engine, seq, check);
    if (check == EVICT_UNSAVED) keep_resident(engine, seq);
    return check != EVICT_UNSAVED;
}

void evict_cancel(struct engine *engine, struct seq *seq)
{
    assert_thread(&engine->owner);
    if (seq == NULL || !seq_state_leaves(seq->state)) return;
    log_event(LOG_DEBUG, "batch-engine", "eviction-taken-back", log_int("seq", seq->id),
              log_int("tokens", seq->n_cells));
    seq->last_used = clock_now(engine->clock);
    keep_resident(engine, seq);
}

void evict_step(struct engine *engine)
{
    assert_thread(&engine->owner);
    for (size_t i = 0; i < engine->n_seqs; i++) {
        struct seq *seq = &engine->seqs[i];
        enum eviction_check check = seq_state_leaves(seq->state) ? check_eviction(engine, seq) : EVICT_LATER;
        if (check == EVICT_LATER) continue;
        if (is_any_slot_waiting(engine) || (check == EVICT_SAVED && seq->eviction.ordered))
            carry_out_eviction(engine, seq, check);
        else
            keep_resident(engine, seq);
    }
    try_again_unless_pending(engine);
}

int64_t evict_deadline(const struct engine *engine)
{
    int64_t first = CLOCK_NEVER;
    for (size_t i = 0; i < engine->n_seqs; i++) {
        const struct seq *seq = &engine->seqs[i];
        if (seq_state_leaves(seq->state) && seq->eviction.deadline < first) first = seq->eviction.deadline;
    }
    return first;
}

/* ---- For slots and loads ---- */

bool evict_is_pending(const struct engine *engine)
{
    return count_free(engine) == 0 && count_to_be_free(engine) >= count_awaiting(engine);
}

struct seq *evict_for_seq(struct engine *engine)
{
    assert_thread(&engine->owner);
    struct victim victim = next_victim(engine, ROOM_FOR_SEQ, NULL);
    if (victim.safe) {
        bool left = seq_state_leaves(victim.seq->state);
        if (victim.seq->n_cells > 0) evict_cells(engine, victim.seq, 0);
        if (left) slots_try_again(engine, false);
        return victim.seq;
    }
    if (count_to_be_free(engine) >= count_awaiting(engine)) return NULL;
    if (victim.seq != NULL) return begin_eviction(engine, victim.seq, 0) ? victim.seq : NULL;
    for (size_t i = 0; i < engine->n_seqs; i++) {
        struct seq *seq = &engine->seqs[i];
        if (!seq_state_leaves(seq->state) || seq->eviction.keep <= 0 || seq->pinned) continue;
        seq->eviction.keep = 0; /* it was to lose a part of its cells */
        break;
    }
    return NULL;
}

/* How many cells the sequence keeps when so many are to be freed: fewer than it has, or evict_for_cells() would choose
 * it again and again. None where all that it would keep are shared. */
static int32_t cells_to_keep(const struct engine *engine, const struct seq *seq, int32_t n)
{
    int32_t keep = seq->n_cells - (n > EVICT_STEP ? n : EVICT_STEP);
    if (keep > 0) keep = seq_can_keep(engine, seq, keep);
    return keep > sharing_most(&engine->sharing, seq->id) ? keep : 0;
}

enum evict_outcome evict_for_cells(struct engine *engine, int32_t n)
{
    assert_thread(&engine->owner);
    bool pending = next_pending_victim(engine) != NULL;
    int32_t freed = 0;
    struct victim victim = next_victim(engine, ROOM_FOR_CELLS, NULL);
    for (; victim.safe && freed < EVICT_STEP; victim = next_victim(engine, ROOM_FOR_CELLS, NULL))
        freed += evict_cells(engine, victim.seq, cells_to_keep(engine, victim.seq, n - freed));
    if (freed > 0) return EVICT_DONE;
    if (pending || victim.seq == NULL) return pending ? EVICT_PENDING : EVICT_NOTHING;
    return begin_eviction(engine, victim.seq, cells_to_keep(engine, victim.seq, n)) ? EVICT_DONE : EVICT_PENDING;
}

bool evict_for_load(struct engine *engine, enum llm_loaded loaded, int32_t n, enum evict_outcome *outcome)
{
    if (loaded != LLM_NO_ROOM) return false;
    *outcome = evict_for_cells(engine, n);
    return *outcome == EVICT_DONE;
}

bool evict_now(struct engine *engine, int32_t n)
{
    assert_thread(&engine->owner);
    int32_t freed = 0;
    while (freed < n) {
        struct victim victim = next_victim(engine, ROOM_FOR_CELLS, NULL);
        struct seq *pending = next_pending_victim(engine);
        if (!victim.safe && pending != NULL) victim.seq = pending;
        if (victim.seq == NULL) break;
        int32_t keep = cells_to_keep(engine, victim.seq, n - freed);
        if (!victim.safe && !seq_state_leaves(victim.seq->state)) save_before_eviction(engine, victim.seq);
        freed += victim.safe ? evict_cells(engine, victim.seq, keep) : evict_unsaved(engine, victim.seq, keep);
    }
    try_again_unless_pending(engine); /* these cells are not for prompts */
    return freed > 0;
}
