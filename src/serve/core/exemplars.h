/* Exemplars of the latency histograms in /metrics: of each bucket the last traced request that fell into it, so that a
 * dashboard leads from a slow quantile to a trace. HTTP thread only. */
#ifndef SERVE_CORE_EXEMPLARS_H
#define SERVE_CORE_EXEMPLARS_H

#include "hearth.h"
#include "serve/tracing/trace.h"

struct exemplar {
    char *sample; /* the bucket's name with its labels, as in /metrics */
    char trace_id[2 * TRACE_ID_BYTES + 1];
    double value, unix_s;
};

/* A zeroed one is empty. */
struct exemplars {
    struct exemplar *v; /* by their samples */
    size_t n;
};

/* Notes the times of a choice of a traced request. */
void exemplars_note(struct exemplars *all, const hearth *instance, const struct trace *trace,
                    const hearth_result *result);

/* That of the sample with this name and labels; NULL: it has none. */
const struct exemplar *exemplars_find(const struct exemplars *all, const char *sample, size_t len);

void exemplars_release(struct exemplars *all);

#endif
