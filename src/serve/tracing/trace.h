/* The trace of one request: its question and answer, and when each stage of it began and ended. Made of the times
 * that a request records anyway, once it has ended. The header `traceparent` of W3C Trace Context says which span the
 * request belongs to (https://www.w3.org/TR/trace-context/).
 *
 * Traces leave as OTLP's JSON, the body of POST /v1/traces: one span of the server for each request, and below it one
 * for each stage (https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding). Attributes have the names of
 * OpenTelemetry's conventions for HTTP and generative AI where these have one, else hearth's own.
 *
 * A trace belongs to the HTTP thread until tracer_end() takes it; spans are written on the sender's thread. */
#ifndef SERVE_TRACING_TRACE_H
#define SERVE_TRACING_TRACE_H

#include "base/buf.h"
#include "hearth.h"

/* ---- The header ---- */

#define TRACE_ID_BYTES   16
#define SPAN_ID_BYTES    8
#define TRACEPARENT_SIZE 56 /* with the zero at its end */

struct traceparent {
    uint8_t trace[TRACE_ID_BYTES], span[SPAN_ID_BYTES];
    bool sampled;
};

/* False for text that is none: the request then begins a trace of its own, as the standard wants. */
bool traceparent_parse(const char *text, struct traceparent *parent);

void traceparent_format(const struct traceparent *parent, char out[TRACEPARENT_SIZE]);

/* Writes 2n digits and a zero. */
void trace_put_hex(const uint8_t *bytes, size_t n, char *out);

/* ---- The trace ---- */

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

/* ---- OTLP ---- */

/* The sender of the traces. */
struct otlp_resource {
    const char *version, *host, *address; /* of the program, the machine, and the address listened on */
};

/* Appends the body with all traces of the list. */
void otlp_put(struct buf *out, const struct otlp_resource *resource, const struct trace *traces);

/* Spans that a trace makes. */
size_t otlp_spans(const struct trace *trace);

#endif
