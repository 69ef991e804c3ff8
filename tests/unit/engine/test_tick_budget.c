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

/* A machine that copies weights for calls of 32 tokens and more, which takes `copy_ms`. A token takes a quarter of a
 * millisecond then, else `few_ms`. So many replies stream beside the prompts; times vary by a tenth to either side. A
 * prompt was computed alone before, if `alone`. */
struct copying {
    int64_t copy_ms, few_ms;
    int32_t streams;
    bool alone;
};

/* Of 200 ticks, the longest after the first few; and how many tokens of prompts they have had each. */
static int64_t longest_beside_copies(const struct copying *machine, int64_t *tokens_each)
{
    struct tick_budget tick_budget;
    int64_t longest = 0, all = 0;
    tick_budget_init(&tick_budget, 250 * MS, 128);
    tick_budget.copies_from = 32;
    tick_budget.copied_tokens = 512;
    bool always = machine->streams >= 32;
    int64_t plain = (10 + (always ? machine->copy_ms + machine->streams / 4 : machine->streams * machine->few_ms)) * MS;
    for (int i = 0; i < 5; i++) observe(&tick_budget, 0, 0, plain);
    const int32_t sizes[] = {512, 512, 300};
    for (int i = 0; machine->alone && i < 3; i++)
        tick_budget_observe(&tick_budget, &(struct tick_cost){sizes[i], 0, sizes[i]},
                            10 * MS + machine->copy_ms * MS + sizes[i] * MS / 4);
    for (int i = 0; i < 200; i++) {
        int32_t tokens = tick_budget_next(
            &tick_budget,
            &(struct tick_room){.ns = tick_budget.max_ns, .reply_tokens = machine->streams, .most = 2048});
        int32_t n = tokens + machine->streams;
        int64_t ns = 10 * MS + (n >= 32 ? machine->copy_ms * MS + n * MS / 4 : n * machine->few_ms * MS);
        ns = ns * (90 + i * 7 % 21) / 100;
        if (i >= 3 && ns > longest) longest = ns;
        all += tokens;
        tick_budget_observe(&tick_budget, &(struct tick_cost){tokens, machine->streams, tokens}, ns);
    }
    *tokens_each = all / 200;
    return longest;
}

static void weights_are_copied_where_the_gap_has_room_for_it(void **state)
{
    (void)state;
    const int64_t copies[] = {0, 20, 50, 100, 150, 400, 1000, 3000}, few[] = {2, 5, 10, 20};
    const int32_t streams[] = {1, 4, 31, 32, 40};
    for (size_t i = 0; i < 8 * 4 * 5 * 2; i++) {
        const struct copying machine = {copies[i % 8], few[i / 8 % 4], streams[i / 32 % 5], i / 160 == 1};
        int64_t each, longest = longest_beside_copies(&machine, &each);
        /* Calls of the streams alone copy from 32 on, and prompts may add half of what a call costs anyway. */
        bool has_to = machine.streams + 1 >= 32;
        int64_t room = 225 - 10 - machine.copy_ms, fits = 190 / machine.few_ms < 31 ? 190 / machine.few_ms : 31;
        int64_t least = has_to ? 8 : room > 50 ? (room < 128 ? room * 2 : 256) : (fits - machine.streams) * 2 / 3;
        int64_t most = has_to ? 300 + (machine.copy_ms + machine.streams * machine.few_ms) * 3 / 2 : 260;
        if (each < least || longest > most * MS)
            print_error("copies of %d ms, %d ms a token, %d streams%s: %d tokens a tick, for at least %d; the longest "
                        "of %d ms\n",
                        (int)machine.copy_ms, (int)machine.few_ms, machine.streams,
                        machine.alone ? ", alone before" : "", (int)each, (int)least, (int)(longest / MS));
        assert_true(each >= least && each >= 1);
        assert_true(longest <= most * MS);
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
