/* hearth_sound_seconds() of hearth.h, for callers that have no model. No state; any thread. */
#include "hearth.h"

#include "media/media.h"

int hearth_sound_seconds(const void *bytes, size_t len, double *seconds, hearth_error *error)
{
    hearth_error own;
    return media_sound_measure(&(struct media_bytes){.v = bytes, .len = len}, seconds, error != NULL ? error : &own);
}
