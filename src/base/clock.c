/* The clocks of the machine, by clock_gettime(). */
#include "base/clock.h"

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
    struct timespec ts = {.tv_sec = deadline / 1000000000, .tv_nsec = deadline % 1000000000};
    pthread_cond_timedwait(cond, mutex, &ts);
}

struct clock *clock_monotonic(void)
{
    static struct clock monotonic = {.now = monotonic_now, .wait = monotonic_wait};
    return &monotonic;
}

void clock_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

int64_t clock_cpu_of_process(void)
{
    return nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
}

int64_t clock_unix_ns(void)
{
    return nanoseconds(CLOCK_REALTIME);
}

int64_t clock_unix_ms(void)
{
    return clock_unix_ns() / 1000000;
}
