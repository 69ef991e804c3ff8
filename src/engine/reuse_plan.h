/* The reuse plan of a request, and what of its prompt is cached where. */
#ifndef ENGINE_REUSE_PLAN_H
#define ENGINE_REUSE_PLAN_H

#include "engine/slot.h"

/* The reuse plan of a request: which cached prefix it begins with, and from where. reuse_plan.c chooses it, place.c
 * carries it out. */
struct placement {
    enum {
        PLACE_FRESH,
        PLACE_CONTINUE, /* compute on the source sequence itself, which keeps n cells */
        PLACE_SHARE,    /* share the first n cells of the source with a sequence of its own */
        PLACE_RESTORE,  /* load the snapshot */
        PLACE_FETCH, /* read the first n cells from the store, job->hit; `shared` of them come from the source, if any
                      */
        PLACE_WAIT,  /* in a slot, until the source has n cells */
        PLACE_QUEUE  /* in the queue of the slot that computes on the source */
    } how;
    struct seq *source;
    const struct snapshot *snapshot;
    int32_t n;         /* leading tokens that are reused, or that the source must have first */
    int32_t shared;    /* of a fetch: leading tokens that lie in the source's cells */
    int32_t too_short; /* of PLACE_FRESH: tokens that could be reused, but fewer than cache_min_tokens */
    int64_t cost;      /* in tokens: those to compute, and those evicted that a later request may want */
};

/* Chooses the cheapest reuse plan for a job that has come as far as `run` (NULL: it has not begun). A job
 * that has its slot already may not queue for another. */
struct placement find_placement(struct engine *engine, const struct job *job, const struct run *run, bool may_queue);

/* How many leading tokens of the prompt lie in cells, or in snapshots in memory. */
int32_t find_resident(const struct engine *engine, const struct job *job);

/* How many leading tokens of the prompt need not be computed, if everything there is were reused; `resident`:
 * find_resident(). */
int32_t find_reusable(const struct engine *engine, const struct job *job, int32_t resident);

/* How many leading tokens of the prompt a request for the same could reuse afterwards. */
int32_t find_kept(const struct engine *engine, const struct job *job);

/* The position where the prompt diverges from the most similar sequence. */
int32_t find_divergence(const struct engine *engine, const struct job *job);

/* Answers a cache lookup: how much of the prompt is cached, and where it diverges from the most
 * similar token list. Changes nothing. */
void lookup_answer(struct engine *engine, struct job *job);

/* nearest_note(), before a job is placed, notes the most similar token list where most of a long prompt is to be
 * computed. nearest_log(), at the request's end, logs it if that is what happened: positions, and words only where the
 * configuration allows them. */
void nearest_note(const struct engine *engine, struct job *job, const struct placement *placement);
void nearest_log(const struct engine *engine, const struct slot *slot);

#endif
