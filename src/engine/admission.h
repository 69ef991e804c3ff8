/* Admission to a model: a FIFO queue with a limited number of permits. Coming and leaving cost the same however many
 * wait. At most `permits` requests are in flight (n_seq_max x queue_depth); further ones wait here in order until a
 * permit is free, their time-out passes, or they are cancelled. Jobs that only want their prompt rendered and tokenised
 * take no permit. They are admitted one at a time, so that a preparing thread is left for the others, however many and
 * long they are. One more may be set apart.
 *
 * Thread-safe. Jobs enter from any thread; preparing threads fetch them with admission_next(). */
#ifndef ENGINE_ADMISSION_H
#define ENGINE_ADMISSION_H

#include "base/clock.h"
#include "engine/job.h"

struct admission;

enum admission_verdict {
    ADMISSION_ADMITTED,  /* the job is admitted, until admission_leave() */
    ADMISSION_DUE,       /* what the postponed job waited for may have come, or its deadline has passed */
    ADMISSION_EXPIRED,   /* waited longer than the time-out */
    ADMISSION_CANCELLED, /* its client cancelled it */
    ADMISSION_CLOSED     /* no job: admission is closed and the queue is empty */
};

struct admission *admission_open(struct clock *clock, size_t permits, int64_t timeout_ns);
void admission_release(struct admission *admission); /* after every job has left */

/* Puts the job into the queue. False: admission is closed, and the job stays the caller's. */
bool admission_enter(struct admission *admission, struct job *job);

/* Waits for the next job with a verdict. */
enum admission_verdict admission_next(struct admission *admission, struct job **job);

/* Postpones an admitted job that waits for something outside, without blocking a thread: until admission_wake() is
 * called, or the deadline. Read `seen`, the number of calls of admission_wake() so far, before asking for what the
 * job waits for, so that no call is missed. False: admission is closed, and the job stays the caller's. */
uint64_t admission_wakes(struct admission *admission);
bool admission_postpone(struct admission *admission, struct job *job, int64_t deadline, uint64_t seen);
void admission_wake(struct admission *admission);

/* An admitted job is prepared on no preparing thread. If it only wants its prompt, the next one like it may come before
 * it ends. While another one is apart it may not, so that they do not fill the place where they are prepared. */
void admission_set_apart(struct admission *admission, struct job *job);

/* An admitted job has ended: its permit is free. */
void admission_leave(struct admission *admission, const struct job *job);

/* The job's `cancelled` was set: where it waits here, or will, that is its verdict. Its memory must be there. */
void admission_cancel(struct admission *admission, struct job *job);

/* Closes admission; returns the jobs that were waiting or postponed, for the caller to fail. */
struct job_list admission_close(struct admission *admission);

size_t admission_waiting(struct admission *admission);

#endif
