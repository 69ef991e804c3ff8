/* A bounded FIFO queue of generation events from the library's threads to those that answer. Events are copied.
 *
 * Any thread puts; one reader takes. While the reader is awake it belongs to one thread, which may pass it on. The
 * thread that wakes it gets it. The outbox locks for itself. */
#ifndef SERVE_CORE_OUTBOX_H
#define SERVE_CORE_OUTBOX_H

#include "hearth.h"
#include "serve/core/logprobs_json.h"

#include <pthread.h>

/* A copy of a hearth_event. */
struct outbox_event {
    struct outbox_event *next;
    hearth_event_type type;
    size_t choice;
    int32_t token;                   /* TEXT */
    struct token_logprobs *logprobs; /* TEXT, PROMPT_LOGPROBS; NULL: none */
    hearth_result result;            /* all types but these of prompts; without its stop_string */
    hearth_error *error;             /* FAILED; allocated apart, since it is large and events are many */
    size_t len;
    char text[]; /* TEXT, PROMPT: the text; DONE: the stop string; zero-terminated */
};

struct outbox {
    pthread_mutex_t mutex;
    struct outbox_event *head, **tail;
    size_t bytes, limit; /* bytes of the queued events, and their maximum */
    size_t piece;        /* TEXT events that are taken together: fewer wait for more, or for one of another type */
    size_t n_ready, n_waiting; /* events that can be taken; those behind them that wait */
    bool keeps_empty; /* also keeps TEXT events without text, which else are dropped unless they have logprobs */
    bool awake;       /* the reader was woken and does not sleep yet */
    bool overflown;   /* text was dropped: the reader is too slow */
};

/* `piece`: 1, unless who watches the connection is not to see how many tokens come at once. */
void outbox_init(struct outbox *outbox, size_t limit, size_t piece, bool keeps_empty);
void outbox_release(struct outbox *outbox);

/* True: the reader slept, and the caller has woken it. Text beyond the limit is dropped and
 * the queue marked overflown; the last event of a request is always queued. */
bool outbox_put(struct outbox *outbox, size_t choice, const hearth_event *event);

/* For the reader. NULL: there is none that can be taken. The caller frees the event. */
struct outbox_event *outbox_take(struct outbox *outbox);
void outbox_free_event(struct outbox_event *event);

/* The reader sleeps until outbox_put() or outbox_wake() wakes it. False: there are events, it stays awake. */
bool outbox_sleep(struct outbox *outbox);

/* Wakes the reader. False: it is awake. */
bool outbox_wake(struct outbox *outbox);

bool outbox_is_overflown(struct outbox *outbox);

#endif
