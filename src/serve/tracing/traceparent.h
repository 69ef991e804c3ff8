/* The header `traceparent` of W3C Trace Context (https://www.w3.org/TR/trace-context/): which span a request belongs
 * to, and whether its trace is recorded. Pure functions; any thread. */
#ifndef SERVE_TRACING_TRACEPARENT_H
#define SERVE_TRACING_TRACEPARENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

#endif
