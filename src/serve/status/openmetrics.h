/* /metrics in the form of OpenMetrics 1.0, which has exemplars
 * (https://prometheus.io/docs/specs/om/open_metrics_spec/). Pure functions; any thread. */
#ifndef SERVE_STATUS_OPENMETRICS_H
#define SERVE_STATUS_OPENMETRICS_H

#include "base/buf.h"
#include "serve/core/exemplars.h"

#define OPENMETRICS_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"

/* Whether a client with this Accept header (NULL: none) wants it rather than Prometheus' text format. */
bool openmetrics_is_wanted(const char *accept);

/* Appends `text`, in Prometheus' text format as base/metrics.h writes it, in that of OpenMetrics. */
void openmetrics_put(struct buf *out, const char *text, const struct exemplars *exemplars);

#endif
