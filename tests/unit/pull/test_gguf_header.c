/* Where headers of GGUF files end: every prefix of one that is cut asks for more, and what is no such file asks for
 * nothing. */
#include "fakes/cmocka_all.h"

#include "base/buf.h"
#include "base/little.h"
#include "pull/gguf_header.h"

#include <string.h>

enum { TYPE_U8 = 0, TYPE_U32 = 4, TYPE_STRING = 8, TYPE_ARRAY = 9, TYPE_F64 = 12 };

static void put(struct buf *out, uint64_t value, size_t bytes)
{
    uint8_t number[8];
    little_put(number, value, bytes);
    buf_append(out, number, bytes);
}

static void put_string(struct buf *out, const char *text)
{
    put(out, strlen(text), 8);
    buf_puts(out, text);
}

static void put_begin(struct buf *out, uint64_t version, uint64_t n_tensors, uint64_t n_values)
{
    buf_puts(out, "GGUF");
    put(out, version, 4);
    put(out, n_tensors, 8);
    put(out, n_values, 8);
}

/* Two tensors, and a value of each kind. */
static struct buf header(void)
{
    struct buf out = {0};
    put_begin(&out, 3, 2, 4);
    put_string(&out, "general.architecture");
    put(&out, TYPE_STRING, 4);
    put_string(&out, "llama");
    put_string(&out, "words");
    put(&out, TYPE_ARRAY, 4);
    put(&out, TYPE_STRING, 4);
    put(&out, 3, 8);
    put_string(&out, "one");
    put_string(&out, "");
    put_string(&out, "three");
    put_string(&out, "scores");
    put(&out, TYPE_ARRAY, 4);
    put(&out, TYPE_F64, 4);
    put(&out, 5, 8);
    for (int i = 0; i < 5; i++) put(&out, 0, 8);
    put_string(&out, "n");
    put(&out, TYPE_U32, 4);
    put(&out, 7, 4);
    for (uint64_t n = 1; n <= 2; n++) {
        put_string(&out, n == 1 ? "a.weight" : "b.weight");
        put(&out, n, 4);
        for (uint64_t i = 0; i < n; i++) put(&out, 32, 8);
        put(&out, 0, 4);
        put(&out, 0, 8);
    }
    return out;
}

static void a_header_that_is_cut_at_any_byte_goes_on(void **state)
{
    (void)state;
    struct buf out = header();
    for (size_t len = 0; len < out.len; len++)
        if (gguf_header_is_whole(out.v, len)) fail_msg("it ends after %zu of %zu bytes", len, out.len);
    assert_true(gguf_header_is_whole(out.v, out.len));
    buf_puts(&out, "weights");
    assert_true(gguf_header_is_whole(out.v, out.len));
    buf_release(&out);
}

static void nothing_more_is_wanted_of_what_is_no_such_file(void **state)
{
    (void)state;
    struct buf out = {0};
    assert_true(gguf_header_is_whole("<!DOCTYPE html>", 15));
    assert_true(gguf_header_is_whole("GG!", 3));
    put_begin(&out, 1, 1, 1); /* its lengths have other sizes */
    assert_true(gguf_header_is_whole(out.v, out.len));
    buf_clear(&out);
    put_begin(&out, 3, 0, 1);
    put_string(&out, "key");
    put(&out, 13, 4); /* no type has the number */
    assert_true(gguf_header_is_whole(out.v, out.len));
    buf_clear(&out);
    put_begin(&out, 3, 0, 1);
    put_string(&out, "key");
    put(&out, TYPE_ARRAY, 4);
    put(&out, TYPE_ARRAY, 4);
    put(&out, 1, 8);
    assert_true(gguf_header_is_whole(out.v, out.len));
    buf_clear(&out);
    put_begin(&out, 3, 1, 0);
    put_string(&out, "a.weight");
    put(&out, 5, 4); /* dimensions */
    assert_true(gguf_header_is_whole(out.v, out.len));
    buf_release(&out);
}

static void numbers_that_no_file_can_have_do_not_overflow(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {UINT64_MAX, (uint64_t)1 << 63, UINT64_MAX / 8 + 1};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct buf out = {0};
        put_begin(&out, 3, lengths[i], lengths[i]);
        put(&out, lengths[i], 8);
        assert_false(gguf_header_is_whole(out.v, out.len));
        buf_clear(&out);
        put_begin(&out, 3, 0, 1);
        put_string(&out, "key");
        put(&out, TYPE_ARRAY, 4);
        put(&out, i == 0 ? TYPE_U8 : TYPE_F64, 4);
        put(&out, lengths[i], 8);
        put(&out, 0, 8);
        assert_false(gguf_header_is_whole(out.v, out.len));
        buf_release(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_header_that_is_cut_at_any_byte_goes_on),
        cmocka_unit_test(nothing_more_is_wanted_of_what_is_no_such_file),
        cmocka_unit_test(numbers_that_no_file_can_have_do_not_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
