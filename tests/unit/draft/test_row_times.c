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
    assert_true(row_times_most(&times, 4) <= 0);
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

static void what_was_never_seen_may_take_as_long_as_calls_of_one_row(void **state)
{
    (void)state;
    struct row_times times = {0};
    note(&times, 1, 100, 5);
    note(&times, 4, 120, 5);
    assert_near(row_times_most(&times, 3), row_times_of(&times, 3), 1e-6);
    assert_near(row_times_most(&times, 6) / row_times_of(&times, 1), 1.2 * 2, 0.2);
    assert_near(row_times_most(&times, 5) / row_times_of(&times, 1), 1.2 + 1, 0.2);
}

/* Two rows take as long as two calls, nine as three: each of eight more costs a quarter of a call. */
static void a_row_costs_what_it_does_in_the_cheapest_number(void **state)
{
    (void)state;
    struct row_times times = {0};
    for (int i = 0; i < 20; i++) {
        note(&times, 1, 100, 1);
        note(&times, 2, 200, 1);
        note(&times, 9, 300, 1);
        note(&times, 17, 900, 1);
    }
    assert_near(row_times_least(&times, 1) / row_times_of(&times, 1), 0.25, 0.05);
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

static void the_first_call_behind_another_context_gives_the_scale(void **state)
{
    (void)state;
    struct row_times times = {0};
    note(&times, 1, 100, 5);
    note(&times, 8, 200, 5);
    row_times_rescale(&times, 1, 900);
    assert_near(row_times_of(&times, 1), 900, 45);
    assert_near(row_times_of(&times, 8), 1800, 180);
    row_times_rescale(&times, 5, 450); /* one that was never seen is taken to lie between */
    assert_near(row_times_of(&times, 5), 450, 45);
    assert_near(row_times_of(&times, 1), 300, 60);
}

/* What one count takes says nothing about the others: nor do those calls of it that are slow now and then. */
static void a_count_that_is_seen_alone_leaves_the_others_as_they_are(void **state)
{
    (void)state;
    for (int32_t slow = 1; slow <= 4; slow++) {
        struct row_times times = {0};
        for (int i = 0; i < 10; i++) {
            note(&times, 2, 100, 1);
            note(&times, 8, 170, 1);
        }
        for (int i = 0; i < 2000; i++) note(&times, 2, i * 7 % 10 < slow ? 160 + i % 5 * 20 : 98 + i % 5, 1);
        note(&times, 2, 100, 10);
        assert_near(row_times_of(&times, 2), 100, 5);
        assert_near(row_times_of(&times, 8), 170, 25);
    }
}

/* Rows cost less, or more, beside a deep context: what is known of the others is no longer certain. */
static void behind_another_context_the_others_are_tried_again(void **state)
{
    (void)state;
    struct row_times times = {0};
    for (int32_t rows = 64; rows >= 1; rows--) note(&times, rows, 10 + 4 * rows, 7);
    assert_int_equal(row_times_to_try(&times, 2, 64), 0);
    row_times_rescale(&times, 1, 100);
    assert_int_equal(row_times_to_try(&times, 2, 64), 2);
    assert_int_equal(row_times_to_try(&times, 5, 64), 8);
    assert_near(row_times_of(&times, 8), 300, 30);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(row_times_to_try(&times, 8, 8), 8);
        note(&times, 1, 100, 1);
        note(&times, 8, 130, 1);
    }
    assert_near(row_times_of(&times, 8), 130, 15);
    assert_int_equal(row_times_to_try(&times, 8, 8), 0);
}

/* Short requests with contexts of two lengths in turn: a count is seen once in each, and now and then in a fast call.
 */
static void many_contexts_do_not_make_a_count_cheaper(void **state)
{
    (void)state;
    struct row_times times = {0};
    note(&times, 1, 100, 3);
    for (int i = 0; i < 200; i++) {
        double slower = 1 + i % 2 * 4;
        row_times_rescale(&times, 1, (int64_t)(100 * slower));
        note(&times, 8, slower * (i % 10 == 0 ? 110 : 180 + i % 7 * 10), 1);
        note(&times, 1, 100 * slower, 2);
        if (i >= 20) assert_near(row_times_of(&times, 8) / row_times_of(&times, 1), 2.05, 0.3);
    }
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
        cmocka_unit_test(what_was_never_seen_may_take_as_long_as_calls_of_one_row),
        cmocka_unit_test(a_row_costs_what_it_does_in_the_cheapest_number),
        cmocka_unit_test(what_slows_one_count_down_slows_down_all),
        cmocka_unit_test(the_first_call_behind_another_context_gives_the_scale),
        cmocka_unit_test(a_count_that_is_seen_alone_leaves_the_others_as_they_are),
        cmocka_unit_test(behind_another_context_the_others_are_tried_again),
        cmocka_unit_test(many_contexts_do_not_make_a_count_cheaper),
        cmocka_unit_test(a_time_that_was_seen_once_is_tried_again),
        cmocka_unit_test(what_was_not_seen_for_long_is_tried_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
