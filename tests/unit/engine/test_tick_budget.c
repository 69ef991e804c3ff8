/* The token budget of ticks, against machines of all speeds. */
#include "fakes/cmocka_all.h"

#include "engine/tick_budget.h"

#define MS 1000000LL

static void observe(struct tick_budget *tick_budget, int32_t prompt_tokens, int32_t allowed, int64_t ns)
{
    tick_budget_observe(tick_budget, &(struct tick_cost){prompt_tokens, 1, allowed}, ns);
}

static int32_t next_budget(struct tick_budget *tick_budget)
{
    return tick_budget_next(tick_budget,
                            &(struct tick_room){.ns = tick_budget->max_ns, .reply_tokens = 1, .most = 2048});
}

/* A machine: a call costs `call`, each token `token_ns`. The longest of 200 ticks with a prompt, after some without one
 * and the first `skip`. */
static int64_t longest_tick(struct tick_budget *tick_budget, int64_t call, int64_t token_ns, int skip, int32_t *tokens)
{
    int64_t longest = 0;
    for (int i = 0; i < 5; i++) observe(tick_budget, 0, 0, call + token_ns);
    for (int i = 0; i < 200; i++) {
        *tokens = next_budget(tick_budget);
        int64_t ns = call + (1 + *tokens) * token_ns;
        if (i >= skip && ns > longest) longest = ns;
        observe(tick_budget, *tokens, *tokens, ns);
    }
    return longest;
}

static void ticks_stay_within_the_token_gap_on_any_machine_that_can(void **state)
{
    (void)state;
    for (int64_t token_ns = 1000; token_ns <= 25 * MS; token_ns *= 3) {
        for (int64_t call = 0; call <= 100 * MS; call += 20 * MS) {
            struct tick_budget tick_budget;
            int32_t tokens;
            tick_budget_init(&tick_budget, 250 * MS, 1);
            assert_true(longest_tick(&tick_budget, call, token_ns, 1, &tokens) <= 250 * MS + token_ns);
        }
    }
}

static void a_fast_machine_soon_takes_whole_batches(void **state)
{
    (void)state;
    struct tick_budget tick_budget;
    int32_t tokens;
    tick_budget_init(&tick_budget, 250 * MS, 32);
    longest_tick(&tick_budget, MS, 10000, 0, &tokens);
    assert_int_equal(tokens, 2048);
}

static void the_token_gap_is_used(void **state)
{
    (void)state;
    struct tick_budget tick_budget;
    int32_t tokens;
    tick_budget_init(&tick_budget, 250 * MS, 32);
    longest_tick(&tick_budget, 40 * MS, 5 * MS, 0, &tokens);
    assert_in_range(tokens, 34, 41); /* 210 to 250 ms */
}

static void prompts_progress_where_a_tick_alone_takes_longer_than_the_token_gap(void **state)
{
    (void)state;
    struct tick_budget tick_budget;
    int32_t tokens;
    tick_budget_init(&tick_budget, 250 * MS, 32);
    longest_tick(&tick_budget, 400 * MS, 5 * MS, 0, &tokens);
    assert_in_range(tokens, 30, 60); /* half as long again */
}

static void one_slow_tick_does_not_stop_the_prompts(void **state)
{
    (void)state;
    struct tick_budget tick_budget;
    int32_t tokens;
    tick_budget_init(&tick_budget, 250 * MS, 32);
    longest_tick(&tick_budget, 40 * MS, MS, 0, &tokens);
    int32_t before = tokens;
    observe(&tick_budget, tokens, tokens, 3000 * MS);
    assert_true(next_budget(&tick_budget) >= 8);
    longest_tick(&tick_budget, 40 * MS, MS, 0, &tokens);
    assert_in_range(tokens, before - 2, before + 2);
}

static void a_tick_that_did_not_use_its_budget_teaches_nothing(void **state)
{
    (void)state;
    struct tick_budget tick_budget;
    int32_t tokens;
    tick_budget_init(&tick_budget, 250 * MS, 32);
    longest_tick(&tick_budget, 40 * MS, MS, 0, &tokens);
    struct tick_budget before = tick_budget;
    observe(&tick_budget, 3, tokens, 43 * MS);
    assert_memory_equal(&tick_budget, &before, sizeof tick_budget);
}

/* Tokens in tiles of 64 and in smaller calls cost what was measured at 0, 4,096, 8,192 and 12,288 tokens of context. A
 * tick that takes less than a tile does so because a tile would take more than `ms`. With `busy` now and then a tick
 * takes 2.5 times as long as it should. Returns the depth of the last tile. */
static int32_t read_deep_prompt(struct tick_budget *tick_budget, bool busy, int32_t ms)
{
    int32_t last_tile = 0, next_slow = busy ? 1000 : INT32_MAX;
    for (int i = 0; i < 5; i++) observe(tick_budget, 0, 0, 5 * MS);
    for (int32_t depth = 0; depth < 12000;) {
        int32_t tokens = next_budget(tick_budget);
        bool tile = tokens + 1 >= ATTENTION_TILE, slow = tile && depth >= next_slow;
        double tiled = 0.9 + 0.0006 * depth, small = 0.9 + 0.0014 * depth;
        int64_t took = (int64_t)((5 + (tile ? tiled : small) * tokens) * MS);
        assert_true(took < 340 * MS);
        if (depth > 64 && !tile) assert_true((5 + tiled * ATTENTION_TILE) * MS > ms * MS);
        if (tile) last_tile = depth;
        if (slow) next_slow += 1000;
        observe(tick_budget, tokens, tokens, slow ? took * 5 / 2 : took);
        depth += tokens;
    }
    return last_tile;
}

static void a_deepening_prompt_keeps_to_tiles_as_long_as_one_fits(void **state)
{
    (void)state;
    struct tick_budget tick_budget;
    tick_budget_init(&tick_budget, 250 * MS, 32);
    assert_in_range(read_deep_prompt(&tick_budget, false, 300), 5500, 8000);
    for (int i = 0; i < 5; i++) { /* a new prompt is learned again */
        int32_t tokens = next_budget(&tick_budget);
        observe(&tick_budget, tokens, tokens, (int64_t)((5 + 0.9 * tokens) * MS));
    }
    assert_true(next_budget(&tick_budget) >= 2 * ATTENTION_TILE - 1);
}

static void a_tick_out_of_the_ordinary_does_not_end_the_use_of_tiles(void **state)
{
    (void)state;
    struct tick_budget tick_budget;
    tick_budget_init(&tick_budget, 250 * MS, 32);
    assert_in_range(read_deep_prompt(&tick_budget, true, 250), 5500, 8000);
}

/* Weights are copied for calls of 32 tokens and more, which takes `copy`. The longest of 200 ticks after the first few,
 * and how many tokens they have had in all. A prompt was computed alone before, if `alone`. */
static int64_t longest_beside_copies(int64_t copy, bool alone, int64_t *all)
{
    struct tick_budget tick_budget;
    int64_t longest = 0;
    tick_budget_init(&tick_budget, 250 * MS, 128);
    tick_budget.copies_from = 32;
    for (int i = 0; i < 5; i++) observe(&tick_budget, 0, 0, 12 * MS);
    const int32_t sizes[] = {512, 512, 300};
    for (int i = 0; alone && i < 3; i++)
        tick_budget_observe(&tick_budget, &(struct tick_cost){sizes[i], 0, sizes[i]},
                            10 * MS + copy + sizes[i] * MS / 4);
    *all = 0;
    for (int i = 0; i < 200; i++) {
        int32_t tokens = next_budget(&tick_budget);
        bool copies = tokens + 1 >= 32;
        int64_t ns = 10 * MS + (copies ? copy + (tokens + 1) * MS / 4 : (tokens + 1) * 5 * MS);
        if (i >= (alone ? 1 : 3) && ns > longest) longest = ns;
        *all += tokens;
        observe(&tick_budget, tokens, tokens, ns);
    }
    return longest;
}

/* Smaller calls take 165 ms for 30 tokens. With copies that take no longer than the gap, one has hundreds. */
static void weights_are_copied_where_the_gap_has_room_for_it(void **state)
{
    (void)state;
    const int64_t copies[] = {0, 20, 50, 100, 150, 200, 400, 1000, 3000};
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++) {
        for (int alone = 0; alone < 2; alone++) {
            int64_t all, room = 225 - 10 - copies[i], longest = longest_beside_copies(copies[i] * MS, alone, &all);
            print_message("copies of %d ms: %d tokens a tick, the longest of %d ms\n", (int)copies[i], (int)(all / 200),
                          (int)(longest / MS));
            assert_true(longest <= 255 * MS);
            assert_true(all / 200 >= (room > 20 ? room * 4 * 8 / 10 : 28));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ticks_stay_within_the_token_gap_on_any_machine_that_can),
        cmocka_unit_test(a_fast_machine_soon_takes_whole_batches),
        cmocka_unit_test(the_token_gap_is_used),
        cmocka_unit_test(prompts_progress_where_a_tick_alone_takes_longer_than_the_token_gap),
        cmocka_unit_test(one_slow_tick_does_not_stop_the_prompts),
        cmocka_unit_test(a_deepening_prompt_keeps_to_tiles_as_long_as_one_fits),
        cmocka_unit_test(a_tick_out_of_the_ordinary_does_not_end_the_use_of_tiles),
        cmocka_unit_test(a_tick_that_did_not_use_its_budget_teaches_nothing),
        cmocka_unit_test(weights_are_copied_where_the_gap_has_room_for_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
