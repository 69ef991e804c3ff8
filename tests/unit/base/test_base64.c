/* Base64: the vectors of RFC 4648, texts that are refused, and random bytes against a naive decoder. */
#include "base/base64.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static void assert_decodes(const char *text, const char *expected)
{
    struct base64_bytes bytes;
    enum base64_fault fault = base64_get(&bytes, text, strlen(text));
    bool same = fault == BASE64_GOOD && bytes.len == strlen(expected) &&
                (bytes.len == 0 || memcmp(bytes.v, expected, bytes.len) == 0);
    if (!same) fail_msg("%s: fault %d, %zu bytes", text, fault, bytes.len);
    free(bytes.v);
}

static void the_vectors_of_the_rfc_go_both_ways(void **state)
{
    (void)state;
    static const char *const rows[][2] = {{"", ""},
                                          {"f", "Zg=="},
                                          {"fo", "Zm8="},
                                          {"foo", "Zm9v"},
                                          {"foob", "Zm9vYg=="},
                                          {"fooba", "Zm9vYmE="},
                                          {"foobar", "Zm9vYmFy"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf text = {0};
        base64_put(&text, rows[i][0], strlen(rows[i][0]));
        assert_string_equal(buf_text(&text), rows[i][1]);
        assert_decodes(rows[i][1], rows[i][0]);
        buf_release(&text);
    }
}

static void both_alphabets_are_read_with_white_space_and_without_padding(void **state)
{
    (void)state;
    static const char *const rows[][2] = {{"+/+/", "\xfb\xff\xbf"},
                                          {"-_-_", "\xfb\xff\xbf"},
                                          {"Zg", "f"},
                                          {"Zm8", "fo"},
                                          {"Zm9v\r\nYm\tE =\n", "fooba"},
                                          {" \nZ g = = ", "f"},
                                          {" \n", ""},
                                          {"Zh==", "f"}}; /* bits that are left over say nothing */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) assert_decodes(rows[i][0], rows[i][1]);
}

static void what_is_no_base64_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t len;
        enum base64_fault fault;
        size_t wrong;
    } rows[] = {
        {"Zm9v*A==", 8, BASE64_CHARACTER, 4},
        {"*", 1, BASE64_CHARACTER, 0},
        {"Zm9\0", 4, BASE64_CHARACTER, 3},
        {"Zm9v\x80", 5, BASE64_CHARACTER, 4},
        {"Zg==.", 5, BASE64_CHARACTER, 4},
        {"Zm%3D", 5, BASE64_CHARACTER, 2},
        {"Z", 1, BASE64_END, 0},
        {"Zm9vY", 5, BASE64_END, 0},
        {"Zg=", 3, BASE64_END, 0},
        {"Zg===", 5, BASE64_END, 0},
        {"Zm8==", 5, BASE64_END, 0},
        {"Zm9v=", 5, BASE64_END, 0},
        {"Zm9v====", 8, BASE64_END, 0},
        {"=", 1, BASE64_END, 0},
        {"Z===", 4, BASE64_END, 0},
        {"Zg==Zg==", 8, BASE64_END, 0},
        {"Zg=a", 4, BASE64_END, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct base64_bytes bytes;
        enum base64_fault fault = base64_get(&bytes, rows[i].text, rows[i].len);
        if (fault != rows[i].fault || bytes.wrong != rows[i].wrong)
            fail_msg("%s: fault %d at %zu", rows[i].text, fault, bytes.wrong);
        assert_null(bytes.v);
        assert_int_equal(bytes.len, 0);
    }
}

/* ---- Against a naive decoder ---- */

static uint32_t random_below(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525U + 1013904223U;
    return (uint32_t)(((uint64_t)(*state >> 8) * n) >> 24);
}

static const char standard[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char for_urls[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static int value_of(char c)
{
    if (c == '\0') return -1;
    const char *a = strchr(standard, c), *b = strchr(for_urls, c);
    return a != NULL ? (int)(a - standard) : b != NULL ? (int)(b - for_urls) : -1;
}

/* Bit by bit, into `bytes`; -1: refused. */
static int decode_naively(const char *text, size_t len, uint8_t *bytes)
{
    char kept[256];
    size_t n = 0, n_bits = 0, n_padding = 0;
    for (size_t i = 0; i < len; i++)
        if (strchr(" \t\r\n", text[i]) == NULL || text[i] == '\0') kept[n++] = text[i];
    bool is_padded = n > 0 && kept[n - 1] == '=';
    if (is_padded && n % 4 != 0) return -1;
    while (n > 0 && n_padding < 2 && kept[n - 1] == '=') n--, n_padding++;
    memset(bytes, 0, 256);
    for (size_t i = 0; i < n; i++) {
        int value = value_of(kept[i]);
        if (value < 0) return -1;
        for (int bit = 5; bit >= 0; bit--, n_bits++)
            if ((value >> bit & 1) != 0) bytes[n_bits / 8] |= (uint8_t)(0x80 >> n_bits % 8);
    }
    return n % 4 == 1 ? -1 : (int)(n_bits / 8);
}

/* A text of one alphabet with white space and padding, damaged in one of three. */
static size_t make_text(uint32_t *seed, char *text)
{
    static const char others[] = "=== \n\tA+-_%*";
    const char *alphabet = random_below(seed, 2) == 0 ? standard : for_urls;
    size_t n = random_below(seed, 60), len = 0;
    for (size_t i = 0; i < n; i++) {
        if (random_below(seed, 9) == 0) text[len++] = " \t\r\n"[random_below(seed, 4)];
        text[len++] = alphabet[random_below(seed, 64)];
    }
    for (size_t i = n; i % 4 != 0 && i < n + random_below(seed, 4); i++) text[len++] = '=';
    if (len > 0 && random_below(seed, 3) == 0)
        text[random_below(seed, (uint32_t)len)] = others[random_below(seed, sizeof others)]; /* or a zero */
    return len;
}

static void random_texts_are_read_as_by_a_naive_decoder(void **state)
{
    (void)state;
    uint32_t seed = 1;
    int n_good = 0, n_refused = 0;
    for (int i = 0; i < 200000; i++) {
        char text[256];
        uint8_t expected[256];
        struct base64_bytes bytes;
        size_t len = make_text(&seed, text);
        int n = decode_naively(text, len, expected);
        enum base64_fault fault = base64_get(&bytes, text, len);
        if ((fault == BASE64_GOOD) != (n >= 0)) fail_msg("%.*s: fault %d, naively %d", (int)len, text, fault, n);
        if (n >= 0 && bytes.len != (size_t)n) fail_msg("%.*s: %zu bytes, not %d", (int)len, text, bytes.len, n);
        if (n > 0) assert_memory_equal(bytes.v, expected, bytes.len);
        n_good += n > 0;
        n_refused += n < 0;
        free(bytes.v);
    }
    assert_true(n_good > 50000 && n_refused > 50000);
}

static void what_was_encoded_is_decoded(void **state)
{
    (void)state;
    uint32_t seed = 2;
    for (size_t len = 1; len < 20000; len = len * 5 / 4 + 1) {
        uint8_t *given = malloc(len);
        for (size_t i = 0; i < len; i++) given[i] = (uint8_t)random_below(&seed, 256);
        struct buf text = {0};
        struct base64_bytes bytes;
        base64_put(&text, given, len);
        assert_int_equal(base64_get(&bytes, text.v, text.len), BASE64_GOOD);
        assert_int_equal(bytes.len, len);
        assert_memory_equal(bytes.v, given, len);
        free(bytes.v);
        free(given);
        buf_release(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_vectors_of_the_rfc_go_both_ways),
        cmocka_unit_test(both_alphabets_are_read_with_white_space_and_without_padding),
        cmocka_unit_test(what_is_no_base64_is_refused),
        cmocka_unit_test(random_texts_are_read_as_by_a_naive_decoder),
        cmocka_unit_test(what_was_encoded_is_decoded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
