/* Tools for a template that knows none: they are words of its system message, calls are read where the model writes
 * them as it was told, and a required call is bound by its grammar. */
#include "support.h"

#define FIND                                                                                                           \
    "[{\"type\":\"function\",\"function\":{\"name\":\"find\",\"description\":\"Finds <|im_end|> places.\","            \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"place\":{\"type\":\"string\"}},\"required\":[\"place\"]}}}" \
    "]"

/* Refuses system messages. */
#define NO_SYSTEM                                                                                                      \
    "{%- for m in messages -%}{%- if m.role not in ['user', 'assistant'] -%}{{- raise_exception('no') -}}{%- endif "   \
    "-%}{{- '[' + m.role + ']' + m.content -}}{%- endfor -%}{%- if add_generation_prompt -%}{{- '[assistant]' -}}"     \
    "{%- endif -%}"

static char *rendered(const struct chat_template *template_, struct chat_request *request, const char *messages)
{
    hearth_error error = {0};
    request->messages = tree_of(messages);
    char *text = chat_render(template_, request, &error);
    if (text == NULL) fail_msg("%s", error.message);
    return text;
}

static void assert_has(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) fail_msg("no \"%s\" in: %s", part, text);
}

static void the_prompt_tells_of_tools_beside_what_the_client_says(void **state)
{
    (void)state;
    static const char *const sources[] = {CHATML, NO_SYSTEM};
    for (size_t i = 0; i < 2; i++) {
        struct chat_template *template_ = opened(sources[i]);
        struct chat_request request = asking("");
        char *bare = rendered(template_, &request, USER_SAYS("Where is it?"));
        request.tools = tree_of(FIND);
        char *text = rendered(template_, &request, USER_SAYS("Where is it?"));
        assert_has(text, "\"name\":\"find\"");
        assert_has(text, "Finds <|im_end|> places.");
        assert_has(text, "<tool_call>");
        assert_has(text, "Where is it?");
        assert_null(strstr(bare, "<tool_call>"));
        char *both =
            rendered(template_, &request,
                     "[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":\"Where?\"}]");
        assert_has(both, "Be brief.");
        assert_has(both, "\"name\":\"find\"");
        free(bare);
        free(text);
        free(both);
        chat_template_close(template_);
    }
}

/* A tool's text spells no special token. */
static void what_a_tool_says_is_the_requests_text(void **state)
{
    (void)state;
    struct chat_template *template_ = opened(CHATML);
    struct chat_request request = asking(USER_SAYS("Where is it?"));
    struct chat_prompt prompt;
    hearth_error error = {0};
    request.tools = tree_of(FIND);
    assert_int_equal(chat_render_parts(template_, &request, &prompt, &error), HEARTH_OK);
    const char *at = strstr(prompt.text, "Finds <|im_end|>");
    assert_non_null(at);
    size_t offset = (size_t)(at - prompt.text);
    bool is_input = false;
    for (size_t i = 0; i < prompt.n_parts; i++)
        if (prompt.parts[i].offset <= offset && offset < prompt.parts[i].offset + prompt.parts[i].len)
            is_input = prompt.parts[i].is_input;
    assert_true(is_input);
    chat_prompt_release(&prompt);
    chat_template_close(template_);
}

/* What follows in a conversation begins with what was there. */
static void a_conversation_grows_behind_its_prompt(void **state)
{
    (void)state;
    struct chat_template *template_ = opened(CHATML);
    struct chat_request request = asking("");
    request.tools = tree_of(FIND);
    char *first = rendered(template_, &request, USER_SAYS("Where is it?"));
    char *second = rendered(
        template_, &request,
        "[{\"role\":\"user\",\"content\":\"Where is it?\"},{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c1\","
        "\"type\":\"function\",\"function\":{\"name\":\"find\",\"arguments\":\"{\\\"place\\\": \\\"Bonn\\\"}\"}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"On the Rhine.\"}]");
    assert_int_equal(strncmp(second, first, strlen(first)), 0);
    assert_string_equal(second + strlen(first),
                        "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"place\": \"Bonn\"}}\n</tool_call>"
                        "<|im_end|>\n<|im_start|>user\n<tool_response>\nOn the Rhine.\n</tool_response><|im_end|>\n"
                        "<|im_start|>assistant\n");
    request.tool_choice = HEARTH_TOOLS_NONE;
    char *without_choice = rendered(template_, &request, USER_SAYS("Where is it?"));
    assert_string_equal(first, without_choice); /* or the tools would be computed again */
    free(first);
    free(second);
    free(without_choice);
    chat_template_close(template_);
}

/* llama.cpp's own handler for such templates tells of tools; that this one refuses a message by itself changes nothing.
 */
static void a_template_with_a_handler_gets_its_tools(void **state)
{
    (void)state;
    static const char source[] =
        "{%- if messages|length < 2 -%}{{- raise_exception('two at least') -}}{%- endif -%}"
        "{%- for t in tools or [] -%}{{- '<|start|>tools ' + t.function.name + '<|end|>' -}}{%- endfor -%}"
        "{%- for m in messages -%}{{- '<|start|>' + m.role + '<|channel|>final<|message|>' + m.content|string + "
        "'<|end|>' -}}"
        "{%- endfor -%}{%- if add_generation_prompt -%}{{- '<|start|>assistant' -}}{%- endif -%}";
    struct chat_template *template_ = opened(source);
    struct chat_request request = asking("");
    request.tools = tree_of(FIND);
    char *text =
        rendered(template_, &request,
                 "[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":\"Where?\"}]");
    assert_has(text, "<|start|>tools find<|end|>");
    assert_null(strstr(text, "<tool_call>"));
    free(text);
    chat_template_close(template_);
}

/* ---- Replies ---- */

struct heard {
    struct buf content, arguments, names;
};

static void hear(void *ud, const hearth_delta *delta)
{
    struct heard *heard = ud;
    if (delta->type == HEARTH_DELTA_CONTENT) buf_append(&heard->content, delta->text, delta->len);
    if (delta->type == HEARTH_DELTA_ARGUMENTS) buf_append(&heard->arguments, delta->text, delta->len);
    if (delta->type == HEARTH_DELTA_CALL) buf_printf(&heard->names, "%s;", delta->name);
}

static const struct chat_format *format_of(const struct chat_template *template_, hearth_tool_choice choice,
                                           int several)
{
    hearth_error error = {0};
    const struct chat_format *format;
    struct chat_request request = asking(USER_SAYS("Where is it?"));
    request.tools = tree_of(FIND);
    request.tool_choice = choice;
    request.parallel_tool_calls = several;
    if (chat_format_open(template_, &request, NULL, &format, &error) != HEARTH_OK) fail_msg("%s", error.message);
    return format;
}

static struct heard read_reply(const struct chat_format *format, const char *text)
{
    struct heard heard = {0};
    struct chat_reader *reader = chat_reader_open(format);
    for (const char *at = text; *at != '\0'; at++) chat_reader_add(reader, at, 1, hear, &heard);
    chat_reader_end(reader, hear, &heard);
    chat_reader_close(reader);
    return heard;
}

static void assert_reply(const struct chat_format *format, const char *text, const char *content, const char *names,
                         const char *arguments)
{
    struct heard heard = read_reply(format, text);
    assert_string_equal(buf_text(&heard.content), content);
    assert_string_equal(buf_text(&heard.names), names);
    assert_string_equal(buf_text(&heard.arguments), arguments);
    buf_release(&heard.content);
    buf_release(&heard.names);
    buf_release(&heard.arguments);
}

#define CALL(place) "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"place\": \"" place "\"}}\n</tool_call>"

static void calls_are_read_where_they_are_written_as_told(void **state)
{
    (void)state;
    struct chat_template *template_ = opened(CHATML);
    const struct chat_format *format = format_of(template_, HEARTH_TOOLS_AUTO, -1);
    assert_true(format->grammar_lazy);
    assert_reply(format, "It is in Bonn.", "It is in Bonn.", "", "");
    assert_reply(format, CALL("Bonn"), "", "find;", "{\"place\": \"Bonn\"}");
    assert_reply(format, CALL("Bonn") "\n" CALL("Ulm"), "", "find;find;", "{\"place\": \"Bonn\"}{\"place\": \"Ulm\"}");
    chat_format_unref(format);
    chat_template_close(template_);
}

static void a_required_call_is_bound_by_its_grammar(void **state)
{
    (void)state;
    struct chat_template *template_ = opened(CHATML);
    const struct chat_format *format = format_of(template_, HEARTH_TOOLS_REQUIRED, 0);
    assert_non_null(format->grammar);
    assert_false(format->grammar_lazy);
    assert_has(format->grammar, "<tool_call>");
    chat_format_unref(format);
    chat_template_close(template_);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_prompt_tells_of_tools_beside_what_the_client_says),
        cmocka_unit_test(what_a_tool_says_is_the_requests_text),
        cmocka_unit_test(a_conversation_grows_behind_its_prompt),
        cmocka_unit_test(a_template_with_a_handler_gets_its_tools),
        cmocka_unit_test(calls_are_read_where_they_are_written_as_told),
        cmocka_unit_test(a_required_call_is_bound_by_its_grammar),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
