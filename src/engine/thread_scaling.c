/* The number of threads that compute a tick, by trial and measurement: see thread_scaling.h. */
#include "engine/thread_scaling.h"

#include <stddef.h>

/* A measurement covers so much time and at least two ticks: a scheduler lets a thread run for milliseconds, and single
 * ticks are slow or not by chance. A tick longer than LONG_NS is a measurement by itself. */
#define MEASURE_NS 40000000
#define LONG_NS    (4 * (int64_t)MEASURE_NS)

/* Large ticks: the part of one CPU's time that other processes may take; and the nanoseconds for which one thread
 * prepares a call while the others sleep. */
#define STOLEN   0.25
#define ALONE_NS 500000

/* A tick is slow, and threads are tried, at so many times the usual time. */
#define SLOW 1.3

/* Numbers of threads are equally fast within this factor; then the smaller one is used. */
#define AS_FAST 1.03

/* A trial of fewer threads ends at so many times the fastest time. */
#define TOO_SLOW 1.5

/* After a trial so many times its cost is computed until the next one, and at least MIN_REST_NS: trials that find
 * nothing cost at most 1 %. */
#define COST_FACTOR 100
#define MIN_REST_NS 500000000

void thread_scaling_init(struct thread_scaling *scaling, int32_t most, bool fixed)
{
    *scaling = (struct thread_scaling){.threads[0] = most, .n = 1};
    if (fixed) return;
    if (most > 2) scaling->threads[scaling->n++] = most - 1;
    for (int32_t threads = most / 2; threads > 0; threads /= 2)
        if (threads < scaling->threads[scaling->n - 1]) scaling->threads[scaling->n++] = threads;
}

int32_t thread_scaling_threads(const struct thread_scaling *scaling, int32_t n_tokens)
{
    if (n_tokens >= SCALING_BUCKETS) return scaling->threads[scaling->large.step];
    const struct scaling_bucket *bucket = &scaling->buckets[n_tokens];
    return scaling->threads[bucket->trial.on ? bucket->trial.step : bucket->step];
}

/* ---- Trials with few tokens ---- */

static void begin_trial(struct scaling_bucket *bucket, bool more, double before)
{
    bucket->trial.on = true;
    bucket->trial.more = more;
    bucket->trial.step = more ? bucket->step - 1 : bucket->step + 1;
    bucket->trial.best = bucket->step;
    bucket->trial.before = bucket->trial.least = bucket->trial.chosen = before;
    bucket->trial.cost = 0;
}

static void end_trial(struct scaling_bucket *bucket)
{
    bucket->trial.on = false;
    bucket->known = true;
    int64_t cooldown_ns = (int64_t)(COST_FACTOR * bucket->trial.cost);
    bucket->cooldown_ns[bucket->trial.more] = cooldown_ns > MIN_REST_NS ? cooldown_ns : MIN_REST_NS;
    /* Where nothing better was found the ticks themselves may have changed, as in a longer context. The usual time
     * moves half of the way, not all of it, since the trial may have met a bad moment. */
    bucket->usual =
        bucket->trial.best == bucket->step ? (bucket->usual + bucket->trial.before) / 2 : bucket->trial.chosen;
    bucket->step = bucket->trial.best;
}

/* One step of more threads is tried; fewer threads are, down to one, or until it is plain that they are slower. */
static void note_trial(const struct thread_scaling *scaling, struct scaling_bucket *bucket, double ns, int32_t ticks)
{
    bool more = bucket->trial.more, last = bucket->trial.step == scaling->n - 1;
    if (bucket->known && ns > bucket->trial.before) bucket->trial.cost += (ns - bucket->trial.before) * ticks;
    if (!more && ns < bucket->trial.least) bucket->trial.least = ns;
    if (more ? ns * AS_FAST < bucket->trial.before : ns <= bucket->trial.least * AS_FAST) {
        bucket->trial.best = bucket->trial.step;
        bucket->trial.chosen = ns;
    }
    if (more || last || ns > bucket->trial.least * TOO_SLOW)
        end_trial(bucket);
    else
        bucket->trial.step++;
}

/* ---- Few tokens ---- */

/* Evaluates a measurement without a trial. A single slow tick makes one measurement slow, but not two. */
static void start_trial_if_due(const struct thread_scaling *scaling, struct scaling_bucket *bucket, double ns)
{
    bool slow = ns > bucket->usual * SLOW,
         fewer = !bucket->known || (slow && bucket->was_slow && bucket->cooldown_ns[false] <= 0);
    bucket->was_slow = slow;
    if (!bucket->known) bucket->usual = ns;
    if (fewer && bucket->step < scaling->n - 1)
        begin_trial(bucket, false, ns);
    else if (bucket->step > 0 && bucket->cooldown_ns[true] <= 0)
        begin_trial(bucket, true, ns);
    else if (!slow)
        bucket->usual = ns < bucket->usual ? ns : (7 * bucket->usual + ns) / 8;
}

static void observe_small(const struct thread_scaling *scaling, struct scaling_bucket *bucket, int64_t ns)
{
    for (size_t i = 0; i < 2; i++) bucket->cooldown_ns[i] -= ns < bucket->cooldown_ns[i] ? ns : bucket->cooldown_ns[i];
    bucket->measure.ns += ns;
    bucket->measure.ticks++;
    if (bucket->measure.ns < (bucket->measure.ticks < 2 ? LONG_NS : MEASURE_NS)) return;
    double mean = (double)bucket->measure.ns / bucket->measure.ticks;
    int32_t ticks = bucket->measure.ticks;
    bucket->measure.ns = bucket->measure.ticks = 0;
    if (bucket->trial.on)
        note_trial(scaling, bucket, mean, ticks);
    else if (bucket->warmed_up)
        start_trial_if_due(scaling, bucket, mean);
    bucket->warmed_up = true;
}

/* ---- Many tokens ---- */

/* Fewer threads where other processes had CPUs in two measurements; one step more from time to time, taken back at once
 * where others have a CPU then. */
static void observe_large(const struct thread_scaling *scaling, struct scaling_large *large,
                          const struct scaling_tick *tick)
{
    int32_t threads = scaling->threads[large->step];
    large->cooldown_ns -= tick->ns < large->cooldown_ns ? tick->ns : large->cooldown_ns;
    large->ns += tick->ns;
    large->stolen_ns += threads * tick->ns - tick->cpu_ns - (threads - 1) * (int64_t)ALONE_NS;
    if (large->ns < MEASURE_NS) return;
    bool stolen = (double)large->stolen_ns > STOLEN * (double)large->ns;
    bool fewer = stolen && (large->was_stolen || large->tries_more) && large->step < scaling->n - 1;
    bool more = !stolen && large->step > 0 && large->cooldown_ns <= 0;
    if (fewer) large->cooldown_ns = large->tries_more ? COST_FACTOR / 2 * large->ns : MIN_REST_NS;
    large->was_stolen = stolen;
    large->tries_more = more;
    large->step += fewer - more;
    large->ns = large->stolen_ns = 0;
}

bool thread_scaling_tries(const struct thread_scaling *scaling, int32_t n_tokens)
{
    return n_tokens < SCALING_BUCKETS ? scaling->buckets[n_tokens].trial.on : scaling->large.tries_more;
}

bool thread_scaling_observe(struct thread_scaling *scaling, const struct scaling_tick *tick)
{
    bool is_large = tick->n_tokens >= SCALING_BUCKETS;
    const int32_t *step = is_large ? &scaling->large.step : &scaling->buckets[tick->n_tokens].step, before = *step;
    if (scaling->n == 1) return false;
    if (is_large)
        observe_large(scaling, &scaling->large, tick);
    else
        observe_small(scaling, &scaling->buckets[tick->n_tokens], tick->ns);
    return *step != before;
}
