/* The clocks of the machine, by clock_gettime(). */
#include "base/clock.h"
#include "base/os.h"

#include <time.h>

static int64_t nanoseconds(clockid_t id)
{
    struct timespec ts;
    clock_gettime(id, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static int64_t monotonic_now(struct clock *clock)
{
    (void)clock;
    return nanoseconds(CLOCK_MONOTONIC);
}

static void monotonic_wait(struct clock *clock, pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t deadline)
{
    (void)clock;
    if (deadline == CLOCK_NEVER) {
        pthread_cond_wait(cond, mutex);
        return;
    }
    os_cond_wait_until(cond, mutex, deadline);
}

struct clock *clock_monotonic(void)
{
    static struct clock monotonic = {.now = monotonic_now, .wait = monotonic_wait};
    return &monotonic;
}

void clock_cond_init(pthread_cond_t *cond)
{
    os_cond_init(cond);
}

int64_t clock_cpu_of_process(void)
{
    return nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
}

int64_t clock_cpu_of_thread(void)
{
    return nanoseconds(CLOCK_THREAD_CPUTIME_ID);
}

int64_t clock_unix_ns(void)
{
    return nanoseconds(CLOCK_REALTIME);
}

int64_t clock_unix_ms(void)
{
    return clock_unix_ns() / 1000000;
}
