/* Threads that share out numbered jobs. The thread that opened the crew works with them; between two calls of
 * crew_run() the others wait. */
#ifndef DEMO_CREW_H
#define DEMO_CREW_H

#include "hearth.h"

struct crew;

/* One job; `worker` is 0 to n - 1, and no two jobs run at once under the same number. */
typedef void (*crew_fn)(void *ud, int worker, int job);

struct crew *crew_open(int threads, hearth_error *error);
void crew_close(struct crew *crew);
int crew_size(const struct crew *crew);

/* Runs jobs 0 to n - 1 and returns when all are done. */
void crew_run(struct crew *crew, int n, crew_fn run, void *ud);

#endif
