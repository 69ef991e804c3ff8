/* One HTTP request for vectors or scores: from hearth_embed() to the answer. What a route reads and writes is its own;
 * this is the way between. */
#ifndef SERVE_EMBEDDINGS_EMBED_H
#define SERVE_EMBEDDINGS_EMBED_H

#include "serve/core/call.h"

struct embed_form {
    /* Appends the answer. On a thread of hearth's, so that no stream waits while numbers are written down: it touches
     * its state and the result alone. */
    void (*put)(const void *state, const hearth_embedded *result, struct buf *out);
    /* The library's error as the client's fields are called; NULL: as the library calls them. */
    hearth_error (*rename)(const void *state, const hearth_error *error);
    call_error_form *put_error;
    void (*release)(void *state);
};

/* Answers the call, now or later. `state` is taken over, and with it what `params` points at. HTTP thread only. */
void embed_start(struct call *call, const hearth_embed_params *params, const struct embed_form *form, void *state);

#endif
