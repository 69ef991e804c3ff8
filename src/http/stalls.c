/* The watchdog of the server's thread: see stalls.h. */
#include "http/stalls.h"

#include "base/clock.h"
#include "base/log.h"

#include <stddef.h>
#include <sys/resource.h>
#include <time.h>

static int64_t cpu_time(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static long count_waits(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}

void stalls_enter(struct stalls *stalls)
{
    if (stalls->depth++ > 0) return;
    stalls->route = NULL;
    stalls->began_at = clock_now(clock_monotonic());
    stalls->cpu = cpu_time();
    stalls->waits = count_waits();
}

/* Each that is longer than all before is a warning: few lines, and the worst is among them. */
static void note(struct stalls *stalls, int64_t took, int64_t busy)
{
    const char *route = stalls->route != NULL ? stalls->route : "none";
    bool is_longest = took > stalls->longest || busy > stalls->busiest;
    stalls->n++;
    if (took > stalls->longest) stalls->longest = took;
    if (busy > stalls->busiest) stalls->busiest = busy;
    log_event(is_longest ? LOG_WARN : LOG_DEBUG, "http", "all connections were held up", log_str("route", route),
              log_num("took_ms", clock_to_ms(took)), log_num("busy_ms", clock_to_ms(busy)));
}

void stalls_leave(struct stalls *stalls)
{
    if (--stalls->depth > 0) return;
    const int64_t most = (int64_t)STALLS_MAX_MS * 1000000;
    int64_t took = clock_now(clock_monotonic()) - stalls->began_at;
    if (took <= most) return;
    int64_t busy = cpu_time() - stalls->cpu;
    if (busy > most || count_waits() > stalls->waits) note(stalls, took, busy);
}

void stalls_name(struct stalls *stalls, const char *route)
{
    stalls->route = route;
}
