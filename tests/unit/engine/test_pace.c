/* The size of ticks, against machines of all speeds. */
#include "fakes/cmocka_all.h"

#include "engine/pace.h"

#define MS 1000000LL

/* A machine: a call costs `call`, each row `row`. Returns the longest of 200 ticks after the first `skip`. */
static int64_t longest_tick(struct pace *pace, int64_t call, int64_t row, int skip, int32_t *rows)
{
    int64_t longest = 0;
    for (int i = 0; i < 200; i++) {
        *rows = pace_budget(pace, 2048);
        int64_t ns = call + *rows * row;
        if (i >= skip && ns > longest) longest = ns;
        pace_observe(pace, *rows, *rows, ns);
    }
    return longest;
}

static void ticks_stay_within_the_gap_on_any_machine_that_can(void **state)
{
    (void)state;
    for (int64_t row = 1000; row <= 100 * MS; row *= 3) {
        for (int64_t call = 0; call <= 100 * MS; call += 20 * MS) {
            struct pace pace;
            int32_t rows;
            pace_init(&pace, 250 * MS, 1);
            assert_true(longest_tick(&pace, call, row, 1, &rows) <= 250 * MS);
        }
    }
}

static void a_fast_machine_soon_takes_whole_batches(void **state)
{
    (void)state;
    struct pace pace;
    int32_t rows;
    pace_init(&pace, 250 * MS, 32);
    longest_tick(&pace, MS, 10000, 0, &rows);
    assert_int_equal(rows, 2048);
}

static void the_room_is_used(void **state)
{
    (void)state;
    struct pace pace;
    int32_t rows;
    pace_init(&pace, 250 * MS, 32);
    longest_tick(&pace, 40 * MS, 5 * MS, 0, &rows);
    assert_in_range(rows, 32, 42); /* 200 to 250 ms */
}

static void a_tick_that_did_not_use_its_budget_teaches_nothing(void **state)
{
    (void)state;
    struct pace pace;
    int32_t rows;
    pace_init(&pace, 250 * MS, 32);
    longest_tick(&pace, 40 * MS, MS, 0, &rows);
    double before = pace.row_ns;
    pace_observe(&pace, 3, rows, 43 * MS);
    assert_true(pace.row_ns == before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ticks_stay_within_the_gap_on_any_machine_that_can),
        cmocka_unit_test(a_fast_machine_soon_takes_whole_batches),
        cmocka_unit_test(the_room_is_used),
        cmocka_unit_test(a_tick_that_did_not_use_its_budget_teaches_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
