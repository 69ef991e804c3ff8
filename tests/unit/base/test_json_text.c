/* JSON text in and out of trees. The oracle of the property test is what the text was made from: each number is written
 * down beside the text that it must become, and a real's digits are the fewest of all counts that read the same. */
#include "base/json_text.h"
#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *through(const char *text)
{
    json_error_t fault;
    json_t *value = json_text_read(text, strlen(text), &fault);
    if (value == NULL) fail_msg("%s: %s", text, fault.text);
    char *written = json_text_of(value);
    assert_int_equal(json_text_bytes(value), strlen(written));
    json_decref(value);
    return written;
}

static void assert_through(const char *text, const char *expected)
{
    char *written = through(text);
    assert_string_equal(written, expected);
    free(written);
}

/* ---- Examples, as Python's json.dumps(json.loads(text)) prints them ---- */

static void numbers_are_written_as_python_writes_them(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"0", "0"},
        {"-0", "0"},
        {"0.0", "0.0"},
        {"-0.0", "-0.0"},
        {"1.0", "1.0"},
        {"0.1", "0.1"},
        {"-0.5", "-0.5"},
        {"52.52000659", "52.52000659"},
        {"1727133797.5", "1727133797.5"},
        {"1727133797.123456", "1727133797.123456"},
        {"1e-7", "1e-07"},
        {"0.0001", "0.0001"},
        {"0.00001", "1e-05"},
        {"1e5", "100000.0"},
        {"1E+2", "100.0"},
        {"123456789012345.0", "123456789012345.0"},
        {"9007199254740993.0", "9007199254740992.0"},
        {"1e15", "1000000000000000.0"},
        {"1e16", "1e+16"},
        {"12345678901234567.0", "1.2345678901234568e+16"},
        {"1e22", "1e+22"},
        {"1.7976931348623157e308", "1.7976931348623157e+308"},
        {"2.2250738585072014e-308", "2.2250738585072014e-308"},
        {"5e-324", "5e-324"},
        {"5.940911144672375e-213", "5.940911144672375e-213"}, /* a power of two: the nearest 16 digits are another's */
        {"6.386688990511104e+293", "6.386688990511104e+293"},
        {"9.671406556917033e+24", "9.671406556917033e+24"},
        {"4.9406564584124654e-324", "5e-324"},
        {"1e-400", "0.0"},
        {"0.30000000000000004", "0.30000000000000004"},
        {"5.551115123125783e-17", "5.551115123125783e-17"},
        {"9223372036854775807", "9223372036854775807"},
        {"-9223372036854775808", "-9223372036854775808"},
        {"9223372036854775808", "9223372036854775808"},
        {"-9223372036854775809", "-9223372036854775809"},
        {"18446744073709551615", "18446744073709551615"},
        {"123456789012345678901234567890", "123456789012345678901234567890"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_through(rows[i][0], rows[i][1]);
        char *text = mem_format("{\"a\":[%s,{\"b\":%s}]}", rows[i][0], rows[i][0]);
        char *expected = mem_format("{\"a\":[%s,{\"b\":%s}]}", rows[i][1], rows[i][1]);
        assert_through(text, expected);
        free(text);
        free(expected);
    }
}

static void reals_beyond_a_double_stay_as_they_are(void **state)
{
    (void)state;
    assert_through("[1e309,-1E+400,1.5e999]", "[1e309,-1E+400,1.5e999]");
}

static void wide_numbers_are_no_strings_objects_or_numbers_of_jansson(void **state)
{
    (void)state;
    json_t *wide = json_text_read("18446744073709551615", 20, NULL), *copy = json_deep_copy(wide);
    assert_false(json_is_string(wide) || json_is_number(wide) || json_text_is_object(wide));
    assert_true(json_text_is_number(wide) && json_equal(wide, copy));
    assert_string_equal(json_text_wide(copy), "18446744073709551615");
    static const char given[] = "[{}, {\"a\": \"1\"}, 5, 1.5, \"5\", null]";
    json_t *others = json_text_read(given, strlen(given), NULL), *other;
    size_t i;
    json_array_foreach(others, i, other)
    {
        assert_null(json_text_wide(other));
        assert_int_equal(json_text_is_object(other), json_is_object(other));
        assert_int_equal(json_text_is_number(other), json_is_number(other));
    }
    json_decref(others);
    json_decref(wide);
    json_decref(copy);
}

/* ---- Strings ---- */

static void digits_within_strings_and_names_are_left_alone(void **state)
{
    (void)state;
    assert_through("{\"18446744073709551615\":\"18446744073709551615\",\"a\\\"\":\"\\\\\"}",
                   "{\"18446744073709551615\":\"18446744073709551615\",\"a\\\"\":\"\\\\\"}");
    assert_through("\"\\u0000 \\u001f \\ud83d\\ude00 \\/ ü\"", "\"\\u0000 \\u001f 😀 / ü\"");
}

static void members_are_sorted_where_that_is_asked(void **state)
{
    (void)state;
    struct buf text = {0};
    static const char given[] = "{\"b\":{\"d\":1,\"c\":99999999999999999999},\"a\":[true,false,null]}";
    json_t *value = json_text_read(given, strlen(given), NULL);
    json_text_write_sorted(&text, value);
    assert_string_equal(text.v, "{\"a\":[true,false,null],\"b\":{\"c\":99999999999999999999,\"d\":1}}");
    buf_release(&text);
    json_decref(value);
}

/* ---- What is no JSON ---- */

static void faults_are_at_their_place_in_the_clients_text(void **state)
{
    (void)state;
    static const char *const same[] = {"[1,2,]", "[99999999999999999999,2,]", "{\"a\":99999999999999999999"};
    static const size_t places[] = {6, 25, 25};
    for (size_t i = 0; i < 3; i++) {
        json_error_t fault;
        assert_null(json_text_read(same[i], strlen(same[i]), &fault));
        assert_int_equal(fault.position, places[i]);
    }
}

static void what_only_resembles_a_wide_number_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"018446744073709551615",
                                        "18446744073709551615a",
                                        "+18446744073709551615",
                                        "18446744073709551615.",
                                        "-18446744073709551615-",
                                        "1e+",
                                        "1e99999x",
                                        "--99999999999999999999",
                                        "99999999999999999999 1",
                                        ""};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (json_text_read(texts[i], strlen(texts[i]), NULL) != NULL) fail_msg("%s is taken", texts[i]);
}

/* ---- Random values ---- */

static uint64_t random_state;

static uint64_t next_random(void)
{
    uint64_t x = random_state += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static size_t below(size_t n)
{
    return (size_t)(next_random() % n);
}

/* What a case is made of: text for the reader, and the text that must come out. */
struct twins {
    struct buf given, expected;
};

static void put_both(struct twins *twins, const char *text)
{
    buf_puts(&twins->given, text);
    buf_puts(&twins->expected, text);
}

static void put_integer(struct twins *twins)
{
    struct buf digits = {0};
    size_t n = below(2) == 0 ? 17 + below(4) : 1 + below(60);
    if (below(2) == 0) buf_puts(&digits, "-");
    buf_printf(&digits, "%d", 1 + (int)below(9));
    while (--n > 0) buf_printf(&digits, "%d", (int)below(10));
    put_both(twins, digits.v);
    buf_release(&digits);
}

/* Any double: the mantissa and the exponent are random bits. */
static double random_real(void)
{
    double value;
    uint64_t bits = next_random();
    if (below(2) == 0) return (double)(int64_t)(bits >> below(64)) / pow(10, (double)below(30));
    memcpy(&value, &bits, sizeof value);
    return isfinite(value) ? value : 0.5;
}

/* The digits alone, without sign, point, exponent and zeros at either end. */
static void digits_of(const char *number, char *out)
{
    size_t n = 0;
    for (const char *at = number; *at != '\0' && *at != 'e'; at++)
        if (*at >= '0' && *at <= '9' && (n > 0 || *at != '0')) out[n++] = *at;
    while (n > 0 && out[n - 1] == '0') n--;
    out[n] = '\0';
}

static void put_real(struct twins *twins)
{
    char given[64], expected[64];
    const double value = random_real();
    snprintf(given, sizeof given, below(2) == 0 ? "%.17e" : "%.20E", value);
    buf_puts(&twins->given, given);
    for (int precision = 0; precision < 18; precision++) {
        snprintf(expected, sizeof expected, "%.*e", precision, value);
        if (strtod(expected, NULL) == value) break;
    }
    buf_printf(&twins->expected, "<%s>", expected); /* compared as a number */
}

static void put_value(struct twins *twins, int depth);

static void put_list(struct twins *twins, int depth)
{
    put_both(twins, "[");
    for (size_t n = below(5), i = 0; i < n; i++) {
        if (i > 0) put_both(twins, ",");
        put_value(twins, depth);
    }
    put_both(twins, "]");
}

static void put_object(struct twins *twins, int depth)
{
    put_both(twins, "{");
    for (size_t n = below(5), i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s\"%zu\":", i > 0 ? "," : "", i);
        put_both(twins, name);
        put_value(twins, depth);
    }
    put_both(twins, "}");
}

static void put_value(struct twins *twins, int depth)
{
    static const char *const others[] = {"true", "false", "null", "\"\"", "\"99999999999999999999\"", "\"\\\"1e999\""};
    static const char *const spaces[] = {"", " ", "\n", "\t "};
    buf_puts(&twins->given, spaces[below(4)]);
    switch (below(depth > 0 ? 6 : 4)) {
    case 0:
    case 1:
        put_integer(twins);
        break;
    case 2:
        put_real(twins);
        break;
    case 3:
        put_both(twins, others[below(6)]);
        break;
    case 4:
        put_list(twins, depth - 1);
        break;
    default:
        put_object(twins, depth - 1);
    }
    buf_puts(&twins->given, spaces[below(4)]);
}

/* Compares up to the next real, "<1.5e+00>", of the expected text; that one by value and digits. */
static void assert_same(const char *written, const char *expected)
{
    char its_digits[64], digits[64];
    for (; *expected != '\0'; written++, expected++) {
        if (*expected != '<') {
            if (*written != *expected) fail_msg("%s is not %s", written, expected);
            continue;
        }
        char *end, *after = strchr(expected, '>');
        if (strtod(written, &end) != strtod(expected + 1, NULL)) fail_msg("%s is not %s", written, expected);
        char *number = mem_strndup(written, (size_t)(end - written));
        digits_of(number, its_digits);
        digits_of(expected + 1, digits);
        assert_string_equal(its_digits, digits);
        assert_non_null(strpbrk(number, ".e")); /* it stays a real */
        free(number);
        written = end - 1;
        expected = after;
    }
    assert_int_equal(*written, '\0');
}

static void what_is_read_is_written_as_it_was(void **state)
{
    (void)state;
    const char *seed = getenv("HEARTH_SEED"), *cases = getenv("HEARTH_CASES");
    uint64_t first = seed != NULL ? strtoull(seed, NULL, 10) : 1;
    printf("seed %llu\n", (unsigned long long)first);
    random_state = first;
    for (long n = cases != NULL ? strtol(cases, NULL, 10) : 20000; n > 0; n--) {
        struct twins twins = {0};
        put_value(&twins, 4);
        char *once = through(twins.given.v), *twice = through(once);
        assert_same(once, twins.expected.v);
        assert_string_equal(twice, once);
        free(once);
        free(twice);
        buf_release(&twins.given);
        buf_release(&twins.expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_written_as_python_writes_them),
        cmocka_unit_test(reals_beyond_a_double_stay_as_they_are),
        cmocka_unit_test(wide_numbers_are_no_strings_objects_or_numbers_of_jansson),
        cmocka_unit_test(digits_within_strings_and_names_are_left_alone),
        cmocka_unit_test(members_are_sorted_where_that_is_asked),
        cmocka_unit_test(faults_are_at_their_place_in_the_clients_text),
        cmocka_unit_test(what_only_resembles_a_wide_number_is_refused),
        cmocka_unit_test(what_is_read_is_written_as_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
