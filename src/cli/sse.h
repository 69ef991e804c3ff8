/* Reads server-sent events (HTML's EventSource format) from the bytes of a response, however they are cut. Comments and
 * all fields but `data` are passed over. Pure functions; the caller owns the state. */
#ifndef CLI_SSE_H
#define CLI_SSE_H

#include "base/buf.h"
#include "hearth.h"

#include <stdbool.h>

/* Bytes of a line, and of the data of an event, at most. */
#define SSE_MOST (4u << 20)

/* {0} is one at the beginning of a stream. */
struct sse {
    struct buf line; /* as far as it has arrived */
    struct buf data; /* of the event whose end has not arrived */
    bool has_data;
};

/* Called for each event that has data; the text is zero-terminated and valid during the call. */
typedef void (*sse_event_fn)(void *ud, const char *data, size_t len);

/* Takes more bytes. HEARTH_TOO_LONG: a line or an event exceeds SSE_MOST; then nothing more is to be added. */
int sse_add(struct sse *sse, const struct buf *bytes, sse_event_fn each, void *ud, hearth_error *error);

/* The stream has ended: an event counts without the blank line after it, too. */
void sse_end(struct sse *sse, sse_event_fn each, void *ud);

void sse_release(struct sse *sse);

#endif
