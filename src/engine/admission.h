/* The door to a model: at most `permits` requests are in flight (n_seq_max x queue_depth); further ones wait here in
 * order, until a free_permit is free, their time is up, or they are cancelled. Those that want their prompt alone take
 * no free_permit, but are let in one at a time: a preparing thread is left for the others, however many and long they
 * are.
 *
 * Thread-safe. Jobs enter from any thread; preparing threads fetch them with admission_next(). */
#ifndef ENGINE_ADMISSION_H
#define ENGINE_ADMISSION_H

#include "base/clock.h"
#include "engine/job.h"

struct admission;

enum admission_verdict {
    ADMISSION_ADMITTED,  /* the job is let in: whoever ends it calls admission_leave() */
    ADMISSION_RESUMED,   /* what the job was suspended for may have come, or its time is over */
    ADMISSION_EXPIRED,   /* waited too long */
    ADMISSION_CANCELLED, /* its client gave up */
    ADMISSION_CLOSED     /* no job: the door is closed and nobody waits */
};

struct admission *admission_open(struct clock *clock, size_t permits, int64_t timeout_ns);
void admission_release(struct admission *admission); /* after every job has left */

/* Takes the job in, or returns false (the job stays the caller's) when the door is closed. */
bool admission_enter(struct admission *admission, struct job *job);

/* Waits for the next job to deal with. */
enum admission_verdict admission_next(struct admission *admission, struct job **job);

/* A job that was let in waits for something outside, and no thread with it: until admission_resume() was called, or the
 * deadline. What it waits for is asked for after `seen`, the number of calls so far, was read, so that none is missed.
 * False: the door is closed, and the job stays the caller's. */
uint64_t admission_resumes(struct admission *admission);
bool admission_suspend(struct admission *admission, struct job *job, int64_t deadline, uint64_t seen);
void admission_resume(struct admission *admission);

/* A job that was let in is over. */
void admission_leave(struct admission *admission, const struct job *job);

/* Some job's `cancelled` was set: look whether it waits here. */
void admission_poke(struct admission *admission);

/* Closes the door; returns those that were waiting or suspended, for the caller to fail. */
struct job_list admission_close(struct admission *admission);

size_t admission_waiting(struct admission *admission);

#endif
