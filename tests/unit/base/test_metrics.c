/* Counters and histograms: their sums, and the text that Prometheus reads. */
#include "base/metrics.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const struct histogram_bounds bounds = {3, {1, 2.5, 10}};

static void a_value_has_its_head_and_its_labels(void **state)
{
    (void)state;
    struct buf out = {0};
    metrics_put_head(&out, "hearth_x_total", "counter", "What it counts.");
    metrics_put_value(&out, "hearth_x_total", "", 3);
    metrics_put_value(&out, "hearth_x_total", "model=\"demo\"", 9007199254740993.0);
    metrics_put_value(&out, "hearth_x_total", "a=\"b\",c=\"d\"", 0.1);
    assert_string_equal(out.v, "# HELP hearth_x_total What it counts.\n"
                               "# TYPE hearth_x_total counter\n"
                               "hearth_x_total 3\n"
                               "hearth_x_total{model=\"demo\"} 9007199254740992\n"
                               "hearth_x_total{a=\"b\",c=\"d\"} 0.10000000000000001\n");
    buf_release(&out);
}

static void a_histogram_is_cumulative_and_ends_with_sum_and_count(void **state)
{
    (void)state;
    struct histogram h = {0};
    struct buf out = {0};
    static const double values[] = {0, 1, 1.5, 2.5, 2.75, 10, 10.5, 1000}; /* a bound belongs to its bucket */
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) histogram_observe(&h, &bounds, values[i]);
    metrics_put_histogram(&out, "hearth_t", "model=\"m\"", &h, &bounds);
    assert_string_equal(out.v, "hearth_t_bucket{model=\"m\",le=\"1\"} 2\n"
                               "hearth_t_bucket{model=\"m\",le=\"2.5\"} 4\n"
                               "hearth_t_bucket{model=\"m\",le=\"10\"} 6\n"
                               "hearth_t_bucket{model=\"m\",le=\"+Inf\"} 8\n"
                               "hearth_t_sum{model=\"m\"} 1028.25\n"
                               "hearth_t_count{model=\"m\"} 8\n");
    buf_release(&out);
}

static void a_histogram_without_labels_has_only_its_bounds(void **state)
{
    (void)state;
    struct histogram h = {0};
    struct buf out = {0};
    metrics_put_histogram(&out, "hearth_t", "", &h, &bounds);
    assert_string_equal(out.v, "hearth_t_bucket{le=\"1\"} 0\n"
                               "hearth_t_bucket{le=\"2.5\"} 0\n"
                               "hearth_t_bucket{le=\"10\"} 0\n"
                               "hearth_t_bucket{le=\"+Inf\"} 0\n"
                               "hearth_t_sum 0\n"
                               "hearth_t_count 0\n");
    buf_release(&out);
}

static void the_shared_bounds_rise_and_fit(void **state)
{
    (void)state;
    const struct histogram_bounds *all[] = {&histogram_seconds, &histogram_tokens};
    for (size_t i = 0; i < 2; i++) {
        assert_in_range(all[i]->n, 1, METRICS_BUCKETS - 1);
        for (int b = 1; b < all[i]->n; b++) assert_true(all[i]->v[b] > all[i]->v[b - 1]);
        struct histogram h = {0};
        histogram_observe(&h, all[i], all[i]->v[all[i]->n - 1]);
        histogram_observe(&h, all[i], 1e9);
        assert_int_equal(metric_get(&h.buckets[all[i]->n - 1]), 1);
        assert_int_equal(metric_get(&h.buckets[all[i]->n]), 1);
    }
}

enum { THREADS = 4, TIMES = 20000 };

struct shared {
    metric_value counter;
    struct histogram histogram;
};

static void *count(void *ud)
{
    struct shared *shared = ud;
    for (int i = 0; i < TIMES; i++) {
        metric_add(&shared->counter, 2);
        histogram_observe(&shared->histogram, &bounds, i % 4); /* 0 1 2 3: sums of small integers are exact */
    }
    return NULL;
}

static void nothing_is_lost_between_threads(void **state)
{
    (void)state;
    struct shared shared = {0};
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, count, &shared);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(metric_get(&shared.counter), 2 * THREADS * TIMES);
    assert_int_equal(metric_get(&shared.histogram.count), THREADS * TIMES);
    assert_int_equal(metric_get(&shared.histogram.buckets[0]), THREADS * TIMES / 2);
    assert_int_equal(metric_get(&shared.histogram.buckets[1]), THREADS * TIMES / 4);
    assert_true(atomic_load(&shared.histogram.sum) == 1.5 * THREADS * TIMES);
}

/* ---- */

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_has_its_head_and_its_labels),
        cmocka_unit_test(a_histogram_is_cumulative_and_ends_with_sum_and_count),
        cmocka_unit_test(a_histogram_without_labels_has_only_its_bounds),
        cmocka_unit_test(the_shared_bounds_rise_and_fit),
        cmocka_unit_test(nothing_is_lost_between_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
