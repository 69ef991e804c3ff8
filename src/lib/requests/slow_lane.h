/* The slow lane: requests whose preparation takes seconds, because a program of the machine reads a document or a video
 * of theirs, are prepared on a thread of their own, so that nobody else's waits for them. */
#ifndef LIB_REQUESTS_SLOW_LANE_H
#define LIB_REQUESTS_SLOW_LANE_H

#include "engine/job.h"

struct slow_lane;

/* `prepare` is called on the lane's thread, one job after the other. NULL: no thread can be had. */
struct slow_lane *slow_lane_open(void (*prepare)(struct job *job), hearth_error *error);

/* Jobs that wait are failed; that which is being prepared is finished first. NULL is fine. */
void slow_lane_close(struct slow_lane *lane);

void slow_lane_add(struct slow_lane *lane, struct job *job);

#endif
