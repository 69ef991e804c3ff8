/* Markdown on a terminal: the same however the text is cut, and nothing of the reply drives the terminal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/chat/output.h"

#include <string.h>

#define B "\033[1m"
#define C "\033[36m"
#define D "\033[2m"
#define P "\033[0m"

static const struct {
    const char *text, *shown;
} rows[] = {
    {"plain text\n", "plain text\n"},
    {"a **bold** word", "a " P B "bold" P " word"},
    {"# Title\ntext", B "Title" P "\ntext"},
    {"####### seven", "####### seven"},
    {"#hash", "#hash"},
    {"- one\n  * two\n+ three", "\xe2\x80\xa2 one\n  \xe2\x80\xa2 two\n\xe2\x80\xa2 three"},
    {"-5 degrees\n--\n-", "-5 degrees\n--\n-"},
    {"**bold** at the start", P B "bold" P " at the start"},
    {"2 ** 3 * 4", "2 ** 3 * 4"},
    {"never closed **bold\nnext", "never closed " P B "bold" P "\nnext"},
    {"`a ** b` and `c", P C "a ** b" P " and " P C "c" P},
    {"```c\n**x** # y\n- z\n```\nafter **b**", D "```c" P "\n" C "**x** # y\n- z\n" D "```" P "\nafter " P B "b" P},
    {"``` open\nx", D "``` open" P "\n" C "x" P},
    {"evil \033]0;title\a", "evil \\u001b]0;title\\u0007"},
    {"a\tb\r\nc", "a\tb\nc"},
    {"h\xc3\xa9llo **w\xc3\xb6rld**", "h\xc3\xa9llo " P B "w\xc3\xb6rld" P},
    {"", ""},
    {"\n\n   \n", "\n\n   \n"},
};

static void render(const char *text, size_t piece, struct buf *out)
{
    struct markdown state = {0};
    const size_t len = strlen(text);
    for (size_t at = 0, n; at < len; at += n) {
        n = at + piece < len ? piece : len - at;
        while (at + n < len && ((unsigned char)text[at + n] & 0xc0) == 0x80) n++; /* whole characters */
        markdown_put(&state, text + at, n, out);
    }
    markdown_end(&state, out);
}

static void marks_become_styles_and_control_characters_escapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf out = {0};
        render(rows[i].text, 1000, &out);
        assert_string_equal(buf_text(&out), rows[i].shown);
        buf_release(&out);
    }
}

static void pieces_make_no_difference(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf whole = {0};
        render(rows[i].text, 1000, &whole);
        for (size_t piece = 1; piece < 5; piece++) {
            struct buf out = {0};
            render(rows[i].text, piece, &out);
            assert_string_equal(buf_text(&out), buf_text(&whole));
            buf_release(&out);
        }
        buf_release(&whole);
    }
}

static void a_zero_byte_holds_nothing_up(void **state)
{
    (void)state;
    struct markdown markdown = {0};
    struct buf out = {0};
    markdown_put(&markdown, "a\0b", 3, &out);
    markdown_end(&markdown, &out);
    assert_string_equal(buf_text(&out), "a\\u0000b");
    buf_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(marks_become_styles_and_control_characters_escapes),
        cmocka_unit_test(pieces_make_no_difference),
        cmocka_unit_test(a_zero_byte_holds_nothing_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
