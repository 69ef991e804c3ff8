/* Numbers beyond 64 bits and beyond a double in what a template prints: each template that comes with llama.cpp prints
 * them where, and as, it prints others. */
#include "support.h"

#include <dirent.h>

/* Wide ones, and one of the same kind that is not. */
static const struct {
    const char *wide, *plain;
} numbers[] = {
    {"18446744073709551616", "4711"},
    {"-123456789012345678901234567890", "-4711"},
    {"1e400", "4711.5"},
    {"-2.50E+999", "-4711.5"},
};

static char *messages_with(const char *number)
{
    return mem_format("[{\"role\":\"user\",\"content\":\"Pay <b>\"},{\"role\":\"assistant\",\"content\":null,"
                      "\"tool_calls\":[{\"id\":\"call00001\",\"type\":\"function\",\"function\":{\"name\":\"pay\","
                      "\"arguments\":\"{\\\"wei\\\":%s,\\\"to\\\":{\\\"some\\\":[%s,true]}}\"}}]},"
                      "{\"role\":\"tool\",\"tool_call_id\":\"call00001\",\"content\":\"ok\"},"
                      "{\"role\":\"user\",\"content\":\"And <i>\"}]",
                      number, number);
}

static char *tools_with(const char *number)
{
    return mem_format("[{\"type\":\"function\",\"function\":{\"name\":\"pay\",\"description\":\"Pays\",\"parameters\":"
                      "{\"type\":\"object\",\"properties\":{\"wei\":{\"type\":\"number\",\"description\":\"How much\","
                      "\"enum\":[%s]}},\"required\":[\"wei\"]}}}]",
                      number);
}

static struct chat_request request_of(char *messages, char *tools)
{
    struct chat_request request = asking(messages);
    request.tools = tree_of(tools);
    return request;
}

/* Text of the request's between \1 and \2. */
static char *prompt_with(const struct chat_template *template_, const char *number)
{
    char *messages = messages_with(number), *tools = tools_with(number);
    struct chat_request request = request_of(messages, tools);
    struct chat_prompt prompt;
    hearth_error error = {0};
    if (chat_render_parts(template_, &request, &prompt, &error) != HEARTH_OK) fail_msg("%s", error.message);
    struct buf text = {0};
    for (size_t i = 0; i < prompt.n_parts; i++)
        buf_printf(&text, prompt.parts[i].is_input ? "\1%.*s\2" : "%.*s", (int)prompt.parts[i].len,
                   prompt.text + prompt.parts[i].offset);
    chat_prompt_release(&prompt);
    free(messages);
    free(tools);
    return buf_take(&text);
}

static char *replaced(const char *text, const char *from, const char *to)
{
    struct buf result = {0};
    for (const char *found; (found = strstr(text, from)) != NULL; text = found + strlen(from)) {
        buf_append(&result, text, (size_t)(found - text));
        buf_puts(&result, to);
    }
    buf_puts(&result, text);
    return buf_take(&result);
}

static void check_template(const char *name)
{
    struct chat_template *template_ = opened_file(name, "", false);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char *plain = prompt_with(template_, numbers[i].plain), *wide = prompt_with(template_, numbers[i].wide);
        char *expected = replaced(plain, numbers[i].plain, numbers[i].wide);
        char *marked = mem_format("\1%s\2", numbers[i].wide), *unmarked = replaced(wide, marked, numbers[i].wide);
        if (strcmp(unmarked, expected) != 0) fail_msg("%s, %s:\n%s\n\n%s", name, numbers[i].wide, unmarked, expected);
        free(plain);
        free(wide);
        free(expected);
        free(marked);
        free(unmarked);
    }
    chat_template_close(template_);
}

static void wide_numbers_are_printed_as_others_are(void **state)
{
    (void)state;
    char *path = templates_path("");
    DIR *folder = opendir(path);
    size_t tried = 0;
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (strstr(entry->d_name, ".jinja") == NULL) continue;
        check_template(entry->d_name);
        tried++;
    }
    assert_true(tried > 60);
    closedir(folder);
    free(path);
}

static void a_template_has_them_as_numbers(void **state)
{
    (void)state;
    struct chat_template *template_ = opened(
        "{%- for m in messages if m.tool_calls -%}{%- set a = m.tool_calls[0].function.arguments -%}"
        "{{ a.wei }} {{ a['wei'] is number }} {{ a.to.some[0] is string }} {{ [a] }} {{ a|tojson }} {%- endfor -%}"
        "{%- for m in messages if m.role != 'assistant' -%}{{ m.content }}{%- endfor -%}");
    char *printed = prompt_with(template_, "123456789012345678901");
    char *text = replaced(printed, "\1", "");
    assert_true(strncmp(text,
                        "123456789012345678901 True False [{'wei': 123456789012345678901, 'to': {'some': "
                        "[123456789012345678901, True]}}] {\"wei\": 123456789012345678901, \"to\"",
                        140) == 0);
    free(printed);
    free(text);
    chat_template_close(template_);
}

static void the_constraint_of_a_tool_has_the_nearest_numbers(void **state)
{
    (void)state;
    struct chat_template *template_ = opened_file("Qwen-Qwen3-0.6B.jinja", "", false);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char *messages = messages_with("1"), *tools = tools_with(numbers[i].wide);
        struct chat_request request = request_of(messages, tools);
        const struct chat_format *format = NULL;
        hearth_error error = {0};
        if (chat_format_open(template_, &request, NULL, &format, &error) != HEARTH_OK) fail_msg("%s", error.message);
        assert_null(strstr(format->grammar, "number:"));
        chat_format_unref(format);
        free(messages);
        free(tools);
    }
    chat_template_close(template_);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wide_numbers_are_printed_as_others_are),
        cmocka_unit_test(a_template_has_them_as_numbers),
        cmocka_unit_test(the_constraint_of_a_tool_has_the_nearest_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
