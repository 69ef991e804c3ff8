/* Which sequence is taken next when a request needs one, or cells: the order that placement plans with and that evict.c
 * follows. Reads the engine's state and asks the store what it has; changes nothing. Runs on the engine's thread.
 *
 * Where a sequence is needed, a free one comes first, then one whose cells another sequence has as well. After these,
 * and where cells are needed, comes the least recently used of those that are stored, then the least recently used of
 * all. Then come those of suspended requests, which will resume on them, and last those that are kept by order
 * (orders.c). */
#include "engine/core.h"

bool seq_is_shared_whole(const struct engine *engine, const struct seq *seq)
{
    return engine->policy.cuts_anywhere && sharing_most(&engine->sharing, seq->id) == seq->n_cells;
}

/* ---- Groups of resident sequences ---- */

typedef bool group(const struct engine *engine, const struct seq *seq);

/* No eviction is pending, no suspended request will resume on it, and no order keeps it. */
static bool is_unclaimed(const struct engine *engine, const struct seq *seq)
{
    (void)engine;
    return !seq_state_leaves(seq->state) && seq->suspended == NULL && !seq->kept;
}

static bool is_suspended(const struct engine *engine, const struct seq *seq)
{
    (void)engine;
    return seq->state == SEQ_SUSPENDED && !seq->kept;
}

static bool is_kept(const struct engine *engine, const struct seq *seq)
{
    (void)engine;
    return !seq_state_leaves(seq->state) && seq->kept;
}

static bool is_pending(const struct engine *engine, const struct seq *seq)
{
    (void)engine;
    return seq_state_leaves(seq->state) && seq->suspended == NULL;
}

static bool is_pending_and_suspended(const struct engine *engine, const struct seq *seq)
{
    (void)engine;
    return seq->state == SEQ_SUSPENDED_LEAVES;
}

static bool is_duplicate(const struct engine *engine, const struct seq *seq)
{
    return seq->suspended == NULL && !seq->kept && seq_is_shared_whole(engine, seq);
}

/* Nothing is lost with its cells. */
static bool is_safe(const struct engine *engine, const struct seq *seq)
{
    return seq_is_shared_whole(engine, seq) || save_status(engine, seq) == SAVE_COMPLETE;
}

static bool is_unclaimed_and_safe(const struct engine *engine, const struct seq *seq)
{
    return is_unclaimed(engine, seq) && is_safe(engine, seq);
}

static bool is_suspended_and_safe(const struct engine *engine, const struct seq *seq)
{
    return is_suspended(engine, seq) && is_safe(engine, seq);
}

static bool is_kept_and_safe(const struct engine *engine, const struct seq *seq)
{
    return is_kept(engine, seq) && is_safe(engine, seq);
}

static struct seq *least_recently_used(const struct engine *engine, group *belongs, const struct seq *but_not)
{
    struct seq *oldest = NULL;
    for (size_t i = 0; i < engine->n_seqs; i++) {
        struct seq *seq = &engine->seqs[i];
        bool resident = seq->state > SEQ_RUNNING && !seq->pinned && seq != but_not;
        if (!resident || (oldest != NULL && seq->last_used >= oldest->last_used)) continue;
        if (belongs(engine, seq)) oldest = seq;
    }
    return oldest;
}

/* ---- The order ---- */

static struct seq *find_free(const struct engine *engine)
{
    for (size_t i = 0; i < engine->n_seqs; i++) {
        struct seq *seq = &engine->seqs[i];
        if (seq->state == SEQ_FREE) return seq;
    }
    return NULL;
}

static struct victim victim_for_cells(const struct engine *engine, const struct seq *but_not)
{
    static const struct {
        group *all, *safe;
    } groups[] = {
        {is_unclaimed, is_unclaimed_and_safe}, {is_suspended, is_suspended_and_safe}, {is_kept, is_kept_and_safe}};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        struct seq *oldest = least_recently_used(engine, groups[i].all, but_not);
        if (oldest == NULL) continue;
        if (is_safe(engine, oldest)) return (struct victim){oldest, true};
        struct seq *safe = least_recently_used(engine, groups[i].safe, but_not);
        return safe != NULL ? (struct victim){safe, true} : (struct victim){oldest, false};
    }
    return (struct victim){0};
}

struct victim next_victim(const struct engine *engine, enum room room, const struct seq *but_not)
{
    if (room == ROOM_FOR_CELLS) return victim_for_cells(engine, but_not);
    struct seq *seq = find_free(engine);
    if (seq == NULL) seq = least_recently_used(engine, is_duplicate, but_not);
    return seq != NULL ? (struct victim){seq, true} : victim_for_cells(engine, but_not);
}

struct seq *next_pending_victim(const struct engine *engine)
{
    struct seq *seq = least_recently_used(engine, is_pending, NULL);
    return seq != NULL ? seq : least_recently_used(engine, is_pending_and_suspended, NULL);
}

bool can_have_seq(const struct engine *engine, const struct seq *but_not)
{
    for (size_t i = 0; i < engine->n_seqs; i++)
        if (engine->seqs[i].state != SEQ_RUNNING && &engine->seqs[i] != but_not) return true;
    return false;
}
