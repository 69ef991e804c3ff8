/* Where cells lie, against what must be so after each operation; and rows that are moved down: the same bytes, and the
 * same next logits as a cold run. For every architecture and layout. */
#include "slicing.h"

#include "llm/cell_map.h"

static bool has_map(const struct rig *rig)
{
    return rig->unified && rig->arch->cuts_anywhere;
}

static struct llm_cell_map map_of(struct rig *rig)
{
    struct llm_cell_map map;
    if (!llm_cells_map(rig->context, &map)) fail_in(rig, "no map of its cells");
    return map;
}

static void expect_map(struct rig *rig, int32_t used, int32_t top)
{
    struct llm_cell_map map = map_of(rig);
    assert_int_equal(map.used, used);
    assert_int_equal(map.top, top);
}

static void only_cells_that_can_be_moved_have_a_map(struct rig *rig)
{
    struct llm_cell_map map = {.used = 1, .top = 1};
    assert_int_equal(llm_cells_map(rig->context, &map), has_map(rig));
    assert_true(map.used == 0 && map.top == 0);
}

static void new_rows_take_the_lowest_free_cells(struct rig *rig)
{
    if (!has_map(rig)) return;
    struct tokens low = random_tokens(rig, 1, HALF), high = random_tokens(rig, 2, PROMPT);
    put(rig, 0, &low, 0);
    put(rig, 1, &high, 0);
    expect_map(rig, HALF + PROMPT, HALF + PROMPT);
    llm_seq_clear(rig->context, 0);
    expect_map(rig, PROMPT, HALF + PROMPT);
    assert_int_equal(llm_cells_above(rig->context, PROMPT), HALF);
    struct llm_positions above = llm_seq_above(rig->context, 1, PROMPT);
    assert_true(above.from == PROMPT - HALF && above.to == PROMPT);
    assert_int_equal(llm_seq_above(rig->context, 0, 0).to, 0);
    put(rig, 2, &low, 0);
    expect_map(rig, HALF + PROMPT, HALF + PROMPT);
    tokens_release(&low);
    tokens_release(&high);
}

static void moved_rows_are_the_same_and_leave_no_hole_below(struct rig *rig)
{
    if (!has_map(rig)) return;
    enum { SHARED = 20 };
    struct tokens low = random_tokens(rig, 3, HALF), high = random_tokens(rig, 4, PROMPT);
    put(rig, 0, &low, 0);
    put(rig, 1, &high, 0);
    assert_true(llm_seq_share(rig->context, 1, 2, SHARED));
    struct saved before = save(rig, 1, 5);
    llm_seq_clear(rig->context, 0);
    struct llm_positions above = llm_seq_above(rig->context, 1, PROMPT);
    int32_t middle = (above.from + above.to) / 2;
    assert_true(llm_rows_move(rig->context, format_of(rig), 1, above.from, middle));
    assert_true(llm_rows_move(rig->context, format_of(rig), 1, middle, above.to));
    expect_map(rig, PROMPT, PROMPT);
    expect_holds(rig, 1, &before);
    if (rig_bound == 0) expect_right(rig, 1, &high, 6); /* sums of 16 bits depend on the order of the cells */
    expect_branch(rig, 2, &high, SHARED, 7);            /* who shares the rest notices nothing */
    release(&before);
    tokens_release(&low);
    tokens_release(&high);
}

static void what_cannot_be_moved_stays(struct rig *rig)
{
    struct tokens prompt = random_tokens(rig, 8, PROMPT);
    put(rig, 0, &prompt, 0);
    int32_t end = llm_seq_end(rig->context, 0);
    assert_false(llm_rows_move(rig->context, format_of(rig), 0, PROMPT, PROMPT + 1));
    assert_false(llm_rows_move(rig->context, format_of(rig), 0, 8, 8));
    if (!llm_state_format_appends(format_of(rig)))
        assert_false(llm_rows_move(rig->context, format_of(rig), 0, 8, PROMPT));
    assert_int_equal(llm_seq_end(rig->context, 0), end);
    expect_right(rig, 0, &prompt, 9);
    tokens_release(&prompt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(only_cells_that_can_be_moved_have_a_map),
        RIG_TEST(new_rows_take_the_lowest_free_cells),
        RIG_TEST(moved_rows_are_the_same_and_leave_no_hole_below),
        RIG_TEST(what_cannot_be_moved_stays),
    };
    int failed = 0;
    RUN_IN_EVERY_VARIANT(tests, failed)
    return failed;
}
