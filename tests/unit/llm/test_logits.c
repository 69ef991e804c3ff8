/* Passes over all logits against a naive softmax and a sort. */
#include "support.h"

#include "llm/logits.h"

static float *random_logits(size_t n, uint32_t seed)
{
    float *logits = mem_alloc((n + 1) * sizeof *logits);
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525 + 1013904223;
        logits[i] = (float)(seed >> 22) / 32.0F - 16.0F; /* coarse: many are equal */
    }
    return logits;
}

static int by_logprob(const void *a, const void *b)
{
    const hearth_logprob *x = a, *y = b;
    if (x->log != y->log) return x->log < y->log ? 1 : -1;
    return (x->token > y->token) - (x->token < y->token);
}

static void the_likeliest_are_those_that_sorting_gives(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 2, 3, 10, 63, 64, 65, 1000, 5000}, tops[] = {0, 1, 2, 3, 5, 20, 999, 5000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t j = 0; j < sizeof tops / sizeof *tops; j++) {
            size_t n = sizes[i], expected = tops[j] < n ? tops[j] : n;
            float *logits = random_logits(n, (uint32_t)(i * 31 + j));
            hearth_logprob *all = mem_alloc((n + 1) * sizeof *all), *top = mem_alloc((tops[j] + 1) * sizeof *top);
            for (size_t k = 0; k < n; k++) all[k] = (hearth_logprob){.token = (int32_t)k, .log = (double)logits[k]};
            qsort(all, n, sizeof *all, by_logprob);
            assert_int_equal(logits_largest(logits, n, top, tops[j]), expected);
            for (size_t k = 0; k < expected; k++) {
                assert_int_equal(top[k].token, all[k].token);
                assert_true(top[k].log == all[k].log);
            }
            free(logits);
            free(all);
            free(top);
        }
}

static void logprobs_sum_to_one_and_do_not_overflow(void **state)
{
    (void)state;
    static const float shifts[] = {0, 1e4F, -1e4F, 1e6F};
    for (size_t i = 0; i < sizeof shifts / sizeof *shifts; i++) {
        float *logits = random_logits(5000, 7);
        for (size_t k = 0; k < 5000; k++) logits[k] += shifts[i];
        logits[17] = -INFINITY;
        double sum = 0, log_sum = logits_log_sum(logits, 5000);
        assert_true(isfinite(log_sum));
        for (size_t k = 0; k < 5000; k++) sum += exp((double)logits[k] - log_sum);
        assert_true(fabs(sum - 1) < 1e-6);
        free(logits);
    }
    float none[] = {-INFINITY, -INFINITY}, one[] = {-INFINITY, 3};
    assert_true(logits_log_sum(none, 2) == -INFINITY);
    assert_true(logits_log_sum(one, 2) == 3);
}

static void the_first_of_the_largest_logits_is_taken(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 7, 64, 65, 1000, 5003};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (uint32_t seed = 0; seed < 20; seed++) {
            float *logits = random_logits(sizes[i], seed);
            assert_int_equal(logits_argmax(logits, sizes[i]), argmax(logits, (int32_t)sizes[i]));
            free(logits);
        }
    float none[] = {-INFINITY, -INFINITY};
    assert_int_equal(logits_argmax(none, 2), 0);
}

static void what_is_offered_one_by_one_is_sorted_the_same(void **state)
{
    (void)state;
    enum { N = 777, TOP = 20 };
    float *logits = random_logits(N, 5);
    hearth_logprob expected[TOP], top[TOP];
    size_t n = 0;
    assert_int_equal(logits_largest(logits, N, expected, TOP), TOP);
    for (int32_t i = 0; i < N; i++)
        n = logits_offer(top, n, TOP, (hearth_logprob){.token = i, .log = (double)logits[i]});
    logits_sort(top, n);
    assert_int_equal(n, TOP);
    for (size_t i = 0; i < TOP; i++) assert_int_equal(top[i].token, expected[i].token);
    free(logits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_likeliest_are_those_that_sorting_gives),
        cmocka_unit_test(logprobs_sum_to_one_and_do_not_overflow),
        cmocka_unit_test(the_first_of_the_largest_logits_is_taken),
        cmocka_unit_test(what_is_offered_one_by_one_is_sorted_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
