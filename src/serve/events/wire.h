/* Cache events as routers read them: msgpack, in the layout of vLLM's events, which llm-d and NVIDIA Dynamo both take.
 *
 *     [time, events, nil]
 *     ["BlockStored", blocks, parent, tokens, block size, nil, medium, adapters, extra keys]
 *     ["BlockRemoved", blocks, medium]
 *     ["AllBlocksCleared"]
 *
 * Pure functions, any thread. */
#ifndef SERVE_EVENTS_WIRE_H
#define SERVE_EVENTS_WIRE_H

#include "base/buf.h"
#include "hearth.h"

/* A batch of events, of one model. Zeroed: it is empty. */
struct wire {
    struct buf out;
    size_t n_events;
};

void wire_add(struct wire *wire, const hearth_block_event *event);

/* Completes the batch with the time, in seconds since 1970: wire->out is the message. */
void wire_end(struct wire *wire, double time);
void wire_clear(struct wire *wire); /* keeps the memory */
void wire_release(struct wire *wire);

#endif
