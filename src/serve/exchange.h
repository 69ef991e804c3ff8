/* One HTTP request that models answer: its choices, their events, and the answer, streamed or whole.
 *
 * An exchange knows nothing of any API's JSON: a dialect writes that. Everything here runs on the HTTP thread but
 * for the callback that takes hearth's events. */
#ifndef SERVE_EXCHANGE_H
#define SERVE_EXCHANGE_H

#include "base/buf.h"
#include "serve/call.h"

/* What one choice came to. */
struct exchange_reply {
    struct buf text;
    hearth_result result; /* stop_string is borrowed from the exchange */
    bool started, done;
};

/* How an API speaks. `state` is the dialect's own; the functions append bytes to `out`. */
struct dialect {
    /* Streams: a slot took choice `index`; it has more text; it is done; all are done; the stream breaks off. */
    void (*started)(void *state, size_t index, struct buf *out);
    void (*text)(void *state, size_t index, const char *text, size_t len, struct buf *out);
    void (*done)(void *state, size_t index, const hearth_result *result, struct buf *out);
    void (*ended)(void *state, const struct exchange_reply *replies, size_t n, struct buf *out);
    void (*broken)(void *state, const hearth_error *error, struct buf *out);
    /* The whole answer at once. */
    void (*whole)(void *state, const struct exchange_reply *replies, size_t n, struct buf *out);
    /* The body of an HTTP error. */
    call_error_form *error;
    void (*release)(void *state);
};

struct exchange_plan {
    const struct dialect *dialect;
    void *state; /* the exchange's from here on, released by the dialect */
    bool stream;
    const hearth_params *choices; /* one request of hearth's each; borrowed for the call */
    size_t n_choices;
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
