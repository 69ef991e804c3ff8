/* A generation request in flight: submits the choices of one HTTP request to the library, consumes their events, and
 * sends the answer, streamed or whole, with backpressure from slow clients.
 *
 * An exchange knows no API's JSON: a dialect writes that, on the answering threads (workers.h), one at a time for each
 * exchange. The HTTP thread starts an exchange and sends what was written. */
#ifndef SERVE_CORE_EXCHANGE_H
#define SERVE_CORE_EXCHANGE_H

#include "base/buf.h"
#include "serve/core/answer.h"
#include "serve/core/call.h"
#include "serve/core/pieces.h"

/* A piece of a stream: text, a token's logprobs, or both. */
struct exchange_piece {
    size_t index;              /* of the choice */
    const hearth_delta *delta; /* NULL: a token that adds no text yet (part of a character or of a stop string) */
    int32_t token;             /* -1: another delta of the same token, or text without a token */
    const struct token_logprobs *logprobs; /* NULL: not requested, or no token */
    const struct answer *answer; /* the response so far, with this delta; its `result` has the counts so far */
};

/* The dialect of an API: writes responses and streams in the API's form. The functions append bytes to
 * `out`; `state` is the dialect's own. */
struct dialect {
    /* Reads more of the request, which may take long; before the choices are submitted. NULL: there is no more. */
    void (*prepare)(void *state);
    /* Events of a stream: choice `index` has been placed in a slot; more of its prompt is computed (NULL: not
     * reported); a piece; the choice is complete. Then all choices are complete, or the stream breaks off with an
     * error. */
    void (*started)(void *state, size_t index, const hearth_result *result, struct buf *out);
    void (*progress)(void *state, size_t index, const hearth_result *result, struct buf *out);
    void (*more)(void *state, const struct exchange_piece *piece, struct buf *out);
    void (*done)(void *state, size_t index, const struct answer *answer, struct buf *out);
    void (*ended)(void *state, const struct answer *answers, size_t n, struct buf *out);
    void (*broken)(void *state, const hearth_error *error, struct buf *out);
    void (*ping)(void *state, struct buf *out); /* keep-alive of an idle stream; NULL: an SSE comment line */
    const char *stream_type;                    /* content type of a stream; NULL: server-sent events */
    const char *whole_type;                     /* and of an answer that is not streamed; NULL: JSON */
    /* The body of an answer that is not streamed; before that, whether there is one to give: else it fails with the
     * error (NULL: there always is). */
    int (*check)(const void *state, const struct answer *answers, hearth_error *error);
    void (*whole)(void *state, const struct answer *answers, size_t n, struct buf *out);
    /* In place of `whole`, where it may be long. */
    void (*pieces)(void *state, const struct answer *answers, size_t n, struct pieces *out);
    bool keeps_logprobs; /* streams need the logprobs of tokens that they have sent */
    /* The body of an HTTP error. */
    call_error_form *error;
    void (*release)(void *state); /* NULL: there is no state */
};

struct exchange_plan {
    const struct dialect *dialect;
    void *state; /* owned by the exchange from here on, released by the dialect */
    bool stream;
    bool tokens; /* answers contain token ids, and streams have a piece for every token, also without text */
    const hearth_params *choices; /* one library request each; borrowed for the call */
    size_t n_choices;
    void *owner; /* owns what the choices point at, which they share; owned by the exchange from here on */
    void (*release_owner)(void *owner);
};

/* Bounds of an answer. */
struct exchange_limits {
    size_t outbox_bytes;   /* bytes of queued events; beyond it the client is too slow and its request is cancelled */
    size_t backlog_bytes;  /* backpressure: unsent bytes at the socket above which events stay queued */
    size_t logprobs_bytes; /* bytes of an answer's logprobs until they are sent */
    size_t stream_tokens;  /* of a stream, that are sent together */
    int ping_ms;           /* ms without a byte after which a keep-alive is sent */
};

extern const struct exchange_limits exchange_limits_default;

/* A dialect's `started`: nothing, since its streams begin with their first pieces. */
void exchange_put_no_start(void *state, size_t index, const hearth_result *result, struct buf *out);

/* A dialect's `broken`: an event with the error in OpenAI's form. */
void exchange_put_broken(void *state, const hearth_error *error, struct buf *out);

/* Submits all choices and answers `call`, later. HTTP thread only. */
void exchange_start(struct call *call, const struct exchange_plan *plan);

#endif
