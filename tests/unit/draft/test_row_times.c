/* The time of a call by its rows. */
#include "draft/row_times.h"
#include "fakes/cmocka_all.h"

static void assert_near(double a, double b, double off)
{
    assert_true(a >= b - off && a <= b + off);
}

static void note(struct row_times *times, int32_t rows, double ns, int n)
{
    for (int i = 0; i < n; i++) row_times_note(times, rows, (int64_t)ns);
}

static void nothing_is_known_of_a_new_machine(void **state)
{
    (void)state;
    struct row_times times = {0};
    assert_true(row_times_of(&times, 1) <= 0);
    assert_int_equal(row_times_to_try(&times, 1, 8), 2);
    assert_int_equal(row_times_reach(&times), 0);
    row_times_note(&times, 0, 100);
    row_times_note(&times, ROW_TIMES + 1, 100);
    row_times_note(&times, 4, 0);
    assert_true(row_times_of(&times, 4) <= 0);
}

static void a_time_is_the_median_of_the_last_calls(void **state)
{
    (void)state;
    struct row_times times = {0};
    note(&times, 1, 100, 9);
    row_times_note(&times, 1, 1000); /* one that the machine disturbed */
    assert_near(row_times_of(&times, 1) / times.scale, 1, 0.05);
}

static void between_known_counts_it_is_interpolated_and_behind_them_a_row_costs_half(void **state)
{
    (void)state;
    struct row_times times = {0};
    note(&times, 2, 100, 5);
    note(&times, 6, 180, 5);
    assert_near(row_times_of(&times, 1), row_times_of(&times, 2), 1e-6);
    assert_near(row_times_of(&times, 4) / row_times_of(&times, 2), 1.4, 0.05);
    assert_near(row_times_of(&times, 12) / row_times_of(&times, 6), 1.5, 0.05);
}

static void twice_as_many_rows_as_were_seen_may_be_taken(void **state)
{
    (void)state;
    struct row_times times = {0};
    for (int32_t rows = 1; rows < ROW_TIMES; rows *= 2) {
        note(&times, rows, 100 + rows, 1);
        assert_int_equal(row_times_reach(&times), 2 * rows < ROW_TIMES ? 2 * rows : ROW_TIMES);
    }
}

/* The context grows, or another process computes as well: all times grow, those too that were not seen since. */
static void what_slows_one_count_down_slows_down_all(void **state)
{
    (void)state;
    struct row_times times = {0};
    note(&times, 1, 100, 20);
    note(&times, 8, 200, 20);
    note(&times, 1, 300, 60);
    double ratio = row_times_of(&times, 8) / row_times_of(&times, 1);
    assert_near(row_times_of(&times, 1), 300, 15);
    assert_true(ratio > 1.5 && ratio < 2.5);
}

/* The first call of a count may be the one that the machine disturbs. */
static void a_time_that_was_seen_once_is_tried_again(void **state)
{
    (void)state;
    struct row_times times = {0};
    note(&times, 1, 100, 10);
    row_times_note(&times, 2, 5000);
    assert_int_equal(row_times_to_try(&times, 2, 8), 2);
    row_times_note(&times, 2, 120);
    assert_near(row_times_of(&times, 2) / row_times_of(&times, 1), 1.2, 0.4);
    row_times_note(&times, 2, 120);
    assert_int_equal(row_times_to_try(&times, 2, 8), 4);
}

static void what_was_not_seen_for_long_is_tried_again(void **state)
{
    (void)state;
    struct row_times times = {0};
    for (int32_t rows = 64; rows >= 1; rows--) note(&times, rows, 100 + rows, 3);
    assert_int_equal(row_times_to_try(&times, 2, 64), 0);
    note(&times, 1, 100, 5000);
    assert_int_equal(row_times_to_try(&times, 2, 64), 2);
    row_times_note(&times, 2, 100);
    assert_int_equal(row_times_to_try(&times, 2, 64), 4);
    assert_int_equal(row_times_to_try(&times, 5, 7), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_known_of_a_new_machine),
        cmocka_unit_test(a_time_is_the_median_of_the_last_calls),
        cmocka_unit_test(between_known_counts_it_is_interpolated_and_behind_them_a_row_costs_half),
        cmocka_unit_test(twice_as_many_rows_as_were_seen_may_be_taken),
        cmocka_unit_test(what_slows_one_count_down_slows_down_all),
        cmocka_unit_test(a_time_that_was_seen_once_is_tried_again),
        cmocka_unit_test(what_was_not_seen_for_long_is_tried_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
