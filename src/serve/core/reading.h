/* The reading of bodies, on a thread of their own: parsing megabytes of JSON must hold up nobody's stream.
 *
 * A route says how a body becomes a request of its own kind, which it answers on the HTTP thread once that is done. One
 * body is read at a time, so that only one tree of a whole body is in memory. Shorter and longer ones take turns, and
 * each wait in order. What is read sooner than handed over is read at once. */
#ifndef SERVE_CORE_READING_H
#define SERVE_CORE_READING_H

#include "serve/core/call.h"

struct stored;

/* Who sent a body, for forms whose bodies may refer to what is stored. */
struct reading_caller {
    struct stored *stored;
    const char *owner; /* as struct call has it */
    size_t max_bytes;  /* of what is stored that one body may bring into its prompt */
};

/* What a route does with a body. */
struct reading_form {
    /* Makes the request, or returns NULL with the error. It may release the body early. On the reading thread or, where
     * the body is small, on the HTTP thread. */
    void *(*read)(struct buf *body, hearth_error *error);
    /* In its place, for bodies that may refer to what is stored: that may be long, so that such a body is never read on
     * the HTTP thread. */
    void *(*read_with)(struct buf *body, const struct reading_caller *caller, hearth_error *error);
    /* Bytes that the request takes from now on; they count in the sum of all bodies until the call is over, or what it
     * becomes. On the same thread. */
    size_t (*size)(const void *request);
    void (*answer)(struct call *call, void *request); /* on the HTTP thread; owns the request */
    void (*release)(void *request);                   /* where the client went away; any thread */
    call_error_form *put_error;
};

struct reading;

/* Starts the thread. NULL with HEARTH_NO_MEMORY where that cannot be done. */
struct reading *reading_open(struct http_server *http, hearth_error *error);

/* When http_run() has returned and before http_close(): what has not been read is refused. NULL is fine. */
void reading_close(struct reading *reading);

/* Reads the body of the call and answers it, now or some time later. HTTP thread only. */
void reading_start(struct call *call, const struct reading_form *form);

#endif
