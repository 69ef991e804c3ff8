/* The requests of a model that are being prepared, so that they can be given up. The work of a preparation between two
 * looks at its job is bounded (chat/, grammar/, the limits of texts). A look that finds the job cancelled ends it.
 * Beside them the slow lane.
 *
 * Thread-safe; owned by the model. */
#ifndef INSTANCE_REQUESTS_PREPARING_H
#define INSTANCE_REQUESTS_PREPARING_H

#include "engine/job.h"

#include <stdint.h>

struct preparing;

/* At most `most` jobs at a time. */
struct preparing *preparing_open(size_t most);
void preparing_close(struct preparing *all); /* when no preparation runs; NULL is fine */

/* Around a preparation, on its thread. The job must be there until the end of it. */
void preparing_begin(struct preparing *all, struct job *job);
void preparing_end(struct preparing *all, const struct job *job);

/* Cancels what is being prepared, and whatever will be. */
void preparing_stop(struct preparing *all);

/* Waits until nothing is being prepared, or for `patience` nanoseconds. False: something still is. */
bool preparing_wait(struct preparing *all, int64_t patience);

/* ---- The slow lane ----
 * Requests whose preparation takes long are prepared on threads of their own and of lower priority, so that no other
 * request waits for them. They have documents or videos that a program of the machine reads, files that are fetched,
 * large images or long sounds. */

struct slow_lane;

/* So many files may hang, each until its time is over, before another such request waits for them. */
enum { SLOW_LANE_THREADS = 4 };

/* `prepare` is called on the lane's threads. NULL: no thread can be had. */
struct slow_lane *slow_lane_open(void (*prepare)(struct job *job), hearth_error *error);

/* Jobs that wait are failed, and those that come. NULL is fine. */
void slow_lane_stop(struct slow_lane *lane);

/* Jobs that wait are failed; those that are being prepared are waited for. NULL is fine. */
void slow_lane_close(struct slow_lane *lane);

void slow_lane_add(struct slow_lane *lane, struct job *job);

#endif
