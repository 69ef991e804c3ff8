/* An exchange, as the two files that it is made of see it. exchange.c sends its answer, on the HTTP thread.
 * exchange_turn.c makes the answer, in turns on the answering threads.
 *
 * An exchange is awake while its outbox's reader is, and then passes from thread to thread. The library's thread, whose
 * event wakes it, or the HTTP thread hands it to the answering threads. A turn there takes events, parses and writes,
 * and hands it to the HTTP thread. The HTTP thread sends the written bytes, and hands it back if there is more, unless
 * the client has not taken enough of them yet. So everything below belongs to one thread at a time without a lock,
 * except what is marked. */
#ifndef SERVE_CORE_EXCHANGE_PARTS_H
#define SERVE_CORE_EXCHANGE_PARTS_H

#include "serve/core/exchange.h"
#include "serve/core/outbox.h"
#include "serve/core/pieces.h"
#include "serve/core/workers.h"

#include <stdatomic.h>

struct exchange;

/* One choice: the `ud` of its library request's events. */
struct choice {
    struct exchange *exchange;
    size_t index;
    hearth_request *request; /* NULL: not submitted, or its answer is written */
    hearth_reader *reader;   /* parses a chat's reply into content, reasoning and tool calls */
    char *stop_string;
    int64_t counted;      /* tokens counted against the API key's rate limit; -1: no slot yet */
    int64_t submitted_at; /* 0: it was not */
    bool told;            /* an event has come, which says in the answer's result how far it is */
};

/* How an answer ends: it goes on; the stream, or a long answer, has ended; `out` is a short answer; it fails with the
 * error before anything was sent. */
enum exchange_end { EXCHANGE_GOES_ON, EXCHANGE_ENDED, EXCHANGE_SHORT, EXCHANGE_FAILED };

/* The results of a turn for the HTTP thread, beside `out`. */
struct exchange_news {
    bool begins;   /* the answer's head can be sent */
    bool has_more; /* the answer goes on without further events */
    enum exchange_end end;
    hearth_error error;
    size_t slots;   /* of the rate limit to give back */
    int64_t tokens; /* to count against the rate limit */
    struct header_list left_out,
        unenforced; /* what the chat template does not print, and of schemas nothing enforces */
};

struct exchange {
    struct call *call; /* NULL: closed. Only the HTTP thread closes it, while the exchange is its */
    struct server *server;
    const struct dialect *dialect;
    void *state;
    bool stream;
    struct outbox outbox; /* locks for itself */
    struct work work;     /* a turn */
    size_t n, n_running, n_done;
    struct choice *choices;
    struct answer *answers;
    size_t n_left_out;     /* fields that the call leaves out, before its requests are rendered */
    size_t logprobs_bytes; /* of the answers' logprobs */
    bool begun;            /* bytes of the answer were written */
    bool ended;            /* no more will be */
    bool wants_ping;
    bool has_sent;         /* bytes, since the timer was set last */
    hearth_params *params; /* of the choices; NULL: submitted */
    struct common *common; /* until all requests have ended, and are released */
    struct pieces body;    /* what is left of a long answer */
    struct buf out;        /* written, and sent up to `sent` */
    size_t sent;
    struct exchange_news news;

    /* The HTTP thread's alone. */
    struct ratelimit *ratelimit; /* of the API key: holds one of its slots for each running choice */
    struct event *timer;         /* for keep-alives; NULL: the answer is not a stream */
    bool blocked;                /* backpressure: the exchange is the HTTP thread's until the client has taken bytes */
    size_t counted;              /* bytes of the parsed request, in the sum of all bodies */
    size_t further;              /* choices in the sum of those of all requests, beyond one of each */

    atomic_bool gone; /* the client is: set by the HTTP thread, any reads it */
};

/* Data that the library requests of an exchange share. */
struct common {
    void *owner;
    void (*release_owner)(void *owner);
    char *salt;
    hearth_shared *shared;
};

/* A turn, on an answering thread: makes the next bytes of the answer from events, and passes the exchange on. */
void exchange_turn(void *ud);

/* Takes the exchange over again after a turn. HTTP thread. */
void exchange_take(void *ud);

/* Any thread that has the exchange. */
void exchange_cancel(struct exchange *ex);

#endif
