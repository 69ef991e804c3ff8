/* Cache events: a follower of the instance gets the store's contents of all models, in blocks (hearth.h, Cache events).
 *
 * Nothing is done for them on the threads that change the store, but that the follower is woken: it reads the indexes
 * of the tiers itself, on its own thread. */
#ifndef INSTANCE_EVENTS_CACHE_EVENTS_H
#define INSTANCE_EVENTS_CACHE_EVENTS_H

#include "hearth.h"
#include "store/store.h"

struct cache_events;

struct identity_name {
    const char *model, *adapters, *salt; /* adapters, salt: NULL: the model's own, none */
    bool by_state;                       /* a prefix can be reused only up to a state */
};

/* Follows the store, which is borrowed. */
struct cache_events *cache_events_open(struct store *store, void (*changed)(void *ud), void *ud);

/* Ends it: `changed` is not called any more. The rest may be called still. */
void cache_events_end(struct cache_events *events);
void cache_events_close(struct cache_events *events); /* NULL is fine */

/* States are stored under that identity, or looked up. Any thread; NULL events are fine. */
void cache_events_name(struct cache_events *events, const struct identity *identity, const struct identity_name *name);

/* The follower's thread. */
bool cache_events_next(struct cache_events *events, hearth_block_event *event);
void cache_events_resend(struct cache_events *events);

#endif
