/* Renderings that are given up: in every template of llama.cpp's, and in every form of a loop. */
#include "support.h"

#include <dirent.h>

#define TURNS 60

/* Gives up at the question after so many. */
struct asked {
    int n, most;
};

static bool count(void *ud)
{
    struct asked *asked = ud;
    return asked->n++ == asked->most;
}

static char *conversation(void)
{
    struct buf text = {0};
    buf_puts(&text, "[");
    for (int i = 0; i < TURNS; i++)
        buf_printf(&text, "%s{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"}",
                   i > 0 ? "," : "");
    buf_puts(&text, ",{\"role\":\"user\",\"content\":\"c\"}]");
    return buf_take(&text);
}

/* The questions in a whole rendering. */
static int questions(const struct chat_template *template_, struct chat_request request)
{
    hearth_error error = {0};
    struct asked asked = {.most = -1};
    struct chat_stop stop = {count, &asked};
    struct chat_prompt prompt;
    request.stop = &stop;
    if (chat_render_parts(template_, &request, &prompt, &error) != HEARTH_OK) fail_msg("%s", error.message);
    chat_prompt_release(&prompt);
    return asked.n;
}

/* Nothing is asked any more once it has been given up, and the error is not the template's. */
static void assert_given_up(const struct chat_template *template_, struct chat_request request, int most)
{
    hearth_error error = {0};
    struct asked asked = {.most = most};
    struct chat_stop stop = {count, &asked};
    struct chat_prompt prompt;
    request.stop = &stop;
    assert_int_equal(chat_render_parts(template_, &request, &prompt, &error), HEARTH_CANCELLED);
    assert_int_equal(asked.n, most + 1);
    assert_null(prompt.text);
}

static void every_template_asks_at_each_message(void **state)
{
    (void)state;
    char *folder = templates_path(""), *messages = conversation();
    struct dirent **entries;
    int n = scandir(folder, &entries, NULL, alphasort), tried = 0;
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        if (strstr(entries[i]->d_name, ".jinja") != NULL) {
            struct chat_template *template_ = opened_file(entries[i]->d_name, "<s>", false);
            int asked = questions(template_, asking(messages));
            if (asked < TURNS) fail_msg("%s: %d questions", entries[i]->d_name, asked);
            for (int most = 0; most < 6; most++) assert_given_up(template_, asking(messages), most * asked / 6);
            chat_template_close(template_);
            tried++;
        }
        free(entries[i]);
    }
    assert_true(tried > 60);
    free(entries);
    free(folder);
    free(messages);
}

static void each_form_of_a_loop_asks(void **state)
{
    static const char *const sources[] = {
        "{% for i in range(100) %}a{% endfor %}",
        "{% for i in range(10) if i > 0 %}{% for j in range(11) %}a{% endfor %}{% endfor %}",
        "{% if messages %}{% for i in range(100) %}a{% endfor %}{% endif %}",
        "{% if not messages %}b{% else %}{% for i in range(100) %}a{% endfor %}{% endif %}",
        "{% if not messages %}b{% elif messages %}{% for i in range(100) %}a{% endfor %}{% endif %}",
        "{% for i in [] %}b{% else %}{% for i in range(100) %}a{% endfor %}{% endfor %}",
        "{% set x %}{% for i in range(100) %}a{% endfor %}{% endset %}{{ x }}",
        "{% filter upper %}{% for i in range(100) %}a{% endfor %}{% endfilter %}",
        "{% macro f(n) %}{% if n > 0 %}a{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(100) }}",
        "{% macro f() %}{{ caller() }}{% endmacro %}{% call f() %}{% for i in range(100) %}a{% endfor %}{% endcall %}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        char *source = mem_format("%s{{ messages[0].content }}", sources[i]);
        struct chat_template *template_ = opened(source);
        free(source);
        int asked = questions(template_, asking(USER_SAYS("a")));
        if (asked < 100) fail_msg("%s: %d questions", sources[i], asked);
        assert_given_up(template_, asking(USER_SAYS("a")), 50);
        chat_template_close(template_);
    }
}

/* What the reply's format renders once more. */
static void so_does_the_format_of_the_reply(void **state)
{
    (void)state;
    char *messages = conversation();
    struct chat_template *template_ = opened(CHATML);
    struct asked asked = {.most = 10};
    struct chat_stop stop = {count, &asked};
    struct chat_request request = asking(messages);
    const struct chat_format *format;
    request.stop = &stop;
    assert_int_equal(chat_format_open(template_, &request, NULL, &format, NULL), HEARTH_CANCELLED);
    assert_null(format);
    assert_int_equal(asked.n, 11);
    chat_template_close(template_);
    free(messages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_template_asks_at_each_message),
        cmocka_unit_test(each_form_of_a_loop_asks),
        cmocka_unit_test(so_does_the_format_of_the_reply),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
