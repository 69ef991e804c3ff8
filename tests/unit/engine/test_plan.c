/* Plans of a tick: by example, and as properties over random needs. */
#include "fakes/cmocka_all.h"

#include "engine/plan.h"

#include <stdlib.h>

#define MAX_SLOTS 8

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
    struct plan_need needs[] = {{0, 500, false, 0}, {10, 11, true, 0}, {0, 0, false, 0}, {99, 100, true, 0}};
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
    struct plan_need needs[] = {{0, 5000, false, 0}, {0, 5000, false, 0}, {0, 10, false, 0}};
    struct plan plan = make(needs, 3, (struct plan_limits){.n_batch = 2048, .budget = 512, .turn = 2});
    assert_int_equal(plan.shares[0].slot, 2);
    assert_int_equal(plan.n_tokens, 10 + 251 + 251);
    plan_release(&plan);
}

static void the_turn_decides_who_gets_a_small_budget(void **state)
{
    (void)state;
    struct plan_need needs[] = {{0, 500, false, 0}, {0, 500, false, 0}, {7, 8, true, 0}};
    for (size_t turn = 0; turn < 2; turn++) {
        struct plan plan = make(needs, 3, (struct plan_limits){.n_batch = 512, .budget = 16, .turn = turn});
        assert_int_equal(plan.n_shares, 2);
        assert_int_equal(plan.shares[1].slot, turn);
        plan_release(&plan);
    }
}

static void prefill_chunks_do_not_depend_on_who_else_is_there(void **state)
{
    (void)state;
    struct plan_need needs[] = {{100, 500, false, 0}, {64, 500, false, 0}, {10, 20, false, 0}};
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

static void slots_of_different_groups_go_into_different_calls(void **state)
{
    (void)state;
    struct plan_need needs[] = {{9, 10, true, 0}, {0, 50, false, 1}, {0, 50, false, 0}, {19, 20, true, 3}};
    struct plan plan = make(needs, 4, (struct plan_limits){.n_batch = 512, .budget = 200, .turn = 1});
    static const size_t slots[] = {0, 2, 3, 1}, calls[] = {0, 2, 3, 4};
    assert_int_equal(plan.n_calls, 3);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(plan.shares[i].slot, slots[i]);
        assert_int_equal(plan.calls[i], calls[i]);
    }
    assert_int_equal(plan.turn, 2); /* slot 1 had its turn, although its call comes last */
    plan_release(&plan);
}

/* Each call is of one group, and no group has two calls. */
static void expect_groups(const struct plan *plan, const struct plan_need *needs)
{
    bool seen[MAX_SLOTS] = {false};
    for (size_t call = 0; call < plan->n_calls; call++) {
        size_t group = needs[plan->shares[plan->calls[call]].slot].group;
        assert_false(seen[group]);
        seen[group] = true;
        for (size_t i = plan->calls[call]; i < plan->calls[call + 1]; i++)
            assert_int_equal(needs[plan->shares[i].slot].group, group);
    }
}

/* Of any needs: no more tokens than a batch holds, at most the budget for prompts, each slot once,
 * nothing that is not needed, every generating slot served, some prompt served if there is one, cuts at multiples of a
 * chunk. */
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
            needs[i] = (struct plan_need){from,
                                          from + (kind == 0   ? 0
                                                  : kind == 1 ? 1
                                                              : 1 + rand() % 2000),
                                          kind == 1, (size_t)rand() % 3};
            generating += kind == 1;
            prompts += kind == 2;
        }
        struct plan_limits limits = {
            .n_batch = MAX_SLOTS + rand() % 600, .budget = 1 + rand() % 300, .turn = (size_t)rand() % n};
        struct plan plan = make(needs, n, limits);
        bool seen[MAX_SLOTS] = {false};
        size_t served_generating = 0, served_prompts = 0;
        int32_t n_tokens = 0;
        for (size_t i = 0; i < plan.n_shares; i++) {
            struct plan_share *share = &plan.shares[i];
            const struct plan_need *need = &needs[share->slot];
            assert_false(seen[share->slot]);
            seen[share->slot] = true;
            assert_true(share->from == need->from && share->to > share->from && share->to <= need->to);
            n_tokens += share->to - share->from;
            served_generating += need->generating;
            served_prompts += !need->generating;
        }
        expect_groups(&plan, needs);
        assert_int_equal(n_tokens, plan.n_tokens);
        assert_true(plan.n_tokens <= limits.n_batch);
        assert_true(plan.n_prompt_tokens <= limits.budget);
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
        cmocka_unit_test(slots_of_different_groups_go_into_different_calls),
        cmocka_unit_test(plans_keep_their_promises),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
