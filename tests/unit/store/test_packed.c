/* Packed token lists against plain ones, also with tokens that no vocabulary has. */
#include "index_helpers.h"
#include "store/index/radix.h"

enum { N = 300 };

static void expect_same(const struct packed *packed, const int32_t *tokens, size_t n)
{
    int32_t copy[N];
    assert_int_equal(packed->len, n);
    for (size_t from = 0; from <= n; from += 7) {
        packed_copy(packed, from, n - from, copy);
        assert_memory_equal(copy, tokens + from, (n - from) * sizeof *copy);
        assert_int_equal(packed_common(packed, from, tokens + from, n - from), n - from);
    }
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(packed_at(packed, i), tokens[i]);
        memcpy(copy, tokens, n * sizeof *copy);
        copy[i] = (int32_t)((uint32_t)copy[i] ^ (uint32_t)1 << i % 32); /* also bits beyond three bytes */
        assert_int_equal(packed_common(packed, 0, copy, n), i);
    }
}

static void draw(int32_t tokens[N], int32_t odd)
{
    uint32_t random = 7;
    for (int32_t i = 0; i < N; i++) tokens[i] = (int32_t)random_below(&random, 1 << 24);
    tokens[N / 2] = odd;
}

static void tokens_come_back_as_they_were(void **state)
{
    (void)state;
    static const int32_t odd[] = {0, (1 << 24) - 1, 1 << 24, INT32_MAX, -1, INT32_MIN};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        int32_t tokens[N];
        draw(tokens, odd[i]);
        struct packed packed = packed_of(tokens, N);
        assert_int_equal(packed.width, i < 2 ? 3 : 4);
        expect_same(&packed, tokens, N);
        packed_cut(&packed, 100, 200);
        expect_same(&packed, tokens + 100, 100);
        packed_release(&packed);
    }
}

static void none_are_none(void **state)
{
    (void)state;
    struct packed packed = packed_of(NULL, 0);
    assert_int_equal(packed_common(&packed, 0, NULL, 0), 0);
    packed_release(&packed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_come_back_as_they_were),
        cmocka_unit_test(none_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
