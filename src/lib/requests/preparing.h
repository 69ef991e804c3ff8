/* The requests of a model that are being prepared, so that they can be given up: what a preparation does between two
 * looks at its job is bounded (chat/, grammar/, the limits of texts), and from then on it ends at once.
 *
 * Thread-safe; owned by the model. */
#ifndef LIB_REQUESTS_PREPARING_H
#define LIB_REQUESTS_PREPARING_H

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

#endif
