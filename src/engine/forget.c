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

void forget_changed(struct engine *engine)
{
    assert_thread(&engine->owner);
    uint64_t changes = file_watch_changes(engine->watch);
    if (changes == engine->changes) return;
    engine->changes = changes;
    forget_list(&engine->waiting);
    for (size_t i = 0; i < engine->n_slots; i++) {
        struct slot *slot = &engine->slots[i];
        forget_list(&slot->queue);
        if (slot->job == NULL) continue;
        fetch_stop(engine, slot); /* its fetched cells are of the former weights, as its computed ones are */
        fetch_release(slot->job);
        if (slot->seq != NULL) set_apart(slot->job);
    }
    for (size_t i = 0; i < engine->n_seqs; i++) {
        struct seq *seq = &engine->seqs[i];
        save_release(seq);
        if (seq->state == SEQ_RUNNING || seq->suspended != NULL)
            seq->scope = SCOPE_PRIVATE;
        else if (seq->n_cells > 0)
            evict_stored(engine, seq);
    }
    snapshots_forget(engine->snapshots);
    engine->store = NULL;
    log_event(LOG_INFO, "batch-engine", "forgotten: the weights have changed", log_str("model", engine->name));
}
