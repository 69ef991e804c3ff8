/* Reads a streamed reply of OpenAI's API from the bytes of a response, however they are cut. The bytes are server-sent
 * events (HTML's EventSource format) that carry chunks. These may have the members that hearth and llama-server add:
 * `timings` and `prompt_progress`. Pure functions; the caller owns the state. */
#ifndef CLI_CHAT_REPLY_STREAM_H
#define CLI_CHAT_REPLY_STREAM_H

#include "base/buf.h"
#include "cli/chat/chat_backend.h"
#include "hearth.h"

#include <jansson.h>
#include <stdbool.h>

/* ---- Events ---- */

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

/* ---- Chunks ---- */

/* {0} is one at the beginning of a reply. */
struct chunks {
    hearth_result result; /* tokens and times, as far as the server has named them */
    bool has_usage;       /* the tokens */
    bool has_timings;     /* the times as well */
    bool finished;        /* the reply is whole */
    bool done;            /* nothing will follow */
    hearth_error error;   /* of the server, or of what it sent; code is HEARTH_OK until then */
    struct chunks_to {
        reply_event_fn each; /* gets REPLY_PROGRESS, REPLY_REASONING and REPLY_CONTENT */
        void *ud;
    } to;
};

/* A member as a count that an int32_t holds; 0: it is none. */
int32_t chunks_count(const json_t *object, const char *name);

/* An sse_event_fn; `ud` is a struct chunks. After an error or the end nothing is read. */
void chunks_read(void *ud, const char *data, size_t len);

#endif
