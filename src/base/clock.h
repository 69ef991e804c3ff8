/* Time as an object, so that tests can move it. Every timeout of the engine and of admission is measured with the
 * clock they were opened with. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <pthread.h>
#include <stdint.h>

#define CLOCK_NEVER INT64_MAX

struct clock {
    /* Nanoseconds since some fixed moment; never goes back. */
    int64_t (*now)(struct clock *clock);
    /* Waits on `cond` (with `mutex` held) until it is signalled or `deadline` is reached. May wake for no reason. */
    void (*wait)(struct clock *clock, pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t deadline);
};

/* The machine's monotonic clock; shared, never freed. Condition variables it waits on: clock_cond_init(). */
struct clock *clock_monotonic(void);

void clock_cond_init(pthread_cond_t *cond);

static inline int64_t clock_now(struct clock *clock)
{
    return clock->now(clock);
}

static inline int64_t clock_from_ms(int64_t ms)
{
    return ms * 1000000;
}

static inline double clock_to_ms(int64_t ns)
{
    return (double)ns / 1e6;
}

/* CPU time of all threads of the process, in nanoseconds. */
int64_t clock_cpu_of_process(void);

/* Milliseconds since 1970, for people. */
int64_t clock_unix_ms(void);

#endif
