/* Reads the chunks of a streamed chat of OpenAI's API, with the members that hearth and llama-server add: `timings` and
 * `prompt_progress`. Pure functions; the caller owns the state. */
#ifndef CLI_CHAT_CHUNKS_H
#define CLI_CHAT_CHUNKS_H

#include "cli/chat/chat_backend.h"

#include <stdbool.h>

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

/* An sse_event_fn; `ud` is a struct chunks. After an error or the end nothing is read. */
void chunks_read(void *ud, const char *data, size_t len);

#endif
