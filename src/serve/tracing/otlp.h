/* Traces as OTLP's JSON, the body of POST /v1/traces: one span of the server for each request, and below it one for
 * each stage (https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding). Attributes have the names of
 * OpenTelemetry's conventions for HTTP and generative AI where these have one, else hearth's own. Pure functions; any
 * thread. */
#ifndef SERVE_TRACING_OTLP_H
#define SERVE_TRACING_OTLP_H

#include "base/buf.h"
#include "serve/tracing/trace.h"

/* The sender of the traces. */
struct otlp_resource {
    const char *version, *host, *address; /* of the program, the machine, and the address listened on */
};

/* Appends the body with all traces of the list. */
void otlp_put(struct buf *out, const struct otlp_resource *resource, const struct trace *traces);

/* Spans that a trace makes. */
size_t otlp_spans(const struct trace *trace);

#endif
