/* Eviction: which resident sequences give up their cells, and when.
 *
 * A sequence that is stored is cut at once. Another one leaves: it is copied out in slices, as everything that is
 * saved, and cut when the store has it, or when that fails or takes longer than `evict_save_timeout_ms`. Meanwhile its
 * cells are what they were, and a request that wants them takes the sequence back. Whoever needs the room waits in its
 * slot, without rows in any batch; nothing here waits on the engine's thread. A reply that is being streamed waits for
 * no disk at all: for its next row the least recently used sequence is cut once what the backlog takes was copied
 * out. */
#include "engine/core.h"

#include "base/log.h"

/* Cells are given up in pieces of at least so many, so that a full pool does not ask for room at every tick. */
#define ROOM_STEP 256

/* ---- Choosing ---- */

/* The run that comes back to these cells. */
static struct run *parked_in(const struct engine *engine, const struct seq *seq)
{
    for (const struct job *job = engine->waiting.first; job != NULL; job = job->next)
        if (job->run != NULL && job->run->parked_in == seq && job->run->parked_use == seq->uses) return job->run;
    return NULL;
}

bool seq_is_parked(const struct engine *engine, const struct seq *seq)
{
    return parked_in(engine, seq) != NULL;
}

/* And may be evicted. */
static bool is_resident(const struct seq *seq)
{
    return seq->slot == NULL && seq->n_cells > 0 && !seq->pinned;
}

/* Whether all its cells live on in another sequence, which whoever wants them can go on from: nothing is lost with it,
 * and nothing won but the sequence. What cannot be cut is more than its cells. */
static bool is_held_elsewhere(const struct engine *engine, const struct seq *seq)
{
    return engine->cuts_anywhere && sharing_most(&engine->sharing, seq->id) == seq->n_cells;
}

static bool loses_nothing(const struct engine *engine, const struct seq *seq)
{
    return is_held_elsewhere(engine, seq) || save_standing(engine, seq) == SAVE_SAFE;
}

/* Of those that leave, or of those that do not. A request that made way comes back to its cells: they go after
 * everybody else's. */
static struct seq *least_recently_used(struct engine *engine, bool leaving)
{
    struct seq *oldest = NULL;
    bool oldest_parked = false;
    for (size_t i = 0; i < engine->n_seqs; i++) {
        struct seq *seq = &engine->seqs[i];
        if (!is_resident(seq) || seq->leaving.on != leaving) continue;
        bool parked = seq_is_parked(engine, seq), better = oldest_parked && !parked;
        if (oldest != NULL && !better && (parked != oldest_parked || seq->last_used >= oldest->last_used)) continue;
        oldest = seq;
        oldest_parked = parked;
    }
    return oldest;
}

struct victim {
    struct seq *seq; /* NULL: whatever is resident leaves already */
    bool safe;       /* nothing is lost with its cells */
};

/* The one unused for longest of those that are stored; where none is, of all. */
static struct victim choose_victim(struct engine *engine)
{
    struct seq *oldest = least_recently_used(engine, false), *stored = NULL;
    if (oldest == NULL) return (struct victim){0};
    if (loses_nothing(engine, oldest)) return (struct victim){oldest, true};
    bool parked = seq_is_parked(engine, oldest);
    for (size_t i = 0; i < engine->n_seqs; i++) {
        struct seq *seq = &engine->seqs[i];
        if (!is_resident(seq) || seq->leaving.on || seq_is_parked(engine, seq) != parked) continue;
        if (stored != NULL && seq->last_used >= stored->last_used) continue;
        if (loses_nothing(engine, seq)) stored = seq;
    }
    return stored != NULL ? (struct victim){stored, true} : (struct victim){oldest, false};
}

/* Where sequences are wanted, and not cells, the first to go are those whose cells all stay. */
static struct victim choose_victim_for_seq(struct engine *engine)
{
    struct seq *oldest = NULL;
    for (size_t i = 0; i < engine->n_seqs; i++) {
        struct seq *seq = &engine->seqs[i];
        if (!is_resident(seq) || seq_is_parked(engine, seq) || !is_held_elsewhere(engine, seq)) continue;
        if (oldest == NULL || seq->last_used < oldest->last_used) oldest = seq;
    }
    return oldest != NULL ? (struct victim){oldest, true} : choose_victim(engine);
}

static struct seq *find_free(struct engine *engine)
{
    for (size_t i = 0; i < engine->n_seqs; i++) {
        struct seq *seq = &engine->seqs[i];
        if (seq->slot == NULL && seq->n_cells == 0) return seq;
    }
    return NULL;
}

/* ---- Who waits ---- */

bool slot_awaits_seq(const struct slot *slot)
{
    return slot->state == SLOT_PENDING && slot->awaited == NULL && !slot->lacks_cells;
}

static size_t count_awaiting(const struct engine *engine)
{
    size_t n = 0;
    for (size_t i = 0; i < engine->n_slots; i++) n += slot_awaits_seq(&engine->slots[i]);
    return n;
}

static size_t count_free(const struct engine *engine)
{
    size_t n = 0;
    for (size_t i = 0; i < engine->n_seqs; i++) n += engine->seqs[i].slot == NULL && engine->seqs[i].n_cells == 0;
    return n;
}

static struct seq *find_partly_leaving(struct engine *engine)
{
    for (size_t i = 0; i < engine->n_seqs; i++) {
        struct seq *seq = &engine->seqs[i];
        if (seq->leaving.on && seq->leaving.keep > 0 && !seq->pinned) return seq;
    }
    return NULL;
}

/* Sequences that will be free. */
static size_t count_emptied(const struct engine *engine)
{
    size_t n = 0;
    for (size_t i = 0; i < engine->n_seqs; i++) n += engine->seqs[i].leaving.on && engine->seqs[i].leaving.keep == 0;
    return n;
}

static bool is_anybody_waiting(const struct engine *engine)
{
    for (size_t i = 0; i < engine->n_slots; i++)
        if (engine->slots[i].lacks_cells) return true;
    return count_free(engine) < count_awaiting(engine);
}

/* They may try again. */
static void let_go_on(struct engine *engine)
{
    for (size_t i = 0; i < engine->n_slots; i++) engine->slots[i].lacks_cells = false;
}

static void let_go_on_unless_coming(struct engine *engine)
{
    if (least_recently_used(engine, true) == NULL) let_go_on(engine);
}

/* ---- Going ---- */

/* Returns how many cells are free now that were not: those that no other sequence has. */
static int32_t cut(struct engine *engine, struct seq *seq, int32_t keep)
{
    int32_t had = seq->n_cells, shared = sharing_most(&engine->sharing, seq->id);
    struct run *run = parked_in(engine, seq);
    if (run != NULL && run->parked == NULL && !is_held_elsewhere(engine, seq)) run->parked = seq_park(engine, seq);
    if (keep == 0)
        log_event(LOG_INFO, "imc", "evicting LRU slot", log_int("slot", seq->last_slot), log_int("seq", seq->id),
                  log_int("evicted-msgs", (int64_t)seq->n_messages), log_int("evicted-tokens", had));
    seq_keep(engine, seq, keep);
    seq_settle(seq);
    log_event(LOG_INFO, "batch-engine", "resident-cells-dropped", log_int("seq", seq->id),
              log_int("tokens", had - seq->n_cells), log_int("kept", seq->n_cells));
    return had - (seq->n_cells > shared ? seq->n_cells : shared);
}

/* Before it is stored: what is still to be copied out is copied as far as the backlog takes it. */
static int32_t cut_short(struct engine *engine, struct seq *seq, int32_t keep)
{
    int64_t now = clock_now(engine->clock);
    save_hurry(engine, seq);
    if (seq->saving.n_events > 0) store_count_dropped(engine->store);
    log_event(LOG_WARN, "store", "evicted before it was stored", log_int("seq", seq->id),
              log_int("tokens", seq->n_cells), log_int("copied", seq->saving.n),
              log_num("waited_ms", seq->leaving.on ? clock_to_ms(now - seq->leaving.began_at) : 0));
    return cut(engine, seq, keep);
}

static void stay(struct engine *engine, struct seq *seq)
{
    seq->leaving = (struct leaving){0};
    let_go_on(engine);
}

/* A disk that let one wait end in vain is not waited for again before it has got past that. */
static bool is_hung(struct engine *engine)
{
    bool past =
        store_is_done(engine->store, engine->user, engine->hung_at) && store_has_room(engine->store, engine->user, 1);
    if (past) engine->hung = false;
    return engine->hung;
}

static void note_hung(struct engine *engine)
{
    engine->hung = true;
    engine->hung_at = engine->last_ticket;
}

enum verdict { STAYS, GOES, GOES_LOST };

/* What of it is missing after its saves have ended was dropped by the store, or failed: it is copied out once more. */
static enum verdict judge(struct engine *engine, struct seq *seq)
{
    struct leaving *leaving = &seq->leaving;
    enum save_standing standing = save_standing(engine, seq);
    while (standing == SAVE_LACKING && leaving->attempts < SAVE_ATTEMPTS) {
        leaving->attempts++;
        save_before_eviction(engine, seq);
        standing = save_standing(engine, seq);
    }
    if (standing == SAVE_SAFE) return GOES;
    if (standing == SAVE_LACKING) return GOES_LOST;
    if (engine->hung && is_hung(engine)) return GOES_LOST;
    if (clock_now(engine->clock) < leaving->deadline) return STAYS;
    note_hung(engine);
    return GOES_LOST;
}

static void go(struct engine *engine, struct seq *seq, enum verdict verdict)
{
    if (verdict == GOES_LOST)
        cut_short(engine, seq, seq->leaving.keep);
    else
        cut(engine, seq, seq->leaving.keep);
    let_go_on(engine);
}

/* False: it goes later. */
static bool leave(struct engine *engine, struct seq *seq, int32_t keep)
{
    int64_t now = clock_now(engine->clock), left = CLOCK_NEVER - now;
    seq->leaving =
        (struct leaving){.on = true,
                         .keep = keep,
                         .began_at = now,
                         .deadline = engine->evict_timeout_ns < left ? now + engine->evict_timeout_ns : CLOCK_NEVER,
                         .attempts = 1};
    save_before_eviction(engine, seq);
    enum verdict verdict = judge(engine, seq);
    if (verdict != STAYS) go(engine, seq, verdict);
    return verdict != STAYS;
}

void evict_take_back(struct engine *engine, struct seq *seq)
{
    if (seq == NULL || !seq->leaving.on) return;
    log_event(LOG_DEBUG, "batch-engine", "eviction-taken-back", log_int("seq", seq->id),
              log_int("tokens", seq->n_cells));
    seq->last_used = clock_now(engine->clock);
    stay(engine, seq);
}

void evict_step(struct engine *engine)
{
    for (size_t i = 0; i < engine->n_seqs; i++) {
        struct seq *seq = &engine->seqs[i];
        enum verdict verdict = seq->leaving.on ? judge(engine, seq) : STAYS;
        if (verdict == STAYS) continue;
        if (is_anybody_waiting(engine))
            go(engine, seq, verdict);
        else
            stay(engine, seq);
    }
    let_go_on_unless_coming(engine);
}

int64_t evict_deadline(const struct engine *engine)
{
    int64_t first = CLOCK_NEVER;
    for (size_t i = 0; i < engine->n_seqs; i++) {
        const struct leaving *leaving = &engine->seqs[i].leaving;
        if (leaving->on && leaving->deadline < first) first = leaving->deadline;
    }
    return first;
}

/* ---- Asking for room ---- */

bool evict_is_under_way(const struct engine *engine)
{
    return count_free(engine) == 0 && count_emptied(engine) >= count_awaiting(engine);
}

struct seq *evict_for_seq(struct engine *engine)
{
    struct seq *seq = find_free(engine);
    if (seq != NULL) return seq;
    struct victim victim = choose_victim_for_seq(engine);
    if (victim.safe) {
        cut(engine, victim.seq, 0);
        return victim.seq;
    }
    if (count_emptied(engine) >= count_awaiting(engine)) return NULL;
    if (victim.seq != NULL) return leave(engine, victim.seq, 0) ? victim.seq : NULL;
    struct seq *partly = find_partly_leaving(engine);
    if (partly != NULL) partly->leaving.keep = 0;
    return NULL;
}

/* Cells that the sequence keeps when it is to free so many. None where all that it would keep are another's as well. */
static int32_t keep_without(const struct engine *engine, const struct seq *seq, int32_t rows)
{
    int32_t keep = seq->n_cells - (rows > ROOM_STEP ? rows : ROOM_STEP);
    if (keep > 0) keep = seq_can_keep(engine, seq, keep);
    return keep > sharing_most(&engine->sharing, seq->id) ? keep : 0;
}

enum room evict_for_cells(struct engine *engine, int32_t rows)
{
    bool coming = least_recently_used(engine, true) != NULL;
    int32_t freed = 0;
    struct victim victim = choose_victim(engine);
    for (; victim.safe && freed < ROOM_STEP; victim = choose_victim(engine))
        freed += cut(engine, victim.seq, keep_without(engine, victim.seq, rows - freed));
    if (freed > 0) return ROOM_MADE;
    if (coming || victim.seq == NULL) return coming ? ROOM_COMING : ROOM_NONE;
    return leave(engine, victim.seq, keep_without(engine, victim.seq, rows)) ? ROOM_MADE : ROOM_COMING;
}

bool evict_for_load(struct engine *engine, enum llm_loaded loaded, int32_t rows, enum room *room)
{
    if (loaded != LLM_NO_ROOM) return false;
    *room = evict_for_cells(engine, rows);
    return *room == ROOM_MADE;
}

/* The next to go for a reply, and what is free then. */
static int32_t free_some_now(struct engine *engine, struct victim victim, int32_t rows)
{
    int32_t keep = keep_without(engine, victim.seq, rows);
    if (victim.safe) return cut(engine, victim.seq, keep);
    if (!victim.seq->leaving.on) save_before_eviction(engine, victim.seq);
    return cut_short(engine, victim.seq, keep);
}

bool evict_now(struct engine *engine, int32_t rows)
{
    int32_t freed = 0;
    while (freed < rows) {
        struct victim victim = choose_victim(engine);
        struct seq *leaving = least_recently_used(engine, true);
        if (!victim.safe && leaving != NULL) victim.seq = leaving;
        if (victim.seq == NULL) break;
        freed += free_some_now(engine, victim, rows - freed);
    }
    let_go_on_unless_coming(engine); /* these cells are not for prompts */
    return freed > 0;
}
