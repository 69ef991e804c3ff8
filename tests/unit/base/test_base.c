/* Buffers, token lists, errors: random operations against a naive implementation, and edge cases. */
#include "base/buf.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/tokens.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t random_below(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525U + 1013904223U;
    return (uint32_t)(((uint64_t)(*state >> 8) * n) >> 24);
}

/* ---- Buffers ---- */

static void an_empty_buffer_is_taken_as_an_empty_string(void **state)
{
    (void)state;
    struct buf b = {0};
    char *text = buf_take(&b);
    assert_string_equal(text, "");
    assert_null(b.v);
    free(text);
}

static void appended_bytes_are_there_with_a_zero_after_them(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_append(&b, "a\0b", 3);
    buf_puts(&b, "cd");
    buf_printf(&b, "%d-%s", 42, "x");
    assert_int_equal(b.len, 9);
    assert_memory_equal(b.v, "a\0bcd42-x", 10);
    buf_release(&b);
    assert_null(b.v);
    assert_int_equal(b.len + b.cap, 0);
}

static void a_printed_text_of_any_length_is_whole(void **state)
{
    (void)state;
    for (int len = 0; len < 300; len++) {
        struct buf b = {0};
        buf_puts(&b, "<");
        buf_printf(&b, "%*s", len, "");
        buf_puts(&b, ">");
        assert_int_equal(b.len, (size_t)len + 2);
        assert_int_equal(strspn(b.v + 1, " "), (size_t)len);
        assert_string_equal(b.v + 1 + len, ">");
        buf_release(&b);
    }
}

static void a_cleared_buffer_keeps_its_memory(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_clear(&b);
    buf_puts(&b, "text");
    char *v = b.v;
    buf_clear(&b);
    assert_string_equal(b.v, "");
    buf_puts(&b, "more");
    assert_ptr_equal(b.v, v);
    buf_release(&b);
}

enum { MODEL_BYTES = 1 << 16 };

static void random_appends_and_drops_leave_the_bytes_of_a_plain_array(void **state)
{
    (void)state;
    uint32_t seed = 7;
    char *model = mem_alloc(MODEL_BYTES);
    for (int round = 0; round < 50; round++) {
        struct buf b = {0};
        size_t len = 0;
        for (int step = 0; step < 200; step++) {
            char bytes[200];
            size_t n = random_below(&seed, sizeof bytes);
            for (size_t i = 0; i < n; i++) bytes[i] = (char)random_below(&seed, 256);
            buf_append(&b, bytes, n);
            memcpy(model + len, bytes, n);
            len += n;
            size_t drop = random_below(&seed, 4) == 0 ? random_below(&seed, (uint32_t)len + 1) : 0;
            buf_drop_front(&b, drop);
            len -= drop;
            memmove(model, model + drop, len);
            assert_int_equal(b.len, len);
            if (b.v == NULL) continue; /* nothing was appended yet */
            assert_memory_equal(b.v, model, len);
            assert_int_equal(b.v[len], 0);
        }
        buf_release(&b);
    }
    free(model);
}

/* ---- Tokens ---- */

static void tokens_come_out_as_they_went_in(void **state)
{
    (void)state;
    struct tokens t = {0};
    for (int32_t i = 0; i < 1000; i++) tokens_push(&t, i * 3);
    tokens_append(&t, (const int32_t[]){-1, 5}, 2);
    tokens_append(&t, NULL, 0);
    assert_int_equal(t.len, 1002);
    for (int32_t i = 0; i < 1000; i++) assert_int_equal(t.v[i], i * 3);
    assert_int_equal(t.v[1000], -1);
    tokens_truncate(&t, 2000);
    assert_int_equal(t.len, 1002);
    tokens_truncate(&t, 10);
    tokens_push(&t, 99);
    assert_int_equal(t.len, 11);
    assert_int_equal(t.v[9], 27);
    assert_int_equal(t.v[10], 99);
    tokens_release(&t);
    assert_null(t.v);
}

static size_t naive_common_prefix(const struct tokens *a, const struct tokens *b)
{
    for (size_t n = 0;; n++)
        if (n == a->len || n == b->len || a->v[n] != b->v[n]) return n;
}

static void the_common_prefix_is_the_longest(void **state)
{
    (void)state;
    uint32_t seed = 3;
    size_t longest = 0;
    for (int round = 0; round < 2000; round++) {
        struct tokens a = {0}, b = {0};
        uint32_t shared = random_below(&seed, 40), more_a = random_below(&seed, 5), more_b = random_below(&seed, 5);
        for (uint32_t i = 0; i < shared; i++) tokens_push(&a, (int32_t)random_below(&seed, 3));
        tokens_append(&b, a.v, a.len);
        for (uint32_t i = 0; i < more_a; i++) tokens_push(&a, (int32_t)random_below(&seed, 3));
        for (uint32_t i = 0; i < more_b; i++) tokens_push(&b, (int32_t)random_below(&seed, 3));
        size_t n = tokens_common_prefix(&a, &b);
        assert_int_equal(n, naive_common_prefix(&a, &b));
        assert_in_range(n, shared, shared + 4);
        if (n > longest) longest = n;
        tokens_release(&a);
        tokens_release(&b);
    }
    assert_true(longest > 35);
}

static void the_short_hash_tells_tokens_order_and_length_apart(void **state)
{
    (void)state;
    static const struct {
        int32_t v[4];
        size_t len;
    } lists[] = {{{0}, 0}, {{0}, 1}, {{0, 0}, 2}, {{1, 2}, 2}, {{2, 1}, 2}, {{1, 2, 3}, 3}, {{-1, 2, 3}, 3}};
    enum { N = sizeof lists / sizeof lists[0] };
    uint64_t hashes[N];
    for (size_t i = 0; i < N; i++) {
        struct tokens t = {0}, same = {0};
        tokens_append(&t, lists[i].v, lists[i].len);
        tokens_append(&same, lists[i].v, lists[i].len);
        hashes[i] = tokens_short_hash(&t);
        assert_true(hashes[i] == tokens_short_hash(&same));
        for (size_t j = 0; j < i; j++) assert_true(hashes[i] != hashes[j]);
        tokens_release(&t);
        tokens_release(&same);
    }
}

/* ---- Errors ---- */

static void an_error_says_what_and_where(void **state)
{
    (void)state;
    hearth_error error;
    memset(&error, 'x', sizeof error);
    assert_int_equal(error_at(&error, HEARTH_TOO_LONG, "prompt", "%d tokens", 9), HEARTH_TOO_LONG);
    assert_int_equal(error.code, HEARTH_TOO_LONG);
    assert_string_equal(error.param, "prompt");
    assert_string_equal(error.message, "9 tokens");
    assert_int_equal(error_set(&error, HEARTH_BUSY, "busy"), HEARTH_BUSY);
    assert_string_equal(error.param, "");
    assert_string_equal(error.message, "busy");
    assert_int_equal(error_set(NULL, HEARTH_IO, "nobody asked"), HEARTH_IO);
}

static void context_goes_before_the_message(void **state)
{
    (void)state;
    hearth_error error;
    error_at(&error, HEARTH_IO, "a.gguf", "cannot be read");
    error_prefix(&error, "model %s: ", "demo");
    assert_string_equal(error.message, "model demo: cannot be read");
    assert_string_equal(error.param, "a.gguf");
    assert_int_equal(error.code, HEARTH_IO);
    error_prefix(NULL, "nobody asked");
}

static void what_does_not_fit_into_an_error_is_cut_off(void **state)
{
    (void)state;
    hearth_error error;
    char text[2000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    error_at(&error, HEARTH_IO, text, "%s", text);
    assert_int_equal(strlen(error.param), sizeof error.param - 1);
    assert_int_equal(strlen(error.message), sizeof error.message - 1);
    error_prefix(&error, "b");
    assert_int_equal(strlen(error.message), sizeof error.message - 1);
    assert_int_equal(strspn(error.message + 1, "a"), sizeof error.message - 2);
    assert_int_equal(error.message[0], 'b');
    text[0] = 'c';
    error_prefix(&error, "%s", text);
    assert_int_equal(error.message[0], 'c');
    assert_int_equal(strlen(error.message), sizeof error.message - 1);
}

/* ---- */

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_buffer_is_taken_as_an_empty_string),
        cmocka_unit_test(appended_bytes_are_there_with_a_zero_after_them),
        cmocka_unit_test(a_printed_text_of_any_length_is_whole),
        cmocka_unit_test(a_cleared_buffer_keeps_its_memory),
        cmocka_unit_test(random_appends_and_drops_leave_the_bytes_of_a_plain_array),
        cmocka_unit_test(tokens_come_out_as_they_went_in),
        cmocka_unit_test(the_common_prefix_is_the_longest),
        cmocka_unit_test(the_short_hash_tells_tokens_order_and_length_apart),
        cmocka_unit_test(an_error_says_what_and_where),
        cmocka_unit_test(context_goes_before_the_message),
        cmocka_unit_test(what_does_not_fit_into_an_error_is_cut_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
