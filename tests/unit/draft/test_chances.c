/* How likely guesses are to be right. */
#include "draft/chances.h"
#include "fakes/cmocka_all.h"

static void longer_matches_are_likelier_before_anything_is_known(void **state)
{
    (void)state;
    struct chances all, own = {0};
    chances_init(&all);
    double last = 0;
    for (int32_t matched = 3; matched <= 64; matched++) {
        double chance = chances_of(&all, &own, DRAFT_REQUEST, matched);
        assert_true(chance >= last && chance > 0 && chance < 1);
        last = chance;
    }
    assert_true(chances_of(&all, &own, DRAFT_GRAMMAR, 0) > 0.9);
}

static void a_request_that_guesses_badly_is_known_for_it_soon(void **state)
{
    (void)state;
    struct chances all, bad = {0}, good = {0};
    chances_init(&all);
    for (int i = 0; i < 100; i++) chances_note(&all, &good, DRAFT_REQUEST, 8, true);
    for (int i = 0; i < 10; i++) chances_note(&all, &bad, DRAFT_REQUEST, 8, false);
    assert_true(chances_of(&all, &good, DRAFT_REQUEST, 8) > 0.95);
    assert_true(chances_of(&all, &bad, DRAFT_REQUEST, 8) < 0.4);
    /* Another request expects what all had; another length and another source nothing of it. */
    struct chances other = {0}, fresh;
    chances_init(&fresh);
    assert_true(chances_of(&all, &other, DRAFT_REQUEST, 8) > 0.8);
    assert_true(chances_of(&all, &other, DRAFT_REQUEST, 40) == chances_of(&fresh, &other, DRAFT_REQUEST, 40));
    assert_true(chances_of(&all, &other, DRAFT_STORE, 8) == chances_of(&fresh, &other, DRAFT_STORE, 8));
}

static void old_guesses_weigh_less(void **state)
{
    (void)state;
    struct chances all, own = {0};
    chances_init(&all);
    for (int i = 0; i < 10000; i++) chances_note(&all, &own, DRAFT_STORE, 64, true);
    for (int i = 0; i < 600; i++) chances_note(&all, &own, DRAFT_STORE, 64, false);
    assert_true(chances_of(&all, &own, DRAFT_STORE, 64) < 0.15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(longer_matches_are_likelier_before_anything_is_known),
        cmocka_unit_test(a_request_that_guesses_badly_is_known_for_it_soon),
        cmocka_unit_test(old_guesses_weigh_less),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
