/* The slow lane: requests whose preparation takes long, because a program of the machine reads a document or a video of
 * theirs, a file of theirs is fetched, or they have large images or long sounds, are prepared on threads of their own
 * and of lower priority, so that nobody else's waits for them. */
#ifndef LIB_REQUESTS_SLOW_LANE_H
#define LIB_REQUESTS_SLOW_LANE_H

#include "engine/job.h"

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
