/* One HTTP request that models answer: its choices, their events, and the answer, streamed or whole.
 *
 * An exchange knows nothing of any API's JSON: a dialect writes that. Everything here runs on the HTTP thread but
 * for the callback that takes hearth's events. */
#ifndef SERVE_CORE_EXCHANGE_H
#define SERVE_CORE_EXCHANGE_H

#include "base/buf.h"
#include "serve/core/answer.h"
#include "serve/core/call.h"

/* What a stream has more of: text, a token's logprobs, or both. */
struct exchange_piece {
    size_t index;                          /* of the choice */
    const hearth_delta *delta;             /* NULL: a token that adds no text yet */
    int32_t token;                         /* -1: a further delta of the same token, or text without one */
    const struct token_logprobs *logprobs; /* NULL: not asked for, or no token */
    const struct answer *answer;           /* with the delta in it; its result says how it stands */
};

/* How an API speaks. `state` is the dialect's own; the functions append bytes to `out`. */
struct dialect {
    /* Streams: a slot took choice `index`; more of its prompt is there (NULL: nobody asks); it has more; it is done;
     * all are done; the stream breaks off. */
    void (*started)(void *state, size_t index, const hearth_result *result, struct buf *out);
    void (*progress)(void *state, size_t index, const hearth_result *result, struct buf *out);
    void (*more)(void *state, const struct exchange_piece *piece, struct buf *out);
    void (*done)(void *state, size_t index, const struct answer *answer, struct buf *out);
    void (*ended)(void *state, const struct answer *answers, size_t n, struct buf *out);
    void (*broken)(void *state, const hearth_error *error, struct buf *out);
    void (*ping)(void *state, struct buf *out); /* what keeps a quiet stream alive; NULL: a comment line */
    const char *stream_type;                    /* of a stream's content; NULL: server-sent events */
    /* The whole answer at once. */
    void (*whole)(void *state, const struct answer *answers, size_t n, struct buf *out);
    /* The body of an HTTP error. */
    call_error_form *error;
    void (*release)(void *state);
};

struct exchange_plan {
    const struct dialect *dialect;
    void *state; /* the exchange's from here on, released by the dialect */
    bool stream;
    bool tokens;                  /* replies hold their tokens, and streams have a piece for each, also without text */
    const hearth_params *choices; /* one request of hearth's each; borrowed for the call */
    size_t n_choices;
    void *owner; /* of what the choices point at, which they share; the exchange's from here on */
    void (*release_owner)(void *owner);
};

/* Bounds of a streamed answer. */
struct exchange_limits {
    size_t outbox_bytes;  /* events that wait for a slow client; beyond it its request is cancelled */
    size_t backlog_bytes; /* bytes at the socket above which events wait */
    int recheck_ms;       /* how often a backlog is looked at again */
    int ping_ms;          /* after so long without a byte a comment line keeps the connection alive */
};

extern const struct exchange_limits exchange_limits_default;

/* Submits all choices and answers `call`, now or later. */
void exchange_start(struct call *call, const struct exchange_plan *plan);

#endif
