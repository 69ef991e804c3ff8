/* The index of a list's runs of tokens, against a search of the whole list. */
#include "draft/suffix_index.h"
#include "fakes/cmocka_all.h"

#include <string.h>

static uint64_t random_state;

static int32_t below(int32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int32_t)((random_state >> 33) % (uint64_t)n);
}

/* The longest match, of several the last one. */
static struct suffix_match search(const struct tokens *tokens, int32_t indexed, const struct tokens *tail)
{
    struct suffix_match best = {0};
    for (int32_t end = indexed - 1; end >= SUFFIX_LEAST; end--) {
        int32_t len = suffix_common(tokens, end, tail);
        if (len >= SUFFIX_LEAST && len > best.len) best = (struct suffix_match){.end = end, .len = len};
    }
    return best;
}

static void push_some(struct tokens *tokens, int32_t n, int32_t alphabet)
{
    for (int32_t i = 0; i < n; i++) tokens_push(tokens, below(alphabet));
}

/* Lists of so few tokens that no chain is too long for a search. */
static void it_finds_the_longest_match_while_the_list_grows_and_is_cut(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        struct suffix_index index = {0};
        struct tokens list = {0};
        int32_t alphabet = 2 + below(4);
        random_state = seed;
        for (int step = 0; step < 40; step++) {
            if (below(4) == 0 && list.len > 0) {
                int32_t n = below((int32_t)list.len);
                suffix_index_truncate(&index, &list, n);
                tokens_truncate(&list, (size_t)n);
            }
            if (list.len < 40) push_some(&list, below(6), alphabet);
            bool all = suffix_index_extend(&index, &list, 1 + below(8));
            assert_int_equal(all, index.len == (int32_t)list.len);
            struct suffix_match found = suffix_index_find(&index, &list, &list),
                                right = search(&list, index.len, &list);
            assert_int_equal(found.len, right.len);
            assert_int_equal(found.end, right.end);
        }
        suffix_index_release(&index);
        tokens_release(&list);
    }
}

static void it_finds_the_end_of_another_list(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct suffix_index index = {0};
        struct tokens list = {0}, tail = {0};
        random_state = seed;
        push_some(&list, 40, 3);
        push_some(&tail, 1 + below(20), 3);
        suffix_index_extend(&index, &list, INT32_MAX);
        struct suffix_match found = suffix_index_find(&index, &list, &tail), right = search(&list, index.len, &tail);
        assert_int_equal(found.len, right.len);
        assert_int_equal(found.end, right.end);
        suffix_index_release(&index);
        tokens_release(&list);
        tokens_release(&tail);
    }
}

/* Long lists: whatever is found is there, and what follows a rare text is found. */
static void in_a_long_list_a_match_is_a_match(void **state)
{
    (void)state;
    struct suffix_index index = {0};
    struct tokens list = {0};
    random_state = 7;
    push_some(&list, 300000, 50);
    for (int32_t i = 0; i < 10; i++) tokens_push(&list, 1000 + i);
    push_some(&list, 200000, 50);
    for (int32_t i = 0; i < 6; i++) tokens_push(&list, 1000 + i);
    assert_false(suffix_index_extend(&index, &list, 1000));
    assert_int_equal(index.len, 1000);
    assert_true(suffix_index_extend(&index, &list, INT32_MAX));
    struct suffix_match found = suffix_index_find(&index, &list, &list);
    assert_int_equal(found.len, 6);
    assert_int_equal(found.end, 300006);
    assert_int_equal(list.v[found.end], 1006);
    suffix_index_truncate(&index, &list, 299999);
    tokens_truncate(&list, 299999);
    found = suffix_index_find(&index, &list, &list);
    assert_int_equal(found.len, found.len > 0 ? suffix_common(&list, found.end, &list) : 0);
    suffix_index_release(&index);
    tokens_release(&list);
}

static void lists_that_are_too_short_match_nothing(void **state)
{
    (void)state;
    struct suffix_index index = {0};
    struct tokens list = {0};
    assert_true(suffix_index_extend(&index, &list, 1));
    assert_int_equal(suffix_index_find(&index, &list, &list).len, 0);
    for (int i = 0; i < SUFFIX_LEAST; i++) tokens_push(&list, 1);
    assert_true(suffix_index_extend(&index, &list, INT32_MAX));
    assert_int_equal(suffix_index_find(&index, &list, &list).len, 0); /* nothing follows */
    suffix_index_release(&index);
    tokens_release(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_finds_the_longest_match_while_the_list_grows_and_is_cut),
        cmocka_unit_test(it_finds_the_end_of_another_list),
        cmocka_unit_test(in_a_long_list_a_match_is_a_match),
        cmocka_unit_test(lists_that_are_too_short_match_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
