/* Parsing of a chat's fields: tools, reasoning, output constraints and logprobs. */
#include "json_trees.h"
#include "serve/fields/fields.h"

#include "base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define CHAT "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]"

static int read_with(struct fields *fields, int route, const char *members, hearth_error *error)
{
    struct buf body = {0};
    *error = (hearth_error){0};
    buf_printf(&body, "{%s,%s}", members, route == FIELDS_COMPLETION ? "\"prompt\":\"Hi\"" : CHAT);
    int rc = fields_read(fields, route, body.v, body.len, error);
    buf_release(&body);
    return rc;
}

static struct fields chat_with(const char *members)
{
    struct fields fields;
    hearth_error error;
    if (read_with(&fields, FIELDS_CHAT, members, &error) != HEARTH_OK) fail_msg("%s: %s", members, error.message);
    return fields;
}

struct refused {
    int route;
    const char *members, *param;
};

static void assert_refused(const struct refused *row, hearth_code code)
{
    struct fields fields;
    hearth_error error;
    int rc = read_with(&fields, row->route, row->members, &error);
    if (rc == HEARTH_OK) fields_release(&fields);
    if (rc != (int)code || strcmp(error.param, row->param) != 0)
        fail_msg("%s: code %d, param '%s', message '%s'", row->members, rc, error.param, error.message);
}

static void tools_and_their_choice_are_handed_on(void **state)
{
    (void)state;
    struct fields f = chat_with("\"tools\":[{\"type\":\"function\"}],\"tool_choice\":\"required\","
                                "\"parallel_tool_calls\":false");
    assert_string_equal(text_of_json(f.params.tools), "[{\"type\":\"function\"}]");
    assert_int_equal(f.params.tool_choice, HEARTH_TOOLS_REQUIRED);
    assert_null(f.params.allowed_tools);
    assert_int_equal(f.params.parallel_tool_calls, 0);
    fields_release(&f);
    f = chat_with("\"tools\":[],\"tool_choice\":\"none\"");
    assert_null(f.params.tools);
    assert_int_equal(f.params.tool_choice, HEARTH_TOOLS_NONE);
    assert_int_equal(f.params.parallel_tool_calls, -1);
    fields_release(&f);
    static const char *const named[] = {"{\"type\":\"function\",\"function\":{\"name\":\"look\"}}",
                                        "{\"type\":\"function\",\"name\":\"look\"}"};
    for (size_t i = 0; i < 2; i++) {
        struct buf members = {0};
        buf_printf(&members, "\"tool_choice\":%s", named[i]);
        f = chat_with(members.v);
        assert_int_equal(f.params.tool_choice, HEARTH_TOOLS_REQUIRED);
        assert_string_equal(text_of_json(f.params.allowed_tools), "[\"look\"]");
        fields_release(&f);
        buf_release(&members);
    }
}

#define TOOL(name) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\"}}"
#define ALLOWED(mode, tools)                                                                                           \
    "\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":" mode ",\"tools\":" tools "}}"

static void some_of_the_tools_may_be_allowed(void **state)
{
    (void)state;
    struct fields f = chat_with("\"tools\":[" TOOL("a") "," TOOL("b") "," TOOL("c") "]," ALLOWED(
        "\"auto\"", "[" TOOL("c") ",{\"type\":\"function\",\"name\":\"a\"}]"));
    assert_int_equal(f.params.tool_choice, HEARTH_TOOLS_AUTO);
    assert_string_equal(text_of_json(f.params.allowed_tools), "[\"c\",\"a\"]");
    assert_string_equal(text_of_json(f.params.tools),
                        "[" TOOL("a") "," TOOL("b") "," TOOL("c") "]"); /* the prompt has all tools */
    fields_release(&f);
    f = chat_with(ALLOWED("\"required\"", "[" TOOL("a") "]"));
    assert_int_equal(f.params.tool_choice, HEARTH_TOOLS_REQUIRED);
    fields_release(&f);
}

static void tools_of_other_types_are_left_out_and_so_is_their_choice(void **state)
{
    (void)state;
#define OTHER "{\"type\":\"web_search\",\"web_search\":{\"name\":\"b\"}}"
    static const struct {
        const char *members, *tools, *left_out;
        hearth_tool_choice choice;
        const char *allowed;
    } rows[] = {
        {"\"tools\":[" OTHER "," TOOL("a") "," OTHER "],\"tool_choice\":" OTHER, "[" TOOL("a") "]",
         "tools[0], tools[2]", HEARTH_TOOLS_AUTO, NULL},
        {"\"tools\":[" OTHER "],\"tool_choice\":\"required\"", NULL, "tools[0]", HEARTH_TOOLS_AUTO, NULL},
        {"\"tools\":[" OTHER "],\"tool_choice\":\"none\"", NULL, "tools[0]", HEARTH_TOOLS_NONE, NULL},
        {"\"tools\":[" OTHER "," TOOL("a") "],\"tool_choice\":\"required\"", "[" TOOL("a") "]", "tools[0]",
         HEARTH_TOOLS_REQUIRED, NULL},
        {"\"tools\":[" OTHER "," TOOL("a") "]," ALLOWED("\"required\"", "[" OTHER "," TOOL("a") "]"), "[" TOOL("a") "]",
         "tools[0]", HEARTH_TOOLS_REQUIRED, "[\"a\"]"},
        {"\"tools\":[" OTHER "," TOOL("a") "]," ALLOWED("\"required\"", "[" OTHER "]"), "[" TOOL("a") "]", "tools[0]",
         HEARTH_TOOLS_NONE, NULL},
        {"\"tools\":[{\"function\":{}}]", "[{\"function\":{}}]", "", HEARTH_TOOLS_AUTO, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fields f = chat_with(rows[i].members);
        if (rows[i].tools == NULL) assert_null(f.params.tools);
        if (rows[i].tools != NULL) assert_string_equal(text_of_json(f.params.tools), rows[i].tools);
        assert_string_equal(f.left_out.names, rows[i].left_out);
        assert_int_equal(f.params.tool_choice, rows[i].choice);
        if (rows[i].allowed == NULL) assert_null(f.params.allowed_tools);
        if (rows[i].allowed != NULL) assert_string_equal(text_of_json(f.params.allowed_tools), rows[i].allowed);
        fields_release(&f);
    }
#undef OTHER
}

#define INPUT(more)                                                                                                    \
    "{\"type\":\"object\",\"properties\":{\"input\":{\"type\":\"string\"" more                                         \
    "}},\"required\":[\"input\"],\"additionalProperties\":false}"
#define BECOMES(name, description, more)                                                                               \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"description\":\"" description                        \
    "\",\"parameters\":" INPUT(more) "}}"

static void custom_tools_become_functions_of_one_text(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"{\"name\":\"b\"}", BECOMES("b", "", "")},
        {"{\"name\":\"b\",\"description\":\"Runs.\",\"format\":{\"type\":\"text\"}}", BECOMES("b", "Runs.", "")},
        {"{\"name\":\"b\",\"description\":\"Runs.\",\"format\":{\"type\":\"grammar\",\"grammar\":{\"syntax\":\"lark\","
         "\"definition\":\"start: A\"}}}",
         BECOMES("b", "Runs.\\n\\nThe input must match this lark grammar:\\nstart: A", "")},
        {"{\"name\":\"b\",\"format\":{\"type\":\"grammar\",\"grammar\":{\"syntax\":\"regex\",\"definition\":\"a|b\"}}}",
         BECOMES("b", "The input must match this regex grammar:\\na|b", ",\"pattern\":\"^(?:a|b)$\"")},
        {"{\"name\":\"b\",\"format\":{\"type\":\"grammar\",\"grammar\":{\"syntax\":\"regex\",\"definition\":\"^(a|b)$"
         "\"}}}",
         BECOMES("b", "The input must match this regex grammar:\\n^(a|b)$", ",\"pattern\":\"^(a|b)$\"")},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf members = {0}, tools = {0};
        buf_printf(&members,
                   "\"tools\":[" TOOL("a") ",{\"type\":\"custom\",\"custom\":%s}],\"tool_choice\":{\"type\":"
                                           "\"custom\",\"custom\":{\"name\":\"b\"}}",
                   rows[i][0]);
        buf_printf(&tools, "[" TOOL("a") ",%s]", rows[i][1]);
        struct fields f = chat_with(members.v);
        assert_string_equal(text_of_json(f.params.tools), tools.v);
        assert_string_equal(text_of_json(f.params.allowed_tools), "[\"b\"]");
        assert_int_equal(f.params.tool_choice, HEARTH_TOOLS_REQUIRED);
        assert_int_equal(json_array_size(f.custom_tools), 1);
        assert_string_equal(f.left_out.names, "");
        fields_release(&f);
        buf_release(&members);
        buf_release(&tools);
    }
    struct fields f = chat_with("\"tools\":[" TOOL("a") ",{\"type\":\"custom\",\"custom\":{\"name\":\"b\"}}]," ALLOWED(
        "\"auto\"", "[{\"type\":\"custom\",\"custom\":{\"name\":\"b\"}}]"));
    assert_string_equal(text_of_json(f.params.allowed_tools), "[\"b\"]");
    fields_release(&f);
}

#define FUNCTION "{\"name\":\"look\",\"parameters\":{\"type\":\"object\"}}"

static void functions_are_tools(void **state)
{
    (void)state;
    struct fields f = chat_with("\"functions\":[" FUNCTION "],\"parallel_tool_calls\":true");
    assert_string_equal(text_of_json(f.params.tools), "[{\"type\":\"function\",\"function\":" FUNCTION "}]");
    assert_true(f.has_functions);
    assert_int_equal(f.params.parallel_tool_calls, 0);
    fields_release(&f);
    static const struct {
        const char *call;
        hearth_tool_choice choice;
        const char *names;
    } calls[] = {{"\"none\"", HEARTH_TOOLS_NONE, NULL},
                 {"\"auto\"", HEARTH_TOOLS_AUTO, NULL},
                 {"{\"name\":\"look\"}", HEARTH_TOOLS_REQUIRED, "[\"look\"]"}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct buf members = {0};
        buf_printf(&members, "\"functions\":[" FUNCTION "],\"function_call\":%s", calls[i].call);
        f = chat_with(members.v);
        assert_int_equal(f.params.tool_choice, calls[i].choice);
        if (calls[i].names != NULL) assert_string_equal(text_of_json(f.params.allowed_tools), calls[i].names);
        fields_release(&f);
        buf_release(&members);
    }
    f = chat_with("\"tools\":[" TOOL("a") "],\"functions\":[" FUNCTION "]");
    assert_string_equal(text_of_json(f.params.tools), "[" TOOL("a") "]");
    assert_false(f.has_functions);
    fields_release(&f);
    f = chat_with("\"functions\":[]");
    assert_null(f.params.tools);
    assert_false(f.has_functions);
    fields_release(&f);
}

static void messages_of_functions_become_those_of_tools(void **state)
{
    (void)state;
    static const char body[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},"
        "{\"role\":\"assistant\",\"content\":null,\"function_call\":{\"name\":\"a\",\"arguments\":\"{}\"}},"
        "{\"role\":\"function\",\"name\":\"a\",\"content\":\"1\"},"
        "{\"role\":\"assistant\",\"content\":\"x\",\"function_call\":null},"
        "{\"role\":\"assistant\",\"content\":null,\"function_call\":{\"name\":\"b\",\"arguments\":\"{}\"}},"
        "{\"role\":\"function\",\"name\":\"b\",\"content\":\"2\"}]}";
    static const char expected[] =
        "[{\"role\":\"user\",\"content\":\"Hi\"},"
        "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"call00001\",\"type\":\"function\","
        "\"function\":{\"name\":\"a\",\"arguments\":\"{}\"}}]},"
        "{\"role\":\"tool\",\"name\":\"a\",\"content\":\"1\",\"tool_call_id\":\"call00001\"},"
        "{\"role\":\"assistant\",\"content\":\"x\",\"function_call\":null},"
        "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"call00002\",\"type\":\"function\","
        "\"function\":{\"name\":\"b\",\"arguments\":\"{}\"}}]},"
        "{\"role\":\"tool\",\"name\":\"b\",\"content\":\"2\",\"tool_call_id\":\"call00002\"}]";
    struct fields f;
    hearth_error error;
    assert_int_equal(fields_read(&f, FIELDS_CHAT, body, sizeof body - 1, &error), HEARTH_OK);
    assert_string_equal(text_of_json(f.params.messages), expected);
    fields_release(&f);
}

static void history_is_not_judged(void **state)
{
    (void)state;
    /* Messages, what is handed on of them, and what is left out. What the user asks is handed on, to be refused. */
    static const char *const rows[][3] = {
        {"{\"role\":\"user\",\"content\":[{\"type\":\"smell\",\"data\":\"x\"},{\"type\":\"text\",\"text\":\"a\"}]},{"
         "\"role\":\"assistant\",\"content\":\"b\"},{\"role\":\"user\",\"content\":\"?\"}",
         "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]},{\"role\":\"assistant\",\"content\":"
         "\"b\"},{\"role\":\"user\",\"content\":\"?\"}",
         "messages[0].content[0]"},
        {"{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\"}]},{\"role\":\"assistant\","
         "\"content\":[{\"type\":\"smell\"}]},{\"role\":\"user\",\"content\":\"?\"}",
         "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]},{\"role\":\"assistant\",\"content\":"
         "\"\"},{\"role\":\"user\",\"content\":\"?\"}",
         "messages[1].content[0]"},
        {"{\"role\":\"user\",\"content\":[{\"type\":\"file\",\"file\":{\"file_id\":\"f\"}}]},{\"role\":\"assistant\","
         "\"content\":\"b\"},{\"role\":\"user\",\"content\":\"?\"}",
         "{\"role\":\"user\",\"content\":\"\"},{\"role\":\"assistant\",\"content\":\"b\"},{\"role\":\"user\","
         "\"content\":\"?\"}",
         "messages[0].content[0]"},
        {"{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c\",\"type\":\"custom\",\"custom\":{"
         "\"name\":\"n\",\"input\":\"a \\\"b\\\"\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"d\"}",
         "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"type\":\"function\",\"function\":{\"name\":\"n\","
         "\"arguments\":\"{\\\"input\\\":\\\"a "
         "\\\\\\\"b\\\\\\\"\\\"}\"},\"id\":\"c\"}]},{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"d\"}",
         ""},
        {"{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"wish\"},{\"id\":\"e\","
         "\"type\":\"function\",\"function\":{\"name\":\"n\",\"arguments\":\"not "
         "json\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"d\"},{\"role\":\"tool\",\"tool_call_id\":"
         "\"e\",\"content\":\"f\"}",
         "{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":[{\"id\":\"e\",\"type\":\"function\",\"function\":{"
         "\"name\":\"n\",\"arguments\":\"not json\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"e\",\"content\":\"f\"}",
         "messages[0].tool_calls[0], messages[1]"},
        {"{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"wish\"}]},{\"role\":"
         "\"user\",\"content\":\"?\"}",
         "{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"?\"}",
         "messages[0].tool_calls[0]"},
        {"{\"role\":\"assistant\",\"content\":null,\"refusal\":\"no\"},{\"role\":\"user\",\"content\":\"?\"}",
         "{\"role\":\"assistant\",\"content\":\"no\",\"refusal\":\"no\"},{\"role\":\"user\",\"content\":\"?\"}", ""},
        {"{\"role\":\"assistant\",\"audio\":{\"id\":\"x\"}},{\"role\":\"user\",\"content\":\"?\"}",
         "{\"role\":\"assistant\",\"audio\":{\"id\":\"x\"}},{\"role\":\"user\",\"content\":\"?\"}",
         "messages[0].audio"},
        {"{\"role\":\"assistant\",\"content\":null,\"audio\":{\"id\":\"x\",\"transcript\":\"hm\"}},{\"role\":\"user\","
         "\"content\":\"?\"}",
         "{\"role\":\"assistant\",\"content\":\"hm\",\"audio\":{\"id\":\"x\",\"transcript\":\"hm\"}},{\"role\":"
         "\"user\",\"content\":\"?\"}",
         ""},
        {"{\"role\":\"user\",\"content\":[{\"type\":\"smell\",\"data\":\"x\"}]}",
         "{\"role\":\"user\",\"content\":[{\"type\":\"smell\"}]}", ""},
        {"{\"role\":\"system\",\"content\":[{\"type\":\"smell\"}]},{\"role\":\"user\",\"content\":\"?\"}",
         "{\"role\":\"system\",\"content\":[{\"type\":\"smell\"}]},{\"role\":\"user\",\"content\":\"?\"}", ""},
        {"{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]},{\"role\":\"tool\",\"tool_call_id\":"
         "\"c\",\"content\":[{\"type\":\"smell\"}]}",
         "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]},{\"role\":\"tool\",\"tool_call_id\":"
         "\"c\",\"content\":\"\"}",
         "messages[1].content[0]"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fields f;
        hearth_error error;
        struct buf body = {0}, expected = {0};
        buf_printf(&body, "{\"messages\":[%s]}", rows[i][0]);
        buf_printf(&expected, "[%s]", rows[i][1]);
        assert_int_equal(fields_read(&f, FIELDS_CHAT, body.v, body.len, &error), HEARTH_OK);
        assert_string_equal(text_of_json(f.params.messages), expected.v);
        if (strcmp(f.left_out.names, rows[i][2]) != 0) fail_msg("%s: %s", body.v, f.left_out.names);
        fields_release(&f);
        buf_release(&body);
        buf_release(&expected);
    }
}

static void thinking_is_read_in_the_forms_of_other_services(void **state)
{
    (void)state;
    static const struct {
        const char *members, *kwargs;
        int32_t tokens;
        bool hides;
    } rows[] = {
        {"\"reasoning\":{\"effort\":\"high\"}", "{\"reasoning_effort\":\"high\"}", -1, false},
        {"\"reasoning\":{\"effort\":\"none\",\"summary\":\"auto\"}", "{\"enable_thinking\":false}", -1, false},
        {"\"reasoning\":{\"enabled\":true,\"max_tokens\":50}", "{\"enable_thinking\":true}", 50, false},
        {"\"reasoning\":{\"exclude\":true,\"effort\":null}", NULL, -1, true},
        {"\"thinking\":{\"type\":\"disabled\",\"budget_tokens\":9}", "{\"enable_thinking\":false}", -1, false},
        {"\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":9}", "{\"enable_thinking\":true}", 9, false},
        {"\"thinking\":{\"type\":\"auto\"}", "{\"enable_thinking\":true}", -1, false},
        {"\"thinking\":{\"type\":\"enabled\"},\"enable_thinking\":false", "{\"enable_thinking\":false}", -1, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fields f = chat_with(rows[i].members);
        if (rows[i].kwargs == NULL)
            assert_null(f.params.template_kwargs);
        else
            assert_string_equal(text_of_json(f.params.template_kwargs), rows[i].kwargs);
        assert_int_equal(f.params.thinking_tokens, rows[i].tokens);
        assert_int_equal(f.hides_reasoning, rows[i].hides);
        fields_release(&f);
    }
}

static void several_fields_set_arguments_of_the_template(void **state)
{
    (void)state;
    struct fields f = chat_with("\"chat_template_kwargs\":{\"a\":1},\"reasoning_effort\":\"high\"");
    assert_string_equal(text_of_json(f.params.template_kwargs), "{\"a\":1,\"reasoning_effort\":\"high\"}");
    fields_release(&f);
    f = chat_with("\"reasoning_effort\":\"none\"");
    assert_string_equal(text_of_json(f.params.template_kwargs), "{\"enable_thinking\":false}");
    fields_release(&f);
    f = chat_with("\"enable_thinking\":true,\"reasoning_format\":\"none\",\"reasoning_budget_tokens\":7");
    assert_string_equal(text_of_json(f.params.template_kwargs), "{\"enable_thinking\":true}");
    assert_true(f.params.reasoning_in_text);
    assert_int_equal(f.params.thinking_tokens, 7);
    fields_release(&f);
    f = chat_with("\"reasoning_format\":\"deepseek\",\"add_generation_prompt\":false,"
                  "\"continue_final_message\":\"reasoning_content\"");
    assert_false(f.params.reasoning_in_text);
    assert_false(f.params.no_generation_prompt);
    assert_int_equal(f.params.continue_final, HEARTH_CONTINUE_REASONING);
    fields_release(&f);
    f = chat_with("\"reasoning_format\":\"deepseek\",\"add_generation_prompt\":false,"
                  "\"continue_final_message\":false");
    assert_int_equal(f.params.continue_final, HEARTH_CONTINUE_NEVER);
    assert_true(f.params.no_generation_prompt);
    fields_release(&f);
    fields_release(&f);
}

static void a_schema_is_read_in_three_forms(void **state)
{
    (void)state;
    static const struct {
        const char *members, *schema;
    } rows[] = {
        {"\"json_schema\":{\"type\":\"integer\"}", "{\"type\":\"integer\"}"},
        {"\"json_schema\":{}", "{\"type\":\"object\"}"},
        {"\"response_format\":{\"type\":\"json_object\"}", "{\"type\":\"object\"}"},
        {"\"response_format\":{\"type\":\"json_object\",\"schema\":{\"type\":\"array\"}}", "{\"type\":\"array\"}"},
        {"\"json_schema\":{\"type\":\"null\"},\"response_format\":{\"type\":\"json_object\"}", "{\"type\":\"null\"}"},
        {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"strict\":true,"
         "\"schema\":{\"type\":\"string\"}}}",
         "{\"type\":\"string\"}"},
        {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\"}}", "{\"type\":\"object\"}"},
        {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"schema\":null}}",
         "{\"type\":\"object\"}"},
        {"\"response_format\":{\"type\":\"text\"}", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fields f = chat_with(rows[i].members);
        if (rows[i].schema == NULL)
            assert_null(f.params.json_schema);
        else
            assert_string_equal(text_of_json(f.params.json_schema), rows[i].schema);
        fields_release(&f);
    }
    struct fields f = chat_with("\"grammar\":\"\",\"json_schema\":{\"type\":\"null\"}");
    assert_null(f.params.grammar);
    fields_release(&f);
}

static void logprobs_are_only_computed_where_requested(void **state)
{
    (void)state;
    static const struct {
        int route;
        const char *members;
        int top;
    } rows[] = {
        {FIELDS_CHAT, "\"logprobs\":false", -1},
        {FIELDS_CHAT, "\"logprobs\":true", 0},
        {FIELDS_CHAT, "\"logprobs\":true,\"top_logprobs\":5", 5},
        {FIELDS_CHAT, "\"top_logprobs\":2", 2},
        {FIELDS_CHAT, "\"logprobs\":true,\"top_logprobs\":100", 100},
        {FIELDS_CHAT, "\"top_logprobs\":0", -1},
        {FIELDS_CHAT, "\"logprobs\":false,\"top_logprobs\":0", -1},
        {FIELDS_CHAT, "\"n_probs\":20", 20},
        {FIELDS_CHAT, "\"n_probs\":0", -1},
        {FIELDS_COMPLETION, "\"logprobs\":0", 0},
        {FIELDS_COMPLETION, "\"logprobs\":5", 5},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fields f;
        hearth_error error;
        if (read_with(&f, rows[i].route, rows[i].members, &error) != HEARTH_OK) fail_msg("%s", error.message);
        if (f.params.top_logprobs != rows[i].top) fail_msg("%s: %d", rows[i].members, f.params.top_logprobs);
        fields_release(&f);
    }
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    static const struct refused rows[] = {
        {FIELDS_CHAT, "\"tools\":{}", "tools"},
        {FIELDS_CHAT, "\"tools\":\"x\"", "tools"},
        {FIELDS_CHAT, "\"tool_choice\":\"maybe\"", "tool_choice"},
        {FIELDS_CHAT, "\"tool_choice\":1", "tool_choice"},
        {FIELDS_CHAT, "\"tool_choice\":{\"type\":\"function\"}", "tool_choice.function.name"},
        {FIELDS_CHAT, "\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":1}}", "tool_choice.function.name"},
        {FIELDS_CHAT, ALLOWED("\"none\"", "[" TOOL("a") "]"), "tool_choice.allowed_tools.mode"},
        {FIELDS_CHAT, ALLOWED("\"auto\"", "[]"), "tool_choice.allowed_tools.tools"},
        {FIELDS_CHAT, ALLOWED("\"auto\"", "[{}]"), "tool_choice.allowed_tools.tools"},
        {FIELDS_CHAT, "\"functions\":{}", "functions"},
        {FIELDS_CHAT, "\"functions\":[" FUNCTION ",{}]", "functions[1].name"},
        {FIELDS_CHAT, "\"functions\":[{\"name\":\"a\",\"parameters\":[]}]", "functions[0].parameters"},
        {FIELDS_CHAT, "\"function_call\":\"required\"", "function_call"},
        {FIELDS_CHAT, "\"function_call\":{}", "function_call"},
        {FIELDS_CHAT, "\"reasoning\":true", "reasoning"},
        {FIELDS_CHAT, "\"reasoning\":{\"effort\":1}", "reasoning.effort"},
        {FIELDS_CHAT, "\"reasoning\":{\"enabled\":1}", "reasoning.enabled"},
        {FIELDS_CHAT, "\"reasoning\":{\"max_tokens\":-1}", "reasoning.max_tokens"},
        {FIELDS_CHAT, "\"reasoning\":{\"exclude\":\"x\"}", "reasoning.exclude"},
        {FIELDS_CHAT, "\"thinking\":{}", "thinking.type"},
        {FIELDS_CHAT, "\"thinking\":true", "thinking.type"},
        {FIELDS_CHAT, "\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":\"x\"}", "thinking.budget_tokens"},
        {FIELDS_CHAT, "\"parallel_tool_calls\":1", "parallel_tool_calls"},
        {FIELDS_CHAT, "\"reasoning_effort\":1", "reasoning_effort"},
        {FIELDS_CHAT, "\"reasoning_effort\":\"\"", "reasoning_effort"},
        {FIELDS_CHAT, "\"enable_thinking\":\"yes\"", "enable_thinking"},
        {FIELDS_CHAT, "\"reasoning_format\":\"loud\"", "reasoning_format"},
        {FIELDS_CHAT, "\"reasoning_budget_tokens\":-2", "reasoning_budget_tokens"},
        {FIELDS_CHAT, "\"continue_final_message\":\"x\"", "continue_final_message"},
        {FIELDS_CHAT, "\"add_generation_prompt\":0", "add_generation_prompt"},
        {FIELDS_CHAT, "\"add_generation_prompt\":true,\"continue_final_message\":true", "add_generation_prompt"},
        {FIELDS_CHAT, "\"add_generation_prompt\":true,\"continue_final_message\":\"content\"", "add_generation_prompt"},
        {FIELDS_CHAT, "\"continue_final_message\":true", "messages[0].role"},
        {FIELDS_CHAT, "\"response_format\":\"json\"", "response_format.type"},
        {FIELDS_CHAT, "\"response_format\":{\"type\":\"xml\"}", "response_format.type"},
        {FIELDS_CHAT, "\"response_format\":{\"type\":\"json_schema\"}", "response_format.json_schema"},
        {FIELDS_CHAT, "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":1}}",
         "response_format.json_schema.schema"},
        {FIELDS_CHAT, "\"response_format\":{\"type\":\"json_object\",\"schema\":1}", "response_format.schema"},
        {FIELDS_CHAT, "\"json_schema\":\"x\"", "json_schema"},
        {FIELDS_CHAT, "\"grammar\":1", "grammar"},
        {FIELDS_CHAT, "\"grammar\":\"root ::= x\",\"json_schema\":{}", "grammar"},
        {FIELDS_CHAT, "\"logprobs\":1", "logprobs"},
        {FIELDS_CHAT, "\"top_logprobs\":101", "top_logprobs"},
        {FIELDS_CHAT, "\"top_logprobs\":-1", "top_logprobs"},
        {FIELDS_CHAT, "\"logprobs\":false,\"top_logprobs\":1", "top_logprobs"},
        {FIELDS_CHAT, "\"n_probs\":101", "n_probs"},
        {FIELDS_COMPLETION, "\"logprobs\":101", "logprobs"},
        {FIELDS_COMPLETION, "\"logprobs\":true", "logprobs"},
        {FIELDS_CHAT, "\"tools\":[{\"type\":\"custom\"}]", "tools[0].custom.name"},
        {FIELDS_CHAT, "\"tool_choice\":{\"type\":\"custom\"}", "tool_choice.custom.name"},
        {FIELDS_CHAT, "\"return_progress\":1", "return_progress"},
        {FIELDS_CHAT, "\"timings_per_token\":1", "timings_per_token"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) assert_refused(&rows[i], HEARTH_INVALID);
    static const struct refused other = {FIELDS_CHAT, "\"tool_choice\":{\"type\":\"web_search\"}", "tool_choice.type"};
    assert_refused(&other, HEARTH_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tools_and_their_choice_are_handed_on),
        cmocka_unit_test(some_of_the_tools_may_be_allowed),
        cmocka_unit_test(tools_of_other_types_are_left_out_and_so_is_their_choice),
        cmocka_unit_test(custom_tools_become_functions_of_one_text),
        cmocka_unit_test(functions_are_tools),
        cmocka_unit_test(messages_of_functions_become_those_of_tools),
        cmocka_unit_test(history_is_not_judged),
        cmocka_unit_test(thinking_is_read_in_the_forms_of_other_services),
        cmocka_unit_test(several_fields_set_arguments_of_the_template),
        cmocka_unit_test(a_schema_is_read_in_three_forms),
        cmocka_unit_test(logprobs_are_only_computed_where_requested),
        cmocka_unit_test(what_is_wrong_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
