/* Plans of a tick: by example, and as properties over random needs. */
#include "fakes/cmocka_all.h"

#include "engine/plan.h"

#include <stdlib.h>

#define MAX_SLOTS 8

#define PROMPT(begin, end, adapters)                                                                                   \
    {                                                                                                                  \
        .from = begin, .to = end, .set = adapters                                                                      \
    }
#define REPLY(begin, end, adapters)                                                                                    \
    {                                                                                                                  \
        .from = begin, .to = end, .generating = true, .set = adapters                                                  \
    }
#define ROWS(begin, end, all)                                                                                          \
    {                                                                                                                  \
        .from = begin, .to = end, .rows = true, .at_once = all                                                         \
    }

static struct plan make(const struct plan_need *needs, size_t n, struct plan_limits limits)
{
    struct plan plan;
    plan_init(&plan, n);
    plan_make(&plan, needs, n, &limits);
    return plan;
}

static void every_generating_slot_has_a_batch_token_before_any_prompt(void **state)
{
    (void)state;
    struct plan_need needs[] = {PROMPT(0, 500, 0), REPLY(10, 11, 0), PROMPT(0, 0, 0), REPLY(99, 100, 0)};
    struct plan plan = make(needs, 4, (struct plan_limits){.n_batch = 512, .budget = 32});
    assert_int_equal(plan.n_shares, 3);
    assert_int_equal(plan.shares[0].slot, 1);
    assert_int_equal(plan.shares[1].slot, 3);
    assert_int_equal(plan.shares[2].slot, 0);
    assert_int_equal(plan.shares[2].to, 32);
    assert_int_equal(plan.n_prompt_tokens, 32);
    assert_int_equal(plan.n_tokens, 34);
    assert_int_equal(plan.n_calls, 1);
    plan_release(&plan);
}

static void prompts_share_what_is_allowed(void **state)
{
    (void)state;
    struct plan_need needs[] = {PROMPT(0, 5000, 0), PROMPT(0, 5000, 0), PROMPT(0, 10, 0)};
    struct plan plan = make(needs, 3, (struct plan_limits){.n_batch = 2048, .budget = 512, .first = 2});
    assert_int_equal(plan.shares[0].slot, 2);
    assert_int_equal(plan.n_tokens, 10 + 251 + 251);
    plan_release(&plan);
}

static void the_turn_decides_who_gets_a_small_budget(void **state)
{
    (void)state;
    struct plan_need needs[] = {PROMPT(0, 500, 0), PROMPT(0, 500, 0), REPLY(7, 8, 0)};
    for (size_t turn = 0; turn < 2; turn++) {
        struct plan plan = make(needs, 3, (struct plan_limits){.n_batch = 512, .budget = 16, .first = turn});
        assert_int_equal(plan.n_shares, 2);
        assert_int_equal(plan.shares[1].slot, turn);
        plan_release(&plan);
    }
}

static void prefill_chunks_do_not_depend_on_who_else_is_there(void **state)
{
    (void)state;
    struct plan_need needs[] = {PROMPT(100, 500, 0), PROMPT(64, 500, 0), PROMPT(10, 20, 0)};
    struct plan plan = make(
        needs, 3, (struct plan_limits){.n_batch = 512, .budget = 8, .deterministic = true, .one_slot_per_call = true});
    int32_t ends[] = {128, 128, 20};
    assert_int_equal(plan.n_calls, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(plan.calls[i], i);
        assert_int_equal(plan.shares[i].to, ends[i]);
    }
    plan_release(&plan);
}

static void only_the_slots_of_one_set_of_adapters_are_computed(void **state)
{
    (void)state;
    static const struct plan_need needs[] = {REPLY(9, 10, 0), PROMPT(0, 50, 1), PROMPT(0, 50, 0), REPLY(19, 20, 1),
                                             PROMPT(0, 50, 1)};
    static const struct {
        size_t set, first; /* given */
        size_t slots[3], n_slots;
        size_t next; /* slot whose prompt comes first in the set's next tick */
    } rows[] = {
        {.set = 0, .first = 0, .slots = {0, 2}, .n_slots = 2, .next = 3},
        {.set = 0, .first = 4, .slots = {0, 2}, .n_slots = 2, .next = 3},
        {.set = 1, .first = 0, .slots = {3, 1, 4}, .n_slots = 3, .next = 2},
        {.set = 1, .first = 2, .slots = {3, 4, 1}, .n_slots = 3, .next = 0},
        {.set = 2, .first = 2, .n_slots = 0, .next = 2},
    };
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        struct plan plan =
            make(needs, 5,
                 (struct plan_limits){.set = rows[row].set, .n_batch = 512, .budget = 200, .first = rows[row].first});
        assert_int_equal(plan.n_shares, rows[row].n_slots);
        for (size_t i = 0; i < plan.n_shares; i++) assert_int_equal(plan.shares[i].slot, rows[row].slots[i]);
        assert_int_equal(plan.n_calls, plan.n_shares > 0);
        assert_int_equal(plan.first, rows[row].next);
        plan_release(&plan);
    }
}

static void without_a_budget_replies_alone_are_computed(void **state)
{
    (void)state;
    static const struct plan_need needs[] = {PROMPT(0, 50, 0), REPLY(9, 10, 0)};
    for (int deterministic = 0; deterministic < 2; deterministic++) {
        struct plan plan = make(needs, 2, (struct plan_limits){.n_batch = 512, .deterministic = deterministic});
        assert_int_equal(plan.n_shares, 1);
        assert_int_equal(plan.shares[0].slot, 1);
        plan_release(&plan);
    }
}

/* Also where the reply is streamed under another set of adapters. */
static void one_chunk_is_computed_while_a_reply_is_streamed(void **state)
{
    (void)state;
    static const struct plan_need needs[] = {PROMPT(0, 500, 0), PROMPT(0, 500, 0), REPLY(9, 10, 1)};
    for (int streaming = 0; streaming < 2; streaming++) {
        struct plan plan = make(
            needs, 3, (struct plan_limits){.n_batch = 512, .budget = 8, .deterministic = true, .streaming = streaming});
        assert_int_equal(plan.n_shares, streaming ? 1 : 2);
        plan_release(&plan);
    }
}

/* Of any needs: no more tokens than a batch holds, at most the budget for prompts, each slot once, nothing that is not
 * needed, no slot of another set, every generating slot of the set served, some prompt of it if there is one. */
/* ---- Media ---- */

static void rows_have_calls_of_their_own_behind_those_of_text(void **state)
{
    (void)state;
    struct plan_need needs[] = {ROWS(10, 50, false), PROMPT(0, 30, 0), ROWS(0, 20, true), REPLY(9, 10, 0),
                                PROMPT(5, 25, 0)};
    struct plan plan = make(needs, 5, (struct plan_limits){.n_batch = 512, .budget = 512});
    static const size_t slots[] = {3, 1, 4, 0, 2};
    assert_int_equal(plan.n_shares, 5);
    for (size_t i = 0; i < 5; i++) assert_int_equal(plan.shares[i].slot, slots[i]);
    assert_int_equal(plan.n_calls, 3);
    assert_int_equal(plan.calls[1], 3);
    assert_int_equal(plan.calls[2], 4);
    assert_int_equal(plan.n_tokens, 40 + 30 + 20 + 1 + 20);
    plan_release(&plan);
}

static void rows_that_are_computed_at_once_wait_until_their_prompt_comes_first(void **state)
{
    (void)state;
    struct plan_need needs[] = {PROMPT(0, 500, 0), ROWS(0, 300, true), ROWS(0, 300, false)};
    for (size_t first = 0; first < 3; first++) {
        struct plan plan = make(needs, 3, (struct plan_limits){.n_batch = 512, .budget = 200, .first = first});
        bool any = false;
        for (size_t i = 0; i < plan.n_shares; i++) {
            if (plan.shares[i].slot != 1) continue;
            any = true;
            assert_int_equal(plan.shares[i].to, 300);
        }
        assert_int_equal(any, first == 1);
        if (first == 1) assert_int_equal(plan.n_shares, 1);
        if (first != 1) assert_true(plan.n_prompt_tokens <= 200);
        plan_release(&plan);
    }
}

static void deterministic_rows_end_where_chunks_do_unless_they_are_computed_at_once(void **state)
{
    (void)state;
    struct plan_need needs[] = {ROWS(100, 500, false), ROWS(100, 500, true)};
    struct plan plan = make(
        needs, 2, (struct plan_limits){.n_batch = 512, .budget = 8, .deterministic = true, .one_slot_per_call = true});
    assert_int_equal(plan.n_shares, 2);
    assert_int_equal(plan.shares[0].to, 128);
    assert_int_equal(plan.shares[1].to, 500);
    plan_release(&plan);
}

/* Where one has all that may be scored, the next tick is another's, and prompts that are not scored have every tick. */
static void scored_prompts_take_turns_and_hold_nobody_up(void **state)
{
    (void)state;
    int32_t had[4] = {0};
    size_t first = 0;
    for (int tick = 0; tick < 40; tick++) {
        struct plan_need needs[] = {PROMPT(0, 900, 0), PROMPT(0, 900, 0), PROMPT(0, 900, 0), PROMPT(0, 900, 0)};
        for (size_t i = 0; i < 3; i++) needs[i].scored = true;
        struct plan plan =
            make(needs, 4, (struct plan_limits){.n_batch = 512, .budget = 512, .scored = 64, .first = first});
        for (size_t i = 0; i < plan.n_shares; i++) had[plan.shares[i].slot] += plan.shares[i].to - plan.shares[i].from;
        first = plan.first;
        plan_release(&plan);
    }
    for (size_t i = 0; i < 3; i++) assert_in_range(had[i], 8 * 64, 24 * 64);
    assert_true(had[3] >= 40 * 64);
}

static void plans_keep_their_promises(void **state)
{
    (void)state;
    srand(11);
    for (int round = 0; round < 50000; round++) {
        struct plan_need needs[MAX_SLOTS];
        size_t n = 1 + (size_t)rand() % MAX_SLOTS, generating = 0, prompts = 0;
        for (size_t i = 0; i < n; i++) {
            int32_t from = rand() % 300;
            int kind = rand() % 3;
            int32_t most = kind == 0 ? 0 : kind == 1 ? 1 : 1 + rand() % 2000;
            needs[i] = (struct plan_need){.from = from,
                                          .to = from + most,
                                          .generating = kind == 1,
                                          .scored = kind == 2 && rand() % 3 == 0,
                                          .set = (size_t)rand() % 3};
            generating += kind == 1 && needs[i].set == 0;
            prompts += kind == 2 && needs[i].set == 0;
        }
        struct plan_limits limits = {.n_batch = MAX_SLOTS + rand() % 600,
                                     .budget = 1 + rand() % 300,
                                     .scored = 1 + rand() % 64,
                                     .first = (size_t)rand() % n};
        struct plan plan = make(needs, n, limits);
        bool seen[MAX_SLOTS] = {false};
        size_t served_generating = 0, served_prompts = 0;
        int32_t n_tokens = 0, scored = 0;
        for (size_t i = 0; i < plan.n_shares; i++) {
            struct plan_share *share = &plan.shares[i];
            const struct plan_need *need = &needs[share->slot];
            assert_false(seen[share->slot]);
            seen[share->slot] = true;
            assert_int_equal(need->set, 0);
            assert_true(share->from == need->from && share->to > share->from && share->to <= need->to);
            n_tokens += share->to - share->from;
            scored += need->scored ? share->to - share->from : 0;
            served_generating += need->generating;
            served_prompts += !need->generating;
        }
        assert_int_equal(n_tokens, plan.n_tokens);
        assert_true(plan.n_tokens <= limits.n_batch);
        assert_true(plan.n_prompt_tokens <= limits.budget);
        assert_true(scored <= limits.scored);
        assert_int_equal(served_generating, generating);
        if (prompts > 0 && limits.n_batch > (int32_t)generating) assert_true(served_prompts > 0);
        plan_release(&plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_generating_slot_has_a_batch_token_before_any_prompt),
        cmocka_unit_test(prompts_share_what_is_allowed),
        cmocka_unit_test(the_turn_decides_who_gets_a_small_budget),
        cmocka_unit_test(prefill_chunks_do_not_depend_on_who_else_is_there),
        cmocka_unit_test(only_the_slots_of_one_set_of_adapters_are_computed),
        cmocka_unit_test(without_a_budget_replies_alone_are_computed),
        cmocka_unit_test(one_chunk_is_computed_while_a_reply_is_streamed),
        cmocka_unit_test(rows_have_calls_of_their_own_behind_those_of_text),
        cmocka_unit_test(rows_that_are_computed_at_once_wait_until_their_prompt_comes_first),
        cmocka_unit_test(deterministic_rows_end_where_chunks_do_unless_they_are_computed_at_once),
        cmocka_unit_test(scored_prompts_take_turns_and_hold_nobody_up),
        cmocka_unit_test(plans_keep_their_promises),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
