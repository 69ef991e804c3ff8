/* UTF-8 against an oracle that knows only how a code point is encoded: it encodes all 1,112,064 of them and marks each
 * encoding and each beginning of one. */
#include "base/memory.h"
#include "base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The oracle ---- */

enum { BEGINS = 1, WHOLE = 2 };

struct oracle {
    uint8_t *of[4]; /* by bytes as a number: all sequences of 1, 2, 3 bytes; those of 4 that begin with F0 to FF */
};

static uint8_t *entry(const struct oracle *oracle, const unsigned char *bytes, size_t len)
{
    static uint8_t nothing;
    size_t at = 0;
    for (size_t i = 0; i < len; i++) at = at << 8 | bytes[i];
    if (len < 4) return &oracle->of[len - 1][at];
    return bytes[0] >= 0xF0 ? &oracle->of[3][at - ((size_t)0xF0 << 24)] : &nothing;
}

static size_t encode(uint32_t c, unsigned char *out)
{
    size_t len = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char marks[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = len - 1; i > 0; i--, c >>= 6) out[i] = (unsigned char)(0x80 | (c & 0x3F));
    out[0] = (unsigned char)(marks[len] | c);
    return len;
}

static int open_oracle(void **state)
{
    struct oracle *oracle = mem_alloc(sizeof *oracle);
    for (size_t i = 0; i < 3; i++) oracle->of[i] = mem_alloc((size_t)1 << (8 * (i + 1)));
    oracle->of[3] = mem_alloc((size_t)1 << 28);
    for (uint32_t c = 0; c <= 0x10FFFF; c++) {
        unsigned char bytes[4];
        if (c >= 0xD800 && c <= 0xDFFF) continue; /* surrogates are no characters */
        size_t len = encode(c, bytes);
        for (size_t n = 1; n < len; n++) *entry(oracle, bytes, n) |= BEGINS;
        *entry(oracle, bytes, len) |= WHOLE;
    }
    *state = oracle;
    return 0;
}

static int close_oracle(void **state)
{
    struct oracle *oracle = *state;
    for (size_t i = 0; i < 4; i++) free(oracle->of[i]);
    free(oracle);
    return 0;
}

static size_t character_at(const struct oracle *oracle, const unsigned char *bytes, size_t len)
{
    for (size_t n = 1; n <= 4 && n <= len; n++)
        if (*entry(oracle, bytes, n) & WHOLE) return n;
    return 0;
}

/* Length of the longest beginning of a character, at least 1. */
static size_t broken_at(const struct oracle *oracle, const unsigned char *bytes, size_t len)
{
    size_t n = 1;
    while (n < 3 && n < len && (*entry(oracle, bytes, n + 1) & BEGINS)) n++;
    return *entry(oracle, bytes, 1) & BEGINS ? n : 1;
}

static void expected_clean(const struct oracle *oracle, const char *text, size_t len, struct buf *out)
{
    const unsigned char *bytes = (const unsigned char *)text;
    for (size_t i = 0; i < len;) {
        size_t n = character_at(oracle, bytes + i, len - i);
        if (n > 0)
            buf_append(out, text + i, n);
        else
            buf_puts(out, "\xEF\xBF\xBD");
        i += n > 0 ? n : broken_at(oracle, bytes + i, len - i);
    }
}

/* Length of the incomplete character at the end. */
static size_t expected_tail(const struct oracle *oracle, const char *text, size_t len)
{
    for (size_t n = 3; n > 0; n--)
        if (n <= len && (*entry(oracle, (const unsigned char *)text + len - n, n) & BEGINS)) return n;
    return 0;
}

/* ---- Against the oracle ---- */

static void check(const struct oracle *oracle, const char *text, size_t len)
{
    struct buf expected = {0}, got = {0};
    expected_clean(oracle, text, len, &expected);
    utf8_put_clean(&got, text, len);
    assert_int_equal(got.len, expected.len);
    if (len > 0) assert_memory_equal(got.v, expected.v, got.len);
    assert_int_equal(utf8_incomplete_tail(text, len), expected_tail(oracle, text, len));
    buf_release(&expected);
    buf_release(&got);
}

/* All first and second bytes, with third bytes of every kind and from both ends of every range. */
static void every_run_of_three_bytes_is_judged_rightly(void **state)
{
    static const char thirds[] = "\x00\x41\x7F\x80\x8F\x90\x9F\xA0\xBF\xC0\xC2\xE0\xED\xF0\xF4\xFF";
    for (uint32_t i = 0; i < 1U << 16; i++) {
        for (size_t k = 0; k < sizeof thirds - 1; k++) {
            char text[3] = {(char)(i >> 8), (char)i, thirds[k]};
            check(*state, text, 3);
        }
    }
}

static void random_text_with_faults_is_judged_rightly(void **state)
{
    uint32_t seed = 1;
    for (int round = 0; round < 200000; round++) {
        char text[32];
        size_t len = 0;
        while (len < 24) {
            seed = seed * 1664525U + 1013904223U;
            uint32_t kind = seed >> 28;
            uint32_t value = (seed >> 4) & 0x1FFFFF;
            if (kind < 10)
                len += encode(value % (kind < 3 ? 0x80 : kind < 6 ? 0x10000 : 0x110000), (unsigned char *)text + len);
            else
                text[len++] = (char)(0x80 | value);
            if (kind == 15 && len > 1) len--; /* an incomplete character */
        }
        check(*state, text, len);
    }
}

static void pieces_cut_at_the_incomplete_tail_are_whole(void **state)
{
    (void)state;
    const char text[] = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x99\x82z";
    for (size_t cut = 0; cut < sizeof text; cut++) {
        size_t whole = cut - utf8_incomplete_tail(text, cut);
        struct buf clean = {0};
        utf8_put_clean(&clean, text, whole);
        utf8_put_clean(&clean, text + whole, sizeof text - 1 - whole);
        assert_string_equal(clean.v, text);
        buf_release(&clean);
    }
}

/* ---- JSON ---- */

static void a_json_string_reads_back_as_the_clean_text(void **state)
{
    uint32_t seed = 5;
    for (int round = 0; round < 20000; round++) {
        char text[16];
        for (size_t i = 0; i < sizeof text; i++) {
            seed = seed * 1664525U + 1013904223U;
            text[i] = (seed >> 24) % 3 == 0 ? "\"\\\n\t\b\f\r\x7F\x01 a"[(seed >> 16) % 11] : (char)(seed >> 20);
        }
        struct buf json = {0}, clean = {0};
        utf8_put_json_string(&json, text, sizeof text);
        expected_clean(*state, text, sizeof text, &clean);
        json_t *value = json_loadb(json.v, json.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        assert_non_null(value);
        assert_int_equal(json_string_length(value), clean.len);
        assert_memory_equal(json_string_value(value), clean.v, clean.len);
        json_decref(value);
        buf_release(&json);
        buf_release(&clean);
    }
}

static void a_json_string_is_one_line_with_the_short_escapes(void **state)
{
    (void)state;
    struct buf json = {0};
    utf8_put_json_string(&json, "\"\\\b\f\n\r\t\x01\x1F\x7F/\xC3\xA9\xFF", 14);
    assert_string_equal(json.v, "\"\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u001f\\u007f/\xC3\xA9\xEF\xBF\xBD\"");
    buf_release(&json);
}

/* ---- */

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_run_of_three_bytes_is_judged_rightly),
        cmocka_unit_test(random_text_with_faults_is_judged_rightly),
        cmocka_unit_test(pieces_cut_at_the_incomplete_tail_are_whole),
        cmocka_unit_test(a_json_string_reads_back_as_the_clean_text),
        cmocka_unit_test(a_json_string_is_one_line_with_the_short_escapes),
    };
    return cmocka_run_group_tests(tests, open_oracle, close_oracle);
}
