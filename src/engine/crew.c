#include "engine/crew.h"

#include <stddef.h>

/* A measure goes over so much time and two ticks: a scheduler lets a thread run for milliseconds, and ticks are slow or
 * not as it happens. Where ticks are long, one has seen enough of it. */
#define MEASURE_NS 40000000
#define LONG_NS    (4 * (int64_t)MEASURE_NS)

/* Many rows: so much of one CPU's time taken by others is too much; and so long a call is prepared by one thread, while
 * the others sleep. */
#define TAKEN    0.25
#define ALONE_NS 500000

/* A tick is slow, and the reason is looked for, at so many times what is usual. */
#define SLOW 1.3

/* Numbers of threads are as fast as each other within so much; then the smaller one is taken. */
#define AS_FAST 1.03

/* So many times as long as the fastest: still fewer threads are not tried. */
#define HOPELESS 1.5

/* After a trial so many times what it cost is computed until the next, and for so long at least: trials that find
 * nothing cost no more than 1 %. */
#define COST_FACTOR 100
#define MIN_REST_NS 500000000

void crew_init(struct crew *crew, int32_t most, bool fixed)
{
    *crew = (struct crew){.threads[0] = most, .n = 1};
    if (fixed) return;
    if (most > 2) crew->threads[crew->n++] = most - 1;
    for (int32_t threads = most / 2; threads > 0; threads /= 2)
        if (threads < crew->threads[crew->n - 1]) crew->threads[crew->n++] = threads;
}

int32_t crew_threads(const struct crew *crew, int32_t rows)
{
    if (rows >= CREW_KINDS) return crew->threads[crew->many.step];
    const struct crew_kind *kind = &crew->kinds[rows];
    return crew->threads[kind->trial.on ? kind->trial.step : kind->step];
}

/* ---- Trials with few rows ---- */

static void begin_trial(struct crew_kind *kind, bool more, double before)
{
    kind->trial.on = true;
    kind->trial.more = more;
    kind->trial.step = more ? kind->step - 1 : kind->step + 1;
    kind->trial.best = kind->step;
    kind->trial.before = kind->trial.least = kind->trial.chosen = before;
    kind->trial.cost = 0;
}

static void end_trial(struct crew_kind *kind)
{
    kind->trial.on = false;
    kind->known = true;
    int64_t rest = (int64_t)(COST_FACTOR * kind->trial.cost);
    kind->rest[kind->trial.more] = rest > MIN_REST_NS ? rest : MIN_REST_NS;
    /* Where nothing better was found it may be the ticks that have changed, as in a longer context: what is usual comes
     * nearer, not all the way, since the trial may have met a bad moment. */
    kind->usual = kind->trial.best == kind->step ? (kind->usual + kind->trial.before) / 2 : kind->trial.chosen;
    kind->step = kind->trial.best;
}

static void judge_more(struct crew_kind *kind, double ns)
{
    if (ns * AS_FAST < kind->trial.before) {
        kind->trial.best = kind->trial.step;
        kind->trial.chosen = ns;
    }
    end_trial(kind);
}

/* Fewer are tried down to one, or until it is plain that they are slower. */
static void judge_fewer(const struct crew *crew, struct crew_kind *kind, double ns)
{
    if (ns < kind->trial.least) kind->trial.least = ns;
    if (ns <= kind->trial.least * AS_FAST) {
        kind->trial.best = kind->trial.step;
        kind->trial.chosen = ns;
    }
    bool last = kind->trial.step == crew->n - 1;
    if (last || ns > kind->trial.least * HOPELESS)
        end_trial(kind);
    else
        kind->trial.step++;
}

static void judge(const struct crew *crew, struct crew_kind *kind, double ns, int32_t ticks)
{
    if (kind->known && ns > kind->trial.before) kind->trial.cost += (ns - kind->trial.before) * ticks;
    if (kind->trial.more)
        judge_more(kind, ns);
    else
        judge_fewer(crew, kind, ns);
}

/* ---- Few rows ---- */

/* A measure without a trial: is there reason for one? A single slow tick makes one measure slow, but not two. */
static void consider(const struct crew *crew, struct crew_kind *kind, double ns)
{
    bool slow = ns > kind->usual * SLOW, fewer = !kind->known || (slow && kind->was_slow && kind->rest[false] <= 0);
    kind->was_slow = slow;
    if (!kind->known) kind->usual = ns;
    if (fewer && kind->step < crew->n - 1)
        begin_trial(kind, false, ns);
    else if (kind->step > 0 && kind->rest[true] <= 0)
        begin_trial(kind, true, ns);
    else if (!slow)
        kind->usual = ns < kind->usual ? ns : (7 * kind->usual + ns) / 8;
}

static void observe_few(const struct crew *crew, struct crew_kind *kind, int64_t ns)
{
    for (size_t i = 0; i < 2; i++) kind->rest[i] -= ns < kind->rest[i] ? ns : kind->rest[i];
    kind->measure.ns += ns;
    kind->measure.ticks++;
    if (kind->measure.ns < (kind->measure.ticks < 2 ? LONG_NS : MEASURE_NS)) return;
    double mean = (double)kind->measure.ns / kind->measure.ticks;
    int32_t ticks = kind->measure.ticks;
    kind->measure.ns = kind->measure.ticks = 0;
    if (kind->trial.on)
        judge(crew, kind, mean, ticks);
    else if (kind->warm)
        consider(crew, kind, mean);
    kind->warm = true;
}

/* ---- Many ---- */

/* Fewer threads where others have had CPUs in two measures, and one more step from time to time, which is taken back
 * where it meets others at once. */
static void step_many(const struct crew *crew, struct crew_many *many, int64_t ns, bool taken)
{
    bool fewer = taken && (many->was_taken || many->tries_more) && many->step < crew->n - 1;
    bool more = !taken && many->step > 0 && many->rest <= 0;
    if (fewer) many->rest = many->tries_more ? COST_FACTOR / 2 * ns : MIN_REST_NS;
    many->was_taken = taken;
    many->tries_more = more;
    many->step += fewer - more;
}

static void observe_many(const struct crew *crew, struct crew_many *many, const struct crew_tick *tick)
{
    int32_t threads = crew->threads[many->step];
    many->rest -= tick->ns < many->rest ? tick->ns : many->rest;
    many->ns += tick->ns;
    many->lost += threads * tick->ns - tick->cpu_ns - (threads - 1) * (int64_t)ALONE_NS;
    if (many->ns < MEASURE_NS) return;
    int64_t ns = many->ns;
    bool taken = (double)many->lost > TAKEN * (double)ns;
    many->ns = many->lost = 0;
    step_many(crew, many, ns, taken);
}

bool crew_observe(struct crew *crew, const struct crew_tick *tick)
{
    bool is_many = tick->rows >= CREW_KINDS;
    const int32_t *step = is_many ? &crew->many.step : &crew->kinds[tick->rows].step, before = *step;
    if (crew->n == 1) return false;
    if (is_many)
        observe_many(crew, &crew->many, tick);
    else
        observe_few(crew, &crew->kinds[tick->rows], tick->ns);
    return *step != before;
}
