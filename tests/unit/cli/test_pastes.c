/* Pasted text in a typed line: what is shown for it, and what the message gets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/chat/input.h"

#include <string.h>

static void line_ends_are_one_kind_and_control_characters_go(void **state)
{
    (void)state;
    static const char *const rows[][2] = {{"a\nb", "a\nb"},
                                          {"a\rb", "a\nb"},
                                          {"a\n\rb", "a\nb"},
                                          {"a\n\r\n\rb", "a\n\nb"},
                                          {"a\r\rb", "a\n\nb"},
                                          {"a\tb", "a\tb"},
                                          {"\033[31mred\x7f", "[31mred"},
                                          {"\xc3\xa9\xff", "\xc3\xa9\xef\xbf\xbd"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf out = {0};
        pastes_clean(&out, rows[i][0], strlen(rows[i][0]));
        assert_string_equal(buf_text(&out), rows[i][1]);
        buf_release(&out);
    }
}

static const char *add(struct pastes *pastes, const char *text)
{
    struct buf buf = {0};
    static char shown[512];
    buf_puts(&buf, text);
    strncpy(shown, pastes_add(pastes, &buf), sizeof shown - 1);
    buf_release(&buf);
    return shown;
}

static void short_text_is_shown_as_it_is(void **state)
{
    (void)state;
    struct pastes pastes = {0};
    assert_string_equal(add(&pastes, "just a [word]"), "just a [word]");
    assert_int_equal(pastes.n, 0);
    pastes_release(&pastes);
}

static void a_label_stands_for_its_text_until_it_is_edited(void **state)
{
    (void)state;
    struct pastes pastes = {0};
    struct buf out = {0};
    char long_text[1001];
    memset(long_text, 'x', 1000);
    long_text[1000] = '\0';
    assert_string_equal(add(&pastes, "one\ntwo [\n"), "[paste 1: 10 bytes, 2 lines]");
    assert_string_equal(add(&pastes, long_text), "[paste 2: 1000 bytes, 1 line]");
    pastes_expand(&pastes, "a [paste 1: 10 bytes, 2 lines] b [[paste 1: 9 bytes] [paste 2: 1000 bytes, 1 line]", &out);
    assert_memory_equal(out.v, "a one\ntwo [\n b [[paste 1: 9 bytes] xxx", 38);
    assert_int_equal(out.len, 35 + 1000);
    buf_release(&out);
    pastes_release(&pastes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(line_ends_are_one_kind_and_control_characters_go),
        cmocka_unit_test(short_text_is_shown_as_it_is),
        cmocka_unit_test(a_label_stands_for_its_text_until_it_is_edited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
