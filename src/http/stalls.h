/* The watchdog of the server's thread: notices what holds up all other connections. Server's thread only.
 *
 * Each callback of the event loop, and each posted call, is measured from stalls_enter() to stalls_leave(); pairs
 * within others do not count. Long is what took processor time, or waited for something, for more than STALLS_MAX_MS:
 * time in which the system ran another thread instead is nobody's fault here. */
#ifndef HTTP_STALLS_H
#define HTTP_STALLS_H

#include <stdbool.h>
#include <stdint.h>

enum { STALLS_MAX_MS = 5 };

struct stalls {
    int depth;                   /* of pairs that are open */
    const char *route;           /* what is measured now; NULL: not known yet */
    int64_t began_at, cpu;       /* at the outermost stalls_enter(): monotonic ns, the thread's processor time */
    long waits;                  /* and how often the thread had waited */
    int64_t n, longest, busiest; /* stalls so far; the longest, and the most processor time of one: ns */
};

void stalls_enter(struct stalls *stalls);
void stalls_leave(struct stalls *stalls);

/* Names what is measured now: a constant text. */
void stalls_name(struct stalls *stalls, const char *route);

#endif
