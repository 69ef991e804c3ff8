/* The body parser: parses request bodies on a thread of its own, the reading thread, since parsing megabytes of JSON on
 * the HTTP thread would stall all streams.
 *
 * A route gives a parser for its bodies (struct reading_form) and answers the parsed request on the HTTP thread. One
 * body is parsed at a time, so that only one JSON tree of a whole body is in memory. Two FIFO queues, for short and
 * for long bodies, are served alternately. A body so small that handing it over would take longer is parsed on the
 * HTTP thread at once. */
#ifndef SERVE_CORE_READING_H
#define SERVE_CORE_READING_H

#include "serve/core/call.h"

struct stored;

/* The sender of a body, for forms whose bodies may refer to stored responses, and the type of the body, for those that
 * are not JSON. */
struct reading_caller {
    const char *content_type; /* NULL: none was given */
    struct stored *stored;
    const char *owner; /* of the API key, as in struct call */
    size_t max_bytes;  /* bytes of stored items that one body may add to its prompt */
};

/* How a route parses a body, and answers it. */
struct reading_form {
    /* Parses the body to a request of the route's own kind; NULL with the error. It may release the body early. Runs
     * on the reading thread or, if the body is small, on the HTTP thread. */
    void *(*read)(struct buf *body, hearth_error *error);
    /* Instead of `read`, for bodies that may refer to stored responses, or hold files. These may be long, so that such
     * a body is never parsed on the HTTP thread. */
    void *(*read_with)(struct buf *body, const struct reading_caller *caller, hearth_error *error);
    /* Bytes that the parsed request takes. They count in the sum of all bodies until the call, or the exchange that
     * takes it over, has ended. Same thread as `read`. */
    size_t (*size)(const void *request);
    void (*answer)(struct call *call, void *request); /* on the HTTP thread; takes the request over */
    bool is_away;                                     /* on an answering thread instead: see call_away() */
    void (*release)(void *request);                   /* if the client disconnected; any thread */
    call_error_form *put_error;
};

/* A form in one line, for bodies whose readers need no caller, and for those whose do. */
#define READING_FORM(read_, size_, answer_, release_, put_error_)                                                      \
    {                                                                                                                  \
        .read = read_, .size = size_, .answer = answer_, .release = release_, .put_error = put_error_                  \
    }
#define READING_FORM_WITH(read_, size_, answer_, release_, put_error_)                                                 \
    {                                                                                                                  \
        .read_with = read_, .size = size_, .answer = answer_, .release = release_, .put_error = put_error_             \
    }

struct reading;

/* Starts the reading thread. NULL with HEARTH_NO_MEMORY if that fails. */
struct reading *reading_open(struct http_server *http, hearth_error *error);

/* After http_run() has returned and before http_close(): queued bodies are refused. NULL is fine. */
void reading_close(struct reading *reading);

/* Parses the body of the call and answers it, now or later. HTTP thread only. */
void reading_start(struct call *call, const struct reading_form *form);

#endif
