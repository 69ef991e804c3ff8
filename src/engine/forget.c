/* The files of the weights have changed while they are mapped (base/file_watch.h). Nothing that was computed of the
 * former weights is mixed with what is computed of these, and nothing is stored any more. Requests that run go on,
 * since their tokens are with their clients, but nobody else gets their cells. Runs on the engine's thread.
 *
 * The threads that prepare requests and the store's look at the watch, each before it counts on anything that was kept.
 * The engine only reads what they have found, before it accepts the request. */
#include "engine/core.h"
#include "engine/evict.h"
#include "engine/fetch.h"
#include "engine/save.h"

#include "base/log.h"

/* A request that has begun, in a slot or suspended: all that it has is its own. */
static void set_apart(struct job *job)
{
    job->cache_prompt = false;
    job->n_checkpoints = 0;
}

static void forget_list(struct job_list *jobs)
{
    for (struct job *job = jobs->first; job != NULL; job = job->next) {
        if (job->state == JOB_SUSPENDED) set_apart(job);
        fetch_release(job);
    }
}

/* A slot's fetched cells are of the former weights, as its computed ones are. */
static void forget_slot(struct engine *engine, struct slot *slot)
{
    forget_list(&slot->queue);
    if (slot->job == NULL) return;
    fetch_stop(engine, slot);
    fetch_release(slot->job);
    if (slot->seq != NULL) set_apart(slot->job);
}

static void forget_seq(struct engine *engine, struct seq *seq)
{
    save_release(seq);
    if (seq->state == SEQ_RUNNING || seq->suspended != NULL)
        seq->scope = SCOPE_PRIVATE;
    else if (seq->n_cells > 0)
        evict_stored(engine, seq);
}

void forget_changed(struct engine *engine)
{
    assert_thread(&engine->owner);
    uint64_t changes = file_watch_changes(engine->watch);
    if (changes == engine->changes) return;
    engine->changes = changes;
    forget_list(&engine->waiting);
    for (size_t i = 0; i < engine->n_slots; i++) forget_slot(engine, &engine->slots[i]);
    for (size_t i = 0; i < engine->n_seqs; i++) forget_seq(engine, &engine->seqs[i]);
    snapshots_forget(engine->snapshots);
    engine->store = NULL;
    log_event(LOG_INFO, "batch-engine", "forgotten: the weights have changed", log_str("model", engine->name));
}
