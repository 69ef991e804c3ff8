/* Calls of a tier's backend, and the thread that notices those that hang. */
#ifndef STORE_WATCHDOG_H
#define STORE_WATCHDOG_H

#include <stdint.h>

struct store;
struct tier;

/* What a thread of the tier is doing: its current call of the backend, for the watchdog. */
struct worker {
    int64_t since, limit; /* CLOCK_MONOTONIC, ns: when the call began, when it counts as hung; since 0: no call */
};

/* Around every call of the backend: the watchdog notices one that takes longer than the limit. */
void tier_begin_call(struct tier *tier, struct worker *worker, int64_t limit_ns);
void tier_end_call(struct tier *tier, struct worker *worker);

void *watchdog_main(void *store);

#endif
