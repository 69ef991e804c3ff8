/* The cost model of reads: what it predicts after reads of a kind, and after outliers. */
#include "fakes/cmocka_all.h"
#include "store/backends/read_cost.h"

static void assert_about(double is, double wanted)
{
    if (is < 0.9 * wanted || is > 1.1 * wanted) fail_msg("%g is not about %g", is, wanted);
}

static void what_was_measured_replaces_what_was_assumed(void **state)
{
    (void)state;
    struct read_cost cost;
    read_cost_init(&cost, &read_cost_of_disks);
    assert_about(read_cost_ns(&cost, 1, 16e6, 0), 16100e3);
    for (int i = 0; i < 500; i++) { /* 2 ms a request, 4 ns a byte: a slow disk */
        uint64_t bytes = (uint64_t)(i % 8 + 1) * 1000000;
        read_cost_note(&cost, bytes, 2000000 + 4 * (int64_t)bytes, 0);
    }
    assert_about(read_cost_ns(&cost, 1, 0, 0), 2e6);
    assert_about(read_cost_ns(&cost, 0, 1e6, 0), 4e6);
    assert_about(read_cost_ns(&cost, 10, 30e6, 0), 140e6);
}

static void it_follows_a_disk_that_becomes_slower(void **state)
{
    (void)state;
    struct read_cost cost;
    read_cost_init(&cost, &read_cost_of_disks);
    for (int i = 0; i < 500; i++) read_cost_note(&cost, 1000000 + (uint64_t)(i % 3) * 500000, 1000000, 0);
    double before = read_cost_ns(&cost, 1, 1e6, 0);
    for (int i = 0; i < 500; i++) read_cost_note(&cost, 1000000 + (uint64_t)(i % 3) * 500000, 10000000, 0);
    assert_about(read_cost_ns(&cost, 1, 1e6, 0), 10 * before);
}

static void reads_of_one_size_have_a_cost_as_well(void **state)
{
    (void)state;
    struct read_cost cost;
    read_cost_init(&cost, &read_cost_of_disks);
    for (int i = 0; i < 5000; i++) read_cost_note(&cost, 1000000, 3000000, 0);
    assert_about(read_cost_ns(&cost, 1, 1e6, 0), 3e6);
    assert_about(read_cost_ns(&cost, 4, 4e6, 0), 12e6);
}

static void one_slow_read_costs_little_and_is_forgotten(void **state)
{
    (void)state;
    struct read_cost cost;
    read_cost_init(&cost, &read_cost_of_disks);
    for (int i = 0; i < 100; i++)
        read_cost_note(&cost, 1000000 + (uint64_t)(i % 5) * 1000000, 1000000 + i % 5 * 1000000, 0);
    double before = read_cost_ns(&cost, 10, 10e6, 0);
    read_cost_note(&cost, 1000000, 20000000000, 0);
    assert_true(read_cost_ns(&cost, 10, 10e6, 0) < 2 * before);
    for (int i = 0; i < 100; i++) read_cost_note(&cost, 1000000 + (uint64_t)(i % 5) * 1000000, 20000000000, 0);
    assert_true(read_cost_ns(&cost, 10, 10e6, 0) > 100 * before);
    const int64_t days = 7 * 86400 * (int64_t)1000000000;
    assert_true(read_cost_ns(&cost, 10, 10e6, days) < 50 * before); /* cheap enough to be tried again */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_measured_replaces_what_was_assumed),
        cmocka_unit_test(it_follows_a_disk_that_becomes_slower),
        cmocka_unit_test(one_slow_read_costs_little_and_is_forgotten),
        cmocka_unit_test(reads_of_one_size_have_a_cost_as_well),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
