/* An HTTP client (libcurl) with which commands query a running server, at once or as the response arrives. Main thread
 * only. Redirects are not followed, so that the API key goes nowhere else. */
#ifndef CLI_REMOTE_H
#define CLI_REMOTE_H

#include "base/buf.h"
#include "hearth.h"

#include <jansson.h>
#include <stdbool.h>

#define REMOTE_DEFAULT "http://127.0.0.1:8080"

/* Bytes of a response at most. */
#define REMOTE_MOST (64u << 20)

struct remote {
    char *url;                /* without trailing slashes, and without the "/v1" that clients of OpenAI's API name */
    const char *key;          /* API key: HEARTH_API_KEY, or "none", which a server without keys ignores */
    bool (*is_stopped)(void); /* whole responses are not waited for any longer; NULL: they always are */
    int wakes;                /* readable where is_stopped() may have become true; -1: nothing is */
};

struct remote remote_open(const char *url);
void remote_close(struct remote *remote);

/* Sends a POST with the body (NULL: a GET) to a path, and appends the response's body to `answer`. Returns its status;
 * 0: no server answered within the time limit. */
long remote_ask(const struct remote *remote, const char *path, const struct buf *body, struct buf *answer);

/* The same with JSON, for answers with status 200: to be decref'd. NULL: there is none, and the error is
 * remote_refuse()'s. */
json_t *remote_ask_json(const struct remote *remote, const char *path, const json_t *body, hearth_error *error);

/* A response that is no success. */
struct remote_reply {
    const char *path;       /* that was asked for */
    long status;            /* 0: there is none */
    const struct buf *body; /* its beginning may be enough */
    const char *fault;      /* why there is none; "" */
};

/* Fills in an error with the server's message and advice, free of control characters. Returns its code:
 * HEARTH_UNAVAILABLE (no response, 503), HEARTH_CANCELLED (no response, and is_stopped()), HEARTH_NOT_FOUND (404),
 * HEARTH_BUSY (429), else HEARTH_INVALID. */
int remote_refuse(const struct remote *remote, const struct remote_reply *reply, hearth_error *error);

/* HEARTH_NOT_FOUND: `what` ("there is no model"), the name, the nearest one of a list of models and all of them. */
int remote_refuse_model(const json_t *models, const char *what, const char *name, hearth_error *error);

/* ---- Responses as they arrive ---- */

struct remote_request {
    const char *path;
    const struct buf *body; /* of a POST; borrowed until the stream is closed. NULL: a GET */
    long whole_s;           /* seconds that the whole exchange may take; 0: any time */
    long silence_s;         /* seconds in which no byte is sent or received, after which it fails; 0: any time */
};

struct remote_stream;

struct remote_stream *remote_stream_open(const struct remote *remote, const struct remote_request *request);

/* Waits until there is more of the response, or `fd` (-1: none) is readable. False: the exchange has ended. */
bool remote_stream_wait(struct remote_stream *stream, int fd);

/* Appends the bytes of the body that have arrived and were not taken. */
void remote_stream_take(struct remote_stream *stream, struct buf *out);

/* The status of the response; 0: there is none yet. */
long remote_stream_status(const struct remote_stream *stream);

/* Its media type as the server has written it; "". */
const char *remote_stream_type(const struct remote_stream *stream);

/* Why the exchange has failed; "": it has not. */
const char *remote_stream_fault(const struct remote_stream *stream);

/* Closes the connection, also in the middle of a response. NULL is fine. */
void remote_stream_close(struct remote_stream *stream);

#endif
