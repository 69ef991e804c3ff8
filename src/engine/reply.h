/* Detokenised text of a reply. Bytes become whole UTF-8 characters. Text that may be the beginning of a stop string is
 * held back until it is known whether it is. */
#ifndef ENGINE_REPLY_H
#define ENGINE_REPLY_H

#include "base/buf.h"

#include <stdbool.h>

struct reply {
    const char *const *stop; /* borrowed */
    size_t n_stop;
    struct buf held;  /* bytes not yet released */
    struct buf ready; /* text released by the last call */
};

void reply_init(struct reply *reply, const char *const *stop, size_t n_stop);
void reply_release(struct reply *reply);

/* Adds the bytes of a token; `ready` is then the text that can be sent. Returns the stop string that the reply has
 * reached, or NULL. `ready` then has what precedes it, and nothing must be added afterwards. */
const char *reply_add(struct reply *reply, const char *bytes, size_t len);

/* The reply has ended without a stop string: releases what was held. */
void reply_finish(struct reply *reply);

#endif
