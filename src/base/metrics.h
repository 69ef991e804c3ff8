/* Counters, gauges and histograms in Prometheus' text format
 * (https://prometheus.io/docs/instrumenting/exposition_formats/).
 *
 * A metric is a static description. Its values are members of a plain struct of the owner, updated with relaxed atomics
 * from any thread, so that counting costs the engine's thread next to nothing. */
#ifndef BASE_METRICS_H
#define BASE_METRICS_H

#include "base/buf.h"

#include <stdatomic.h>
#include <stdint.h>

#define METRICS_BUCKETS 16

typedef _Atomic int64_t metric_value; /* a counter or a gauge */

struct histogram {
    metric_value count;
    metric_value buckets[METRICS_BUCKETS]; /* not cumulative; the last one takes what is above all bounds */
    _Atomic double sum;
};

struct histogram_bounds {
    int n; /* < METRICS_BUCKETS */
    double v[METRICS_BUCKETS - 1];
};

extern const struct histogram_bounds histogram_seconds; /* 1 ms … 120 s */
extern const struct histogram_bounds histogram_tokens;  /* 1 … 4096 */

static inline void metric_add(metric_value *metric, int64_t n)
{
    atomic_fetch_add_explicit(metric, n, memory_order_relaxed);
}

static inline int64_t metric_get(const metric_value *metric)
{
    return atomic_load_explicit(metric, memory_order_relaxed);
}

/* The index of the bucket that a value falls into. */
int histogram_bucket(const struct histogram_bounds *bounds, double value);
void histogram_observe(struct histogram *h, const struct histogram_bounds *bounds, double value);

/* Writes the `# HELP` and `# TYPE` lines, once a metric before its values. Type is counter, gauge or histogram. */
void metrics_put_head(struct buf *out, const char *name, const char *type, const char *help);

/* Writes one value; `labels` is the text between the braces, such as model="demo". */
void metrics_put_value(struct buf *out, const char *name, const char *labels, double value);
/* Writes label="value", quotes and backslashes escaped. */
void metrics_put_label(struct buf *labels, const char *label, const char *value);
/* Writes the name of a bucket with its labels. */
void metrics_put_bucket(struct buf *out, const char *name, const char *labels, const struct histogram_bounds *bounds,
                        int bucket);
void metrics_put_histogram(struct buf *out, const char *name, const char *labels, const struct histogram *h,
                           const struct histogram_bounds *bounds);

#endif
