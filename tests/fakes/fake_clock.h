/* A clock whose time only the test changes. A wait with a deadline returns when the clock passes the deadline or the
 * condition variable is signalled. */
#ifndef FAKES_FAKE_CLOCK_H
#define FAKES_FAKE_CLOCK_H

#include "base/clock.h"

struct fake_clock {
    struct clock clock; /* first: tests pass &fake.clock */
    pthread_mutex_t mutex;
    int64_t now;
    struct fake_waiter *waiters;
};

void fake_clock_init(struct fake_clock *fake);
void fake_clock_release(struct fake_clock *fake);

/* Advances the time, and wakes waiters whose deadline has passed. */
void fake_clock_advance(struct fake_clock *fake, int64_t ns);

/* Waits until some thread waits on the clock with a deadline. */
void fake_clock_await_waiter(struct fake_clock *fake);

#endif
