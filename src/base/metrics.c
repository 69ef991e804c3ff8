/* Histograms, and Prometheus' text format. */
#include "base/metrics.h"

const struct histogram_bounds histogram_seconds = {
    15, {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120}};

const struct histogram_bounds histogram_tokens = {13, {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096}};

int histogram_bucket(const struct histogram_bounds *bounds, double value)
{
    int bucket = 0;
    while (bucket < bounds->n && value > bounds->v[bucket]) bucket++;
    return bucket;
}

void histogram_observe(struct histogram *h, const struct histogram_bounds *bounds, double value)
{
    metric_add(&h->buckets[histogram_bucket(bounds, value)], 1);
    metric_add(&h->count, 1);
    double sum = atomic_load_explicit(&h->sum, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&h->sum, &sum, sum + value, memory_order_relaxed,
                                                  memory_order_relaxed)) {
    }
}

void metrics_put_head(struct buf *out, const char *name, const char *type, const char *help)
{
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void metrics_put_value(struct buf *out, const char *name, const char *labels, double value)
{
    if (labels[0] == '\0')
        buf_printf(out, "%s %.17g\n", name, value);
    else
        buf_printf(out, "%s{%s} %.17g\n", name, labels, value);
}

void metrics_put_label(struct buf *labels, const char *label, const char *value)
{
    buf_printf(labels, "%s=\"", label);
    for (const char *c = value; *c != '\0'; c++) buf_printf(labels, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
    buf_puts(labels, "\"");
}

void metrics_put_bucket(struct buf *out, const char *name, const char *labels, const struct histogram_bounds *bounds,
                        int bucket)
{
    const char *comma = labels[0] == '\0' ? "" : ",";
    if (bucket < bounds->n)
        buf_printf(out, "%s_bucket{%s%sle=\"%g\"}", name, labels, comma, bounds->v[bucket]);
    else
        buf_printf(out, "%s_bucket{%s%sle=\"+Inf\"}", name, labels, comma);
}

void metrics_put_histogram(struct buf *out, const char *name, const char *labels, const struct histogram *h,
                           const struct histogram_bounds *bounds)
{
    int64_t total = 0;
    for (int i = 0; i <= bounds->n; i++) {
        total += metric_get(&h->buckets[i]);
        metrics_put_bucket(out, name, labels, bounds, i);
        buf_printf(out, " %lld\n", (long long)total);
    }
    const char *open = labels[0] == '\0' ? "" : "{", *close = labels[0] == '\0' ? "" : "}";
    buf_printf(out, "%s_sum%s%s%s %.17g\n", name, open, labels, close,
               atomic_load_explicit(&h->sum, memory_order_relaxed));
    buf_printf(out, "%s_count%s%s%s %lld\n", name, open, labels, close, (long long)total);
}
