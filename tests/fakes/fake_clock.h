/* A clock that stands still until the test moves it. Waiting on it with a deadline returns when the clock has passed
 * the deadline or the condition was signalled. */
#ifndef FAKES_FAKE_CLOCK_H
#define FAKES_FAKE_CLOCK_H

#include "base/clock.h"

struct fake_clock {
    struct clock clock; /* first: &fake.clock is what is handed out */
    pthread_mutex_t mutex;
    int64_t now;
    struct fake_waiter *waiters;
};

void fake_clock_init(struct fake_clock *fake);
void fake_clock_release(struct fake_clock *fake);

/* Moves the time and wakes those whose deadline has come. */
void fake_clock_advance(struct fake_clock *fake, int64_t ns);

/* Waits until some thread waits on the clock with a deadline. */
void fake_clock_await_waiter(struct fake_clock *fake);

#endif
