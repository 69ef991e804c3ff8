/* One line on stderr that says how far a training is: stage, step, loss on what the assistant says, tokens a second,
 * time left. On a terminal it is written over; elsewhere a line is printed now and then. Main thread. */
#ifndef DEMO_PROGRESS_H
#define DEMO_PROGRESS_H

#include "trainer.h"

#include <stdint.h>

struct progress {
    int64_t shown;            /* when the last line was written: nanoseconds of clock_monotonic() */
    int64_t before;           /* the end of the last step */
    double rate, speed, loss; /* operations and tokens a second, loss: means of the last steps */
};

void progress_open(struct progress *progress);

/* After each step; `stage` and `step` (from 0) are those of the step that was done. */
void progress_step(struct progress *progress, const struct trainer *trainer, int stage, int step,
                   const struct step_report *report);

/* Ends the line. */
void progress_close(const struct progress *progress);

#endif
