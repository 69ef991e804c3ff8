/* The trace of one request: its question and answer, and when each stage of it began and ended. Made of the times
 * that a request records anyway, once it has ended; spans in OTLP's form come of it on the sender's thread (otlp.h).
 *
 * A trace belongs to the HTTP thread until tracer_end() takes it. */
#ifndef SERVE_TRACING_TRACE_H
#define SERVE_TRACING_TRACE_H

#include "hearth.h"
#include "serve/tracing/traceparent.h"

/* Longest text that comes from a client, in bytes: the queue of traces is bounded. */
#define TRACE_TEXT     256

#define TRACE_FINISHES 8 /* choices whose finish reason is kept */

/* A stage of a choice. Times are CLOCK_MONOTONIC's, in nanoseconds, as all here. */
struct trace_stage {
    const char *name;
    int64_t from, to;
    size_t choice;
    const char *attribute; /* a number that belongs to it; NULL: none. Static, as all strings but a trace's own */
    int64_t value;
};

struct trace {
    struct trace *next;      /* in the queue */
    struct traceparent self; /* the request's span */
    uint8_t parent[SPAN_ID_BYTES];
    bool has_parent; /* the client named it */
    int64_t began_at, ended_at;
    int64_t unix_ns; /* what added to a time makes it one since 1970 */
    const char *method, *route;
    const char *operation; /* "chat" …; NULL: no model computed anything */
    char path[TRACE_TEXT], model[TRACE_TEXT], request_id[64], finish[TRACE_FINISHES];
    int status;
    bool computed; /* a slot had it: there are numbers of tokens */
    int64_t cached_n, prompt_n,
        predicted_n; /* of all choices together; cached_n + prompt_n are those of their prompts */
    size_t n_choices, n_finishes;
    struct trace_stage *stages;
    size_t n_stages;
};

/* How far one choice has come. */
struct trace_progress {
    int64_t submitted_at, until; /* until: now */
    const hearth_result *result; /* NULL: it has not said yet, so it has no slot */
    bool done;
};

/* Adds the stages of the next choice. The one in which it failed or was left lasts until now. */
void trace_add_choice(struct trace *trace, const struct trace_progress *progress);

/* Copies as much of a client's text as is kept. NULL: nothing. */
void trace_set_text(char out[TRACE_TEXT], const char *text);

void trace_free(struct trace *trace);

#endif
