/* Line editing: the line that typed bytes give, and the bytes echoed to the terminal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/line.h"

#include <string.h>

static const struct line_keys keys = {.erase = 0x7f, .word_erase = 0x17, .kill = 0x15, .end = 0x04};

static enum line_state type(struct buf *line, const char *typed, size_t n, struct buf *echo)
{
    enum line_state state = LINE_GOES_ON;
    for (size_t i = 0; i < n && state == LINE_GOES_ON; i++) state = line_type(line, &keys, typed[i], echo);
    return state;
}

static void keys_edit_the_line(void **state)
{
    (void)state;
    static const struct {
        const char *typed, *line, *echo;
        enum line_state state;
    } rows[] = {
        {"ab\n", "ab", "ab\n", LINE_WHOLE},
        {"ab", "ab", "ab", LINE_GOES_ON},
        {"\n", "", "\n", LINE_WHOLE},
        {"ab\x7f"
         "c\n",
         "ac", "ab\b \bc\n", LINE_WHOLE},
        {"\x7f\x17\x15x\n", "x", "x\n", LINE_WHOLE},
        {"a\xc3\xa9\x7f"
         "b\n",
         "ab", "a\xc3\xa9\b \bb\n", LINE_WHOLE},
        {"one two \x17\n", "one ", "one two \b \b\b \b\b \b\b \b\n", LINE_WHOLE},
        {"ab\x15"
         "c\n",
         "c", "ab\b \b\b \bc\n", LINE_WHOLE},
        {"a\x01\x7f\n", "a", "a^A\b\b  \b\b\n", LINE_WHOLE},
        {"a\tb\n", "a\tb", "a b\n", LINE_WHOLE},
        {"\x04", "", "", LINE_NO_MORE},
        {"a\x04"
         "b\n",
         "ab", "ab\n", LINE_WHOLE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf line = {0}, echo = {0};
        assert_int_equal(type(&line, rows[i].typed, strlen(rows[i].typed), &echo), rows[i].state);
        assert_string_equal(buf_text(&line), rows[i].line);
        assert_string_equal(buf_text(&echo), rows[i].echo);
        buf_release(&line);
        buf_release(&echo);
    }
}

static void a_line_may_have_any_length(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    struct buf line = {0}, echo = {0};
    for (size_t i = 0; i < N; i++) assert_int_equal(line_type(&line, &keys, 'x', &echo), LINE_GOES_ON);
    assert_int_equal(line_type(&line, &keys, '\n', &echo), LINE_WHOLE);
    assert_int_equal(line.len, N);
    assert_int_equal(echo.len, N + 1);
    buf_release(&line);
    buf_release(&echo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_edit_the_line),
        cmocka_unit_test(a_line_may_have_any_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
