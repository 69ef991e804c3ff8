/* Decoding of gzip: what was compressed comes back, up to the limit; every cut is a fault, and every wrong byte is one,
 * or is where nothing is said about the content. */
#include "base/gzip.h"
#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <isa-l/igzip_lib.h>
#include <stdlib.h>
#include <string.h>

static struct buf gzip_of(const void *bytes, size_t len)
{
    struct isal_zstream *stream = mem_alloc(sizeof *stream);
    const size_t room = len + len / 8 + 1024;
    uint8_t *out = mem_alloc(room);
    struct buf file = {0};
    isal_deflate_init(stream);
    stream->gzip_flag = IGZIP_GZIP;
    stream->end_of_stream = 1;
    stream->next_in = (uint8_t *)bytes;
    stream->avail_in = (uint32_t)len;
    stream->next_out = out;
    stream->avail_out = (uint32_t)room;
    assert_int_equal(isal_deflate(stream), COMP_OK);
    buf_append(&file, out, room - stream->avail_out);
    free(out);
    free(stream);
    return file;
}

/* Text that compresses to a half. */
static char *text_of(size_t len)
{
    char *text = mem_alloc(len + 1);
    uint32_t random = 1;
    for (size_t i = 0; i < len; i++) text[i] = (char)('a' + ((random = random * 1103515245 + 12345) >> 16) % 8);
    return text;
}

static void what_was_compressed_comes_back(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 100, 65535, 65536, 65537, 1000000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *text = text_of(sizes[i]);
        struct buf file = gzip_of(text, sizes[i]), out = {0};
        assert_int_equal(gzip_decode(file.v, file.len, sizes[i], &out), GZIP_OK);
        assert_int_equal(out.len, sizes[i]);
        if (sizes[i] > 0) assert_memory_equal(out.v, text, sizes[i]);
        buf_release(&out);
        if (sizes[i] > 0) {
            assert_int_equal(gzip_decode(file.v, file.len, sizes[i] - 1, &out), GZIP_TOO_LARGE);
            assert_int_equal(out.len, 0);
        }
        buf_release(&file);
        free(text);
    }
}

static void files_in_a_row_are_one_text(void **state)
{
    (void)state;
    struct buf first = gzip_of("Hello, ", 7), second = gzip_of("world", 5), out = {0};
    buf_append(&first, second.v, second.len);
    assert_int_equal(gzip_decode(first.v, first.len, 12, &out), GZIP_OK);
    assert_string_equal(out.v, "Hello, world");
    buf_release(&out);
    assert_int_equal(gzip_decode(first.v, first.len, 11, &out), GZIP_TOO_LARGE);
    buf_append(&first, "junk", 4);
    assert_int_equal(gzip_decode(first.v, first.len, 12, &out), GZIP_BROKEN);
    buf_release(&first);
    buf_release(&second);
}

/* A bomb costs what the limit allows, not what it holds. */
static void what_grows_manyfold_is_stopped_at_the_limit(void **state)
{
    (void)state;
    enum { SIZE = 16 << 20 };
    char *zeros = mem_alloc(SIZE);
    struct buf file = gzip_of(zeros, SIZE), out = {0};
    assert_true(file.len < SIZE / 50); /* isa-l makes a thousandth of it on x86-64 */
    assert_int_equal(gzip_decode(file.v, file.len, 1 << 20, &out), GZIP_TOO_LARGE);
    assert_null(out.v);
    buf_release(&file);
    free(zeros);
}

static void every_cut_is_a_fault(void **state)
{
    (void)state;
    char *text = text_of(3000);
    struct buf file = gzip_of(text, 3000), out = {0};
    for (size_t len = 0; len < file.len; len++) {
        char *cut = memcpy(mem_alloc(len + 1), file.v, len); /* so that a sanitizer sees what is read behind it */
        assert_int_equal(gzip_decode(cut, len, 3000, &out), GZIP_BROKEN);
        free(cut);
    }
    buf_release(&file);
    free(text);
}

static void a_wrong_byte_is_a_fault_or_changes_nothing(void **state)
{
    (void)state;
    char *text = text_of(3000);
    struct buf file = gzip_of(text, 3000), out = {0};
    size_t harmless = 0;
    for (size_t i = 0; i < file.len; i++) {
        file.v[i] ^= 0x41;
        if (gzip_decode(file.v, file.len, 10000, &out) == GZIP_OK) {
            assert_int_equal(out.len, 3000);
            assert_memory_equal(out.v, text, 3000);
            harmless++;
        }
        buf_release(&out);
        file.v[i] ^= 0x41;
    }
    assert_in_range(harmless, 0, 11); /* flags, time, level and system of the header, the length at the end */
    buf_release(&file);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_compressed_comes_back),
        cmocka_unit_test(files_in_a_row_are_one_text),
        cmocka_unit_test(what_grows_manyfold_is_stopped_at_the_limit),
        cmocka_unit_test(every_cut_is_a_fault),
        cmocka_unit_test(a_wrong_byte_is_a_fault_or_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
