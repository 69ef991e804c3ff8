/* Tokens that media have, and where they lie: against a list in which each position is written down. */
#include "base/media_spans.h"
#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct tokens rows(uint8_t seed, int32_t n)
{
    struct tokens tokens = {0};
    uint8_t key[32];
    memset(key, seed, sizeof key);
    media_tokens_append(&tokens, key, n);
    return tokens;
}

static void rows_have_tokens_of_their_content_alone(void **state)
{
    (void)state;
    struct tokens one = rows(1, 100), same = rows(1, 100), shorter = rows(1, 30), other = rows(2, 100);
    assert_int_equal(tokens_common_prefix(&one, &same), 100);
    assert_int_equal(tokens_common_prefix(&one, &shorter), 30);
    assert_int_equal(tokens_common_prefix(&one, &other), 0);
    for (size_t i = 0; i < one.len; i++) {
        assert_true(one.v[i] < -1000);
        assert_true(media_token_is_one(one.v[i]));
        for (size_t k = 0; k < i; k++) assert_int_not_equal(one.v[i], one.v[k]);
    }
    static const int32_t others[] = {0, 1, 200000, INT32_MAX, -1, -2, -100};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) assert_false(media_token_is_one(others[i]));
    tokens_release(&one);
    tokens_release(&same);
    tokens_release(&shorter);
    tokens_release(&other);
}

static struct media_spans spans_of(const struct media_span *v, size_t n)
{
    struct media_spans spans = {0};
    for (size_t i = 0; i < n; i++) media_spans_add(&spans, &v[i]);
    return spans;
}

static const struct media_span mixed[] = {
    {.at = 3, .n = 12, .n_pos = 4, .causal = true}, /* 4 x 3 rows with M-RoPE */
    {.at = 15, .n = 6, .n_pos = 6, .causal = true}, /* at once a sound */
    {.at = 30, .n = 16, .n_pos = 16, .causal = false},
    {.at = 50, .n = 20, .n_pos = 5, .causal = true},
};

enum { LEN = 80, SPANS = sizeof mixed / sizeof *mixed };

/* The position of each index, counted up. */
static void count_positions(int32_t positions[LEN])
{
    int32_t next = 0;
    for (int32_t i = 0; i < LEN; i++) {
        const struct media_span *in = NULL;
        for (size_t k = 0; k < SPANS; k++)
            if (i >= mixed[k].at && i < mixed[k].at + mixed[k].n) in = &mixed[k];
        bool packed = in != NULL && in->n_pos != in->n;
        positions[i] = next;
        if (!packed)
            next++;
        else if (i == in->at + in->n - 1)
            next += in->n_pos;
    }
}

static void positions_are_those_that_counting_gives(void **state)
{
    (void)state;
    struct media_spans spans = spans_of(mixed, SPANS);
    int32_t positions[LEN];
    count_positions(positions);
    for (int32_t i = 0; i < LEN; i++) {
        assert_int_equal(media_spans_position(&spans, i), positions[i]);
        const struct media_span *at = media_spans_at(&spans, i);
        bool packed = at != NULL && at->n_pos != at->n;
        assert_int_equal(media_spans_index(&spans, positions[i]), packed ? at->at : i);
    }
    media_spans_release(&spans);
    for (int32_t i = 0; i < 10; i++) assert_int_equal(media_spans_position(&spans, i), i);
}

static void a_prefix_ends_inside_no_medium(void **state)
{
    (void)state;
    struct media_spans spans = spans_of(mixed, SPANS);
    for (int32_t n = 0; n <= LEN; n++) {
        int32_t expected = n;
        for (size_t k = 0; k < SPANS; k++)
            if (n > mixed[k].at && n < mixed[k].at + mixed[k].n) expected = mixed[k].at;
        assert_int_equal(media_spans_whole(&spans, n), expected);
    }
    media_spans_release(&spans);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_have_tokens_of_their_content_alone),
        cmocka_unit_test(positions_are_those_that_counting_gives),
        cmocka_unit_test(a_prefix_ends_inside_no_medium),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
