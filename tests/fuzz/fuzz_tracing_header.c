/* Fuzzes the headers of tracing and metrics: a `traceparent` that is one is written again as it was read, version and
 * unknown flags aside; an Accept header is understood or not, and nothing more. */
#include "serve/status/status.h"
#include "serve/tracing/trace.h"

#include <stdlib.h>
#include <string.h>

static void require(bool holds)
{
    if (!holds) abort();
}

static void check_parent(const char *header)
{
    struct traceparent parent, again;
    char text[TRACEPARENT_SIZE];
    if (!traceparent_parse(header, &parent)) return;
    traceparent_format(&parent, text);
    require(strlen(text) == TRACEPARENT_SIZE - 1);
    require(memcmp(text + 2, header + 2, TRACEPARENT_SIZE - 1 - 4) == 0); /* ids and dashes */
    require(traceparent_parse(text, &again));
    require(memcmp(again.trace, parent.trace, sizeof again.trace) == 0);
    require(memcmp(again.span, parent.span, sizeof again.span) == 0);
    require(again.sampled == parent.sampled);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *header = malloc(size + 1); /* of its own size, so that reading past its end is noticed */
    if (size > 0) memcpy(header, data, size);
    header[size] = '\0';
    check_parent(header);
    if (openmetrics_is_wanted(header)) require(size >= strlen("application/openmetrics-text"));
    free(header);
    return 0;
}
