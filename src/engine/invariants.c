/* The invariants of an engine between two rounds of its loop: engine_check() asserts all of them after each round, in
 * builds with assertions. It is the words of core.h and states.h as code: which fields each state has, and that tokens,
 * cells, queues, saves and counts agree. Runs on the engine's thread and changes nothing. */
#include "engine/core.h"
#include "engine/evict.h"

#ifndef NDEBUG

#include <assert.h>

/* Comparing the tokens of all pairs of sequences takes longer than the rest together: one round in so many. */
#define COMPARED_ROUNDS 16

/* ---- Slots ---- */

static void check_slot(const struct engine *engine, const struct slot *slot)
{
    const struct job *job = slot->job;
    const struct run *run = slot->run;
    const struct seq *seq = slot->seq, *awaited = slot->awaited;
    if (slot->state == SLOT_IDLE) {
        assert(seq == NULL && job == NULL && run == NULL && awaited == NULL);
        return;
    }
    assert(job != NULL && run != NULL);
    assert(job->state == JOB_RUNNING && job->run == NULL);
    assert(slot->set < engine->turns.n_sets);
    assert(run->n_prompt == (int32_t)job->prompt.len);
    assert((run->n_predicted > 0) >= (slot_state_shown(slot->state) == HEARTH_SLOT_GENERATE));
    if (slot_state_shown(slot->state) == HEARTH_SLOT_PENDING) {
        /* It has no sequence yet, and may wait for the cells of another one. */
        assert(seq == NULL);
        assert((awaited != NULL) == (slot->state == SLOT_AWAITS_PREFIX));
        assert(awaited == NULL || (awaited >= engine->seqs && awaited < engine->seqs + engine->n_seqs));
        assert(awaited == NULL || slot->awaited_cells > 0);
        return;
    }
    assert(seq != NULL && seq->state == SEQ_RUNNING && seq->slot == slot);
    assert(awaited == NULL);
    assert(job->wanted == &job->prompt && run->wanted.len == 0 && run->snapshot == NULL);
    assert(seq->tokens.len == (size_t)(run->n_prompt + run->n_predicted));
    assert(seq->n_cells < (int32_t)seq->tokens.len); /* else its next token was sampled, or it has ended */
    assert(slot_is_fetching(slot) == (slot->fetching.n > 0));
    assert(!slot_is_fetching(slot) || job->hit != NULL);
    assert(slot->fetching.piece_held == (slot->state == SLOT_FETCH_AWAITS_ROOM) || slot->state == SLOT_FETCHES);
    assert(!slot_has_yielded(slot) || seq->n_cells == 0);
}

static void check_slots(const struct engine *engine)
{
    bool leaves = evict_deadline(engine) != CLOCK_NEVER || next_pending_victim(engine) != NULL;
    int64_t busy = 0, in_sets = 0;
    for (size_t i = 0; i < engine->n_slots; i++) {
        check_slot(engine, &engine->slots[i]);
        assert(!slot_awaits_room(&engine->slots[i]) || leaves); /* it waits only while somebody gives room up */
        busy += engine->slots[i].state != SLOT_IDLE;
    }
    for (size_t i = 0; i < engine->turns.n_sets; i++) in_sets += engine->turns.sets[i].slots;
    assert(metric_get(&engine->stats->slots_busy) == busy);
    assert(in_sets == busy);
    assert(engine->n_running == 0);
}

/* ---- Sequences ---- */

static void check_claim(const struct seq *seq)
{
    assert((seq->state == SEQ_RUNNING) == (seq->slot != NULL));
    assert((seq->state == SEQ_SUSPENDED || seq->state == SEQ_SUSPENDED_LEAVES) == (seq->suspended != NULL));
    assert(seq->state == SEQ_RUNNING || (seq->state == SEQ_FREE) == (seq->n_cells == 0));
    assert(seq->slot == NULL || seq->slot->seq == seq);
    assert(!seq->pinned);
    assert(!seq->kept || seq->state != SEQ_FREE);
    const struct pending_eviction *eviction = &seq->eviction;
    if (seq_state_leaves(seq->state))
        assert(eviction->attempts > 0 && eviction->keep >= 0 && eviction->keep < seq->n_cells);
    else
        assert(eviction->attempts == 0 && !eviction->ordered && eviction->keep == 0);
}

static void check_seq(const struct engine *engine, const struct seq *seq)
{
    bool rows_alone = seq->state == SEQ_RUNNING && slot_is_fetching(seq->slot) && seq->n_cells == 0;
    check_claim(seq);
    assert((size_t)seq->suffixes.len <= seq->tokens.len);
    assert(seq->n_cells >= 0 && (size_t)seq->n_cells <= seq->tokens.len);
    assert(seq->state == SEQ_RUNNING || (size_t)seq->n_cells == seq->tokens.len);
    assert(seq->n_exact <= seq->n_cells);
    assert(seq->n_messages == 0 || seq->message_tokens <= seq->n_cells);
    assert(rows_alone || llm_seq_end(engine->context, seq->id) == seq->n_cells);
    /* Saves are of cells that are there, in order. */
    const struct saving *saving = &seq->saving;
    assert(saving->n <= seq->n_cells && saving->ticket <= engine->last_ticket);
    assert(saving->n_events <= SAVE_EVENTS);
    for (size_t i = 0; i < saving->n_events; i++) {
        assert(saving->events[i].to > 0 && saving->events[i].to <= seq->n_cells);
        assert(i == 0 || saving->events[i].to >= saving->events[i - 1].to);
        assert((saving->events[i].checkpoint != NULL) == (saving->events[i].checkpoint_size > 0));
    }
}

/* Cells that two sequences share have the same tokens. */
static void check_sharing(const struct engine *engine)
{
    for (size_t i = 0; i < engine->n_seqs; i++)
        for (size_t k = 0; k < i; k++) {
            const struct seq *a = &engine->seqs[i], *b = &engine->seqs[k];
            int32_t n = sharing_between(&engine->sharing, a->id, b->id);
            assert(n <= a->n_cells && n <= b->n_cells);
            assert(n == 0 || (int32_t)tokens_common_prefix(&a->tokens, &b->tokens) >= n);
            assert(n == 0 || a->scope == b->scope || a->scope == SCOPE_PRIVATE || b->scope == SCOPE_PRIVATE);
        }
}

/* The model has as many cells in use as the sequences need, each counted once. */
static void check_cell_book(const struct engine *engine)
{
    struct llm_cell_map map;
    if (!engine->policy.one_pool || !llm_cells_map(engine->context, &map)) return;
    for (size_t i = 0; i < engine->n_slots; i++)
        if (slot_is_fetching(&engine->slots[i])) return; /* it may have rows that count as no cells yet */
    assert(engine->idle_count.used == map.used);
}

/* ---- Queues ---- */

static size_t check_queue(const struct engine *engine, const struct job_list *list)
{
    size_t n = 0, suspended = 0;
    const struct job *previous = NULL;
    for (const struct job *job = list->first; job != NULL; previous = job, job = job->next, n++) {
        assert(job->previous == previous);
        assert(job->state == JOB_QUEUED || job->state == JOB_SUSPENDED);
        assert((job->state == JOB_SUSPENDED) == (job->run != NULL));
        assert(job->wanted == (job->run == NULL ? &job->prompt : &job->run->wanted));
        assert(!job->only_lookup && !job->only_prompt);
        if (job->run != NULL) suspended += suspended_in(engine, job->run) != NULL;
    }
    assert(list->last == previous && list->len == n);
    return suspended;
}

/* Each suspended sequence has a job that waits, and each pinned snapshot a request. */
static void check_queues(const struct engine *engine)
{
    size_t suspended = check_queue(engine, &engine->waiting), in_seqs = 0, snapshots = 0;
    for (size_t i = 0; i < engine->n_slots; i++) {
        suspended += check_queue(engine, &engine->slots[i].queue);
        snapshots += engine->slots[i].run != NULL && engine->slots[i].run->snapshot != NULL;
        for (const struct job *job = engine->slots[i].queue.first; job != NULL; job = job->next)
            snapshots += job->run != NULL && job->run->snapshot != NULL;
    }
    for (const struct job *job = engine->waiting.first; job != NULL; job = job->next)
        snapshots += job->run != NULL && job->run->snapshot != NULL;
    for (size_t i = 0; i < engine->n_seqs; i++)
        in_seqs += engine->seqs[i].suspended != NULL && engine->seqs[i].slot == NULL;
    /* One that awaits its sequence again is in a slot, and its cells are claimed still. */
    for (size_t i = 0; i < engine->n_slots; i++)
        suspended += engine->slots[i].run != NULL && suspended_in(engine, engine->slots[i].run) != NULL;
    assert(suspended == in_seqs);
    assert(snapshots_check(engine->snapshots) == snapshots);
}

void engine_check(const struct engine *engine)
{
    assert_thread(&engine->owner);
    static _Atomic uint64_t rounds;
    check_slots(engine);
    for (size_t i = 0; i < engine->n_seqs; i++) check_seq(engine, &engine->seqs[i]);
    check_queues(engine);
    check_cell_book(engine);
    if (atomic_fetch_add_explicit(&rounds, 1, memory_order_relaxed) % COMPARED_ROUNDS == 0) check_sharing(engine);
}

#else

void engine_check(const struct engine *engine)
{
    (void)engine;
}

#endif
