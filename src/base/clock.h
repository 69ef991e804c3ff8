/* Clocks as objects, so that tests can stop and set them. The engine and its admission queue measure every time-out
 * with the clock that they were opened with. Any thread. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <pthread.h>
#include <stdint.h>

#define CLOCK_NEVER INT64_MAX

struct clock {
    /* Nanoseconds since a fixed moment; monotonic. */
    int64_t (*now)(struct clock *clock);
    /* Waits on `cond` (with `mutex` held) until it is signalled or `deadline` (ns) has passed. May wake spuriously. */
    void (*wait)(struct clock *clock, pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t deadline);
};

/* CLOCK_MONOTONIC; shared, never freed. Condition variables that it waits on need clock_cond_init(). */
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

/* CPU time of all threads of the process, or of the calling one, in nanoseconds. */
int64_t clock_cpu_of_process(void);
int64_t clock_cpu_of_thread(void);

/* Since 1970, by the wall clock: for people and files, not for time-outs. */
int64_t clock_unix_ms(void);
int64_t clock_unix_ns(void);

#endif
