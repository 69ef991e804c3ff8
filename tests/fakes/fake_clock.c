/* The fake clock: a time that tests set, and a list of waiting threads. */
#include "fakes/fake_clock.h"

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

struct fake_waiter {
    pthread_cond_t *cond;
    pthread_mutex_t *mutex;
    int64_t deadline;
    struct fake_waiter *next;
};

static int64_t fake_now(struct clock *clock)
{
    struct fake_clock *fake = (struct fake_clock *)clock;
    pthread_mutex_lock(&fake->mutex);
    int64_t now = fake->now;
    pthread_mutex_unlock(&fake->mutex);
    return now;
}

static void enlist(struct fake_clock *fake, struct fake_waiter *waiter)
{
    pthread_mutex_lock(&fake->mutex);
    waiter->next = fake->waiters;
    fake->waiters = waiter;
    pthread_mutex_unlock(&fake->mutex);
}

static void strike(struct fake_clock *fake, struct fake_waiter *waiter)
{
    pthread_mutex_lock(&fake->mutex);
    struct fake_waiter **link = &fake->waiters;
    while (*link != waiter) link = &(*link)->next;
    *link = waiter->next;
    pthread_mutex_unlock(&fake->mutex);
}

static void fake_wait(struct clock *clock, pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t deadline)
{
    struct fake_clock *fake = (struct fake_clock *)clock;
    if (deadline <= fake_now(clock)) return;
    struct fake_waiter waiter = {.cond = cond, .mutex = mutex, .deadline = deadline};
    enlist(fake, &waiter);
    pthread_cond_wait(cond, mutex);
    strike(fake, &waiter);
}

void fake_clock_init(struct fake_clock *fake)
{
    *fake = (struct fake_clock){.clock = {.now = fake_now, .wait = fake_wait}, .now = 1000000000};
    pthread_mutex_init(&fake->mutex, NULL);
}

void fake_clock_release(struct fake_clock *fake)
{
    pthread_mutex_destroy(&fake->mutex);
}

/* A waiter enlists under its own mutex, and releases that only by waiting: a broadcast under that mutex is never lost.
 * The fake's own mutex is not held meanwhile, since waiters take it while they hold theirs. */
void fake_clock_advance(struct fake_clock *fake, int64_t ns)
{
    struct {
        pthread_cond_t *cond;
        pthread_mutex_t *mutex;
    } due[16];
    size_t n = 0;
    pthread_mutex_lock(&fake->mutex);
    fake->now += ns;
    for (struct fake_waiter *w = fake->waiters; w != NULL && n < 16; w = w->next) {
        if (w->deadline > fake->now) continue;
        due[n].cond = w->cond;
        due[n++].mutex = w->mutex;
    }
    pthread_mutex_unlock(&fake->mutex);
    for (size_t i = 0; i < n; i++) {
        pthread_mutex_lock(due[i].mutex);
        pthread_cond_broadcast(due[i].cond);
        pthread_mutex_unlock(due[i].mutex);
    }
}

void fake_clock_await_waiter(struct fake_clock *fake)
{
    bool waiting = false;
    while (!waiting) {
        pthread_mutex_lock(&fake->mutex);
        for (struct fake_waiter *w = fake->waiters; w != NULL; w = w->next)
            if (w->deadline != CLOCK_NEVER) waiting = true;
        pthread_mutex_unlock(&fake->mutex);
        sched_yield();
    }
}
