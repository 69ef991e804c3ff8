/* Sends traces of requests to a collector (docs/tracing.md): OTLP over HTTP, in batches, on a thread of its own.
 *
 * The HTTP thread begins and ends traces, which costs a lock and no wait. The queue is bounded: where the collector is
 * away or slow, spans are dropped and counted. NULL stands for a tracer that is off: every function takes it, and no
 * trace is made. */
#ifndef SERVE_TRACING_TRACER_H
#define SERVE_TRACING_TRACER_H

#include "serve/tracing/trace.h"

struct tracer;

/* How it sends; zeros are the usual values. For tests. */
struct tracer_pace {
    int64_t gather_ms;  /* a batch waits so long for more */
    int64_t send_ms;    /* deadline of one attempt */
    int64_t pause_ms;   /* before the second attempt; doubles with each one */
    int64_t flush_ms;   /* all that is sent at the end takes no longer */
    size_t most_queued; /* spans */
};

struct tracer_params {
    const char *endpoint; /* http(s)://HOST[:PORT][/PATH], to which /v1/traces is added */
    struct otlp_resource resource;
    struct tracer_pace pace;
};

/* NULL with the error: no thread, no memory. Whether a collector is there is seen later. */
struct tracer *tracer_open(const struct tracer_params *params, hearth_error *error);

/* Sends what is queued, as far as flush_ms allow, and drops the rest. No trace may be under way. */
void tracer_close(struct tracer *tracer);

/* Begins the trace of a request with this header `traceparent`; NULL: it has none. */
struct trace *tracer_begin(struct tracer *tracer, const char *traceparent);

/* Takes the trace. One that is not sampled goes nowhere. */
void tracer_end(struct tracer *tracer, struct trace *trace);

/* Spans that a collector took, and that were dropped. */
int64_t tracer_sent(const struct tracer *tracer);
int64_t tracer_dropped(const struct tracer *tracer);

#endif
