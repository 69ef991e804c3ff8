/* An embedding or reranking request in flight: from hearth_embed() to the answer. Routes parse bodies and write
 * results by themselves. */
#ifndef SERVE_EMBEDDINGS_EMBED_H
#define SERVE_EMBEDDINGS_EMBED_H

#include "serve/core/call.h"

struct embed_form {
    /* Appends the answer. Runs on a thread of the library, so that formatting many numbers does not stall streams;
     * it may touch `state` and `result` only. */
    void (*put)(const void *state, const hearth_embedded *result, struct buf *out);
    /* The library's error with the client's own name of the field; NULL: no renaming. */
    hearth_error (*rename)(const void *state, const hearth_error *error);
    call_error_form *put_error;
    void (*release)(void *state);
};

/* Answers the call, now or later. Takes `state` over, which owns what `params` points at. HTTP thread only. */
void embed_start(struct call *call, const hearth_embed_params *params, const struct embed_form *form, void *state);

#endif
