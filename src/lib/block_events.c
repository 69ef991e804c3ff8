/* hearth.h, Cache events: a follower of an instance's store (lib/events). */
#include "base/error.h"
#include "lib/models/loaded_model.h"

int hearth_follow_blocks(hearth *instance, void (*changed)(void *ud), void *ud, hearth_error *error)
{
    if (instance->store == NULL)
        return error_at(error, HEARTH_UNAVAILABLE, "cache", "nothing is stored: no tier is on, or no model caches");
    instance->events = cache_events_open(instance->store, changed, ud);
    return HEARTH_OK;
}

bool hearth_next_block_event(hearth *instance, hearth_block_event *event)
{
    return cache_events_next(instance->events, event);
}

void hearth_resend_blocks(hearth *instance)
{
    cache_events_resend(instance->events);
}

void hearth_unfollow_blocks(hearth *instance)
{
    if (instance->events != NULL) cache_events_end(instance->events);
}
