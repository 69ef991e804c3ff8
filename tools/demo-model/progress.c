#include "progress.h"

#include "base/clock.h"

#include <stdio.h>
#include <unistd.h>

void progress_open(struct progress *progress)
{
    int64_t now = clock_now(clock_monotonic());
    *progress = (struct progress){.before = now};
}

/* Moves a mean by a twentieth of the way; the first value is taken as it is. */
static void follow(double *mean, double value)
{
    *mean += (*mean > 0 ? 0.05 : 1.0) * (value - *mean);
}

void progress_step(struct progress *p, const struct trainer *trainer, int stage, int step,
                   const struct step_report *report)
{
    int64_t now = clock_now(clock_monotonic());
    double seconds = clock_to_ms(now - p->before) / 1000.0;
    bool terminal = isatty(STDERR_FILENO) == 1;
    int steps = trainer->plan->stages[stage].steps;
    p->before = now;
    follow(&p->rate, report->cost / seconds);
    follow(&p->speed, report->tokens / seconds);
    follow(&p->loss, report->loss.spoken > 0 ? report->loss.spoken_loss / report->loss.spoken : 0);
    if (step + 1 < steps && clock_to_ms(now - p->shown) < (terminal ? 500 : 10000)) return;
    p->shown = now;
    int left = (int)(trainer_cost_left(trainer) / p->rate);
    fprintf(stderr, "%sstage %d/%d  step %d/%d  loss %.4f  %.0f tokens/s  %d:%02d:%02d left%s", terminal ? "\r" : "",
            stage + 1, trainer->plan->n_stages, step + 1, steps, p->loss, p->speed, left / 3600, left / 60 % 60,
            left % 60, terminal ? "\033[K" : "\n");
}

void progress_close(const struct progress *progress)
{
    if (isatty(STDERR_FILENO) == 1 && progress->shown > 0) fputc('\n', stderr);
}
