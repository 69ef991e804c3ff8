/* Where the prefill of long prompts stops: never too far apart, and never too often. */
#include "engine/checkpoint_grid.h"

#include "fakes/cmocka_all.h"

#include <stdbool.h>

enum { MANY = 1000000, UNIT = 64 };

static void positions_are_an_eighth_apart_and_256_tokens_near_the_end(void **state)
{
    (void)state;
    for (int32_t n = 512; n < 300000; n += 1 + n / 7) {
        int32_t last = 0;
        for (int32_t at = 0; (at = checkpoint_grid_after(n, MANY, last)) != INT32_MAX; last = at) {
            assert_true(at > last && at < n && at % UNIT == 0);
            assert_true(at - last < n / 8 + UNIT);
            if (last >= n - n / 8) assert_true(at - last <= 256);
        }
        assert_true(n - last <= 256 + UNIT || n - last < n / 8 + UNIT);
        if (n >= 2048) assert_true(n - last <= 256);
    }
}

static void a_cut_goes_back_little(void **state)
{
    (void)state;
    static const struct {
        int32_t n, cut, back_to;
    } table[] = {{1000, 900, 896}, {1000, 500, 384}, {1605, 1604, 1536}, {8496, 8400, 8192}, {511, 500, 0}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        assert_int_equal(checkpoint_grid_before(table[i].n, MANY, table[i].cut), table[i].back_to);
}

static void there_are_no_more_than_memory_allows(void **state)
{
    (void)state;
    for (int32_t n = 512; n < 300000; n += 1 + n / 5) {
        for (int32_t most = 0; most < 300; most += 1 + most / 3) {
            int32_t count = 0;
            for (int32_t at = 0; (at = checkpoint_grid_after(n, most, at)) != INT32_MAX;) count++;
            assert_true(count <= most);
        }
    }
}

static void the_position_before_is_the_last_one_after_any_start(void **state)
{
    (void)state;
    for (int32_t n = 600; n < 20000; n += 777) {
        for (int32_t at = 0; at < n; at += 13) {
            int32_t before = checkpoint_grid_before(n, MANY, at);
            assert_true(before <= at && checkpoint_grid_after(n, MANY, before) > at);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(positions_are_an_eighth_apart_and_256_tokens_near_the_end),
        cmocka_unit_test(a_cut_goes_back_little),
        cmocka_unit_test(there_are_no_more_than_memory_allows),
        cmocka_unit_test(the_position_before_is_the_last_one_after_any_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
