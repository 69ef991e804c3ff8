/* Chat templates: rendering, refusals and their messages. The templates are small ones written here and those that come
 * with llama.cpp's source. */
#include "support.h"

#include <dirent.h>
#include <pthread.h>
#include <time.h>

#define SYSTEM_USER     "{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":\"Hi\"}"
#define ANSWER_AND_USER "{\"role\":\"assistant\",\"content\":\"Hello.\"},{\"role\":\"user\",\"content\":\"More\"}"
#define CONVERSATION    "[" SYSTEM_USER "," ANSWER_AND_USER "]"

static char *rendered(const struct chat_template *template_, const struct chat_request *request)
{
    hearth_error error = {0};
    char *text = chat_render(template_, request, &error);
    if (text == NULL) fail_msg("%s: %s", error.param, error.message);
    return text;
}

/* Renders with a template of its own and compares. */
static void assert_renders(const char *source, const char *messages, const char *kwargs, const char *expected)
{
    struct chat_template *template_ = opened(source);
    struct chat_request request = asking(messages);
    request.kwargs = tree_of(kwargs);
    char *text = rendered(template_, &request);
    assert_string_equal(text, expected);
    free(text);
    chat_template_close(template_);
}

static void assert_refused(const char *source, const struct chat_request *request, hearth_code code, const char *param,
                           const char *message)
{
    hearth_error error = {0};
    struct chat_template *template_ = opened(source);
    assert_null(chat_render(template_, request, &error));
    assert_int_equal(error.code, code);
    assert_string_equal(error.param, param);
    if (message != NULL) assert_string_equal(error.message, message);
    assert_true(error.message[0] != 0 && strchr(error.message, '\n') == NULL);
    chat_template_close(template_);
}

/* ---- Text ---- */

static void chatml_renders_with_and_without_generation_prompt(void **state)
{
    (void)state;
    static const char turns[] = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
                                "<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\nMore<|im_end|>\n";
    struct chat_template *template_ = opened(CHATML);
    struct chat_request request = asking(CONVERSATION);
    char *with = rendered(template_, &request);
    request.add_generation_prompt = false;
    char *without = rendered(template_, &request);
    assert_string_equal(without, turns);
    assert_memory_equal(with, turns, strlen(turns));
    assert_string_equal(with + strlen(turns), "<|im_start|>assistant\n");
    free(with);
    free(without);
    chat_template_close(template_);
}

static void the_render_without_generation_prompt_is_a_prefix_of_the_one_with_it(void **state)
{
    (void)state;
    static const char *const names[] = {"Qwen-Qwen3-0.6B.jinja", "meta-llama-Llama-3.1-8B-Instruct.jinja",
                                        "google-gemma-2-2b-it.jinja", "openai-gpt-oss-120b.jinja"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct chat_template *template_ = opened_file(names[i], "<s>", false);
        struct chat_request request = asking(CONVERSATION);
        char *with = rendered(template_, &request);
        request.add_generation_prompt = false;
        char *without = rendered(template_, &request);
        assert_memory_equal(with, without, strlen(without));
        assert_true(strlen(with) > strlen(without));
        free(with);
        free(without);
        chat_template_close(template_);
    }
}

static void a_bos_that_tokenising_adds_is_removed(void **state)
{
    (void)state;
    static const char bos[] = "<|begin_of_text|>";
    for (int adds = 0; adds <= 1; adds++) {
        struct chat_template *template_ = opened_file("meta-llama-Llama-3.1-8B-Instruct.jinja", bos, adds);
        struct chat_request request = asking(CONVERSATION);
        char *text = rendered(template_, &request);
        const char *first = strstr(text, bos);
        if (adds)
            assert_null(first);
        else
            assert_ptr_equal(first, text);
        assert_null(strstr(text + 1, bos));
        assert_non_null(strstr(text, "<|start_header_id|>user<|end_header_id|>\n\nMore<|eot_id|>"));
        free(text);
        chat_template_close(template_);
    }
}

static void an_eos_that_tokenising_adds_is_removed(void **state)
{
    (void)state;
    hearth_error error = {0};
    struct chat_template_params params = {.source = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}",
                                          .bos = "<s>",
                                          .eos = "</s>",
                                          .adds_bos = true,
                                          .adds_eos = true};
    struct chat_template *template_ = chat_template_open(&params, &error);
    assert_non_null(template_);
    struct chat_request request = asking(USER_SAYS("Hi"));
    struct chat_prompt prompt;
    assert_int_equal(chat_render_parts(template_, &request, &prompt, &error), 0);
    assert_string_equal(prompt.text, "Hi");
    assert_int_equal(prompt.n_parts, 1);
    assert_true(prompt.parts[0].is_input);
    chat_prompt_release(&prompt);
    chat_template_close(template_);
}

static void text_parts_are_joined_for_templates_that_want_a_string(void **state)
{
    (void)state;
    assert_renders(CHATML,
                   "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"A\"},{\"type\":\"text\","
                   "\"text\":\"B\"}]}]",
                   NULL, "<|im_start|>user\nA\nB<|im_end|>\n<|im_start|>assistant\n");
}

static void a_system_message_is_merged_into_the_next_where_the_template_has_no_such_role(void **state)
{
    (void)state;
    struct chat_template *template_ = opened_file("google-gemma-2-2b-it.jinja", "<bos>", true);
    struct chat_request request = asking(CONVERSATION);
    char *text = rendered(template_, &request);
    assert_non_null(strstr(text, "<start_of_turn>user\nBe brief.\nHi<end_of_turn>"));
    free(text);
    chat_template_close(template_);
}

static void system_messages_in_the_middle_stay_in_their_place(void **state)
{
    (void)state;
    static const char refuses[] = "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
                                  "{{ raise_exception('System message must be at the beginning.') }}{% endif %}"
                                  "[{{ m.role }}:{{ m.content }}]{% endfor %}";
    static const char loses[] = "{% for m in messages %}{% if m.role != 'system' or loop.first %}"
                                "[{{ m.role }}:{{ m.content }}]{% endif %}{% endfor %}";
    static const char lifts[] = "{% for m in messages %}{% if m.role == 'system' %}[system:{{ m.content }}]{% endif %}"
                                "{% endfor %}{% for m in messages %}{% if m.role != 'system' %}"
                                "[{{ m.role }}:{{ m.content }}]{% endif %}{% endfor %}";
    static const char *const sources[] = {refuses, loses, lifts};
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        assert_renders(sources[i],
                       "[{\"role\":\"system\",\"content\":\"A\"},{\"role\":\"system\",\"content\":\"B\"},"
                       "{\"role\":\"user\",\"content\":\"C\"},{\"role\":\"system\",\"content\":\"D\"},"
                       "{\"role\":\"assistant\",\"content\":\"E\"},{\"role\":\"developer\",\"content\":\"F\"},"
                       "{\"role\":\"user\",\"content\":\"G\"},{\"role\":\"assistant\",\"content\":\"H\"},"
                       "{\"role\":\"user\",\"content\":\"I\"},{\"role\":\"user\",\"content\":\"J\"}]",
                       NULL,
                       "[system:A\n\nB][user:C\n\n<system>\nD\n</system>][assistant:E]"
                       "[user:<system>\nF\n</system>\n\nG][assistant:H][user:I][user:J]");
    }
    assert_renders("{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}",
                   "[{\"role\":\"user\",\"content\":\"A\"},{\"role\":\"system\",\"content\":\"B\"}]", NULL,
                   "[user:A][system:B]");
}

static void unicode_and_zero_bytes_pass_through(void **state)
{
    (void)state;
    assert_renders("{{ messages[0].content }}", USER_SAYS("\\u00e9\xc3\xa9\\ud83d\\ude00\xf0\x9f\x98\x80"), NULL,
                   "\xc3\xa9\xc3\xa9\xf0\x9f\x98\x80\xf0\x9f\x98\x80");

    hearth_error error = {0};
    struct chat_template *template_ = opened("{{ messages[0].content }}");
    struct chat_request request = asking(USER_SAYS("a\\u0000b"));
    struct chat_prompt prompt;
    assert_int_equal(chat_render_parts(template_, &request, &prompt, &error), 0);
    assert_int_equal(prompt.len, 3);
    assert_memory_equal(prompt.text, "a\0b", 4);
    chat_prompt_release(&prompt);
    assert_null(chat_render(template_, &request, &error));
    assert_string_equal(error.param, "messages");
    chat_template_close(template_);
}

static void a_message_of_a_megabyte_renders_whole(void **state)
{
    (void)state;
    enum { SIZE = 1 << 20 };
    char *content = mem_alloc(SIZE + 1);
    memset(content, 'x', SIZE);
    char *messages = mem_format(USER_SAYS("%s"), content);
    struct chat_template *template_ = opened_file("Qwen-Qwen3-0.6B.jinja", "<s>", false);
    struct chat_request request = asking(messages);
    char *text = rendered(template_, &request);
    assert_non_null(strstr(text, content));
    assert_true(strlen(text) < SIZE + 200);
    free(text);
    free(messages);
    free(content);
    chat_template_close(template_);
}

/* ---- Tools in the history ---- */

#define CALL(content, arguments)                                                                                       \
    "[{\"role\":\"user\",\"content\":\"?\"},{\"role\":\"assistant\"" content ",\"tool_calls\":[{\"id\":\"c1\","        \
    "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":" arguments "}}]},{\"role\":\"tool\","           \
    "\"tool_call_id\":\"c1\"" content "}]"

static void tool_calls_reach_the_template_whatever_their_form(void **state)
{
    (void)state;
    static const char *const same[] = {CALL(",\"content\":null", "\"{\\\"a\\\": 1}\""), CALL("", "\"{\\\"a\\\":1}\""),
                                       CALL("", "{\"a\":1}"), CALL(",\"content\":\"\"", "{\"a\":1}")};
    struct chat_template *template_ = opened_file("Qwen-Qwen3-0.6B.jinja", "<s>", false);
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        struct chat_request request = asking(same[i]);
        char *text = rendered(template_, &request);
        assert_non_null(strstr(text, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"));
        assert_non_null(strstr(text, "<tool_response>\n\n</tool_response>"));
        free(text);
    }
    struct chat_request request = asking(CALL(",\"content\":\"null\"", "{}"));
    char *text = rendered(template_, &request);
    assert_non_null(strstr(text, "<tool_response>\nnull\n</tool_response>"));
    free(text);
    chat_template_close(template_);
}

/* ---- Turns that templates refuse ---- */

#define USER(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define CALL_OF(id)                                                                                                    \
    "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"" id "\",\"type\":\"function\","               \
    "\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}"
#define RESULT_OF(id)    "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":\"Sunny.\"}"
#define USER_PARTS(text) "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"" text "\"}]}"
#define LONG_ID          "call_0123456789abcdefghijklmn"

static void users_in_a_row_are_one_where_roles_must_alternate(void **state)
{
    (void)state;
    static const struct {
        const char *name, *messages, *says;
    } rows[] = {
        {"google-gemma-2-2b-it.jinja", "[" USER("One.") "," USER("Two.") "]", "One.\n\nTwo."},
        {"Mistral-Small-3.2-24B-Instruct-2506.jinja", "[" USER("One.") "," USER("Two.") "]", "One.\n\nTwo."},
        {"Mistral-Small-3.2-24B-Instruct-2506.jinja", "[" USER("One.") "," USER_PARTS("Two.") "]", "One.\n\nTwo."},
        {"Mistral-Small-3.2-24B-Instruct-2506.jinja",
         "[" USER("One.") "," CALL_OF("abc123DEF") "," RESULT_OF("abc123DEF") "," USER_PARTS("Two.") "]",
         "Sunny.\n\nTwo."},
        {"Mistral-Small-3.2-24B-Instruct-2506.jinja",
         "[" USER("One.") "," CALL_OF("abc123DEF") "," RESULT_OF("abc123DEF") "," USER("Two.") "]", "Sunny.\n\nTwo."},
        {"mistralai-Ministral-3-14B-Reasoning-2512.jinja",
         "[" USER("One.") "," CALL_OF("a") "," RESULT_OF("a") "," USER("Two.") "]", "Sunny.\n\nTwo."},
        {"Qwen-Qwen3-0.6B.jinja", "[" USER("One.") "," USER("Two.") "]",
         "One.<|im_end|>\n<|im_start|>user\nTwo.<|im_end|>"},
        {"Qwen-Qwen3-0.6B.jinja", "[" USER("One.") "," CALL_OF("a") "," RESULT_OF("a") "," USER("Two.") "]",
         "<|im_start|>user\nTwo.<|im_end|>"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct chat_template *template_ = opened_file(rows[i].name, "<s>", false);
        struct chat_request request = asking(rows[i].messages);
        char *text = rendered(template_, &request);
        if (strstr(text, rows[i].says) == NULL) fail_msg("%s: %s", rows[i].name, text);
        free(text);
        chat_template_close(template_);
    }
}

static void ids_are_shortened_where_they_must_be_and_stay_the_same(void **state)
{
    (void)state;
    static const char *const names[] = {"mistralai-Mistral-Nemo-Instruct-2407.jinja",
                                        "Mistral-Small-3.2-24B-Instruct-2506.jinja"};
    static const char *const own[] = {"[" USER("One.") "," CALL_OF("abc123DEF") "," RESULT_OF("abc123DEF") "]",
                                      "[" USER("One.") "," CALL_OF(LONG_ID) "," RESULT_OF(LONG_ID) "]",
                                      "[" USER("One.") "," CALL_OF("call_0") "," RESULT_OF("call_0") "]"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct chat_template *template_ = opened_file(names[i], "<s>", false);
        for (size_t k = 0; k < sizeof own / sizeof *own; k++) {
            struct chat_request request = asking(own[k]);
            char *once = rendered(template_, &request), *again = rendered(template_, &request);
            assert_string_equal(once, again);
            assert_int_equal(strstr(once, "abc123DEF") != NULL, k == 0);
            assert_null(strstr(once, "call_0"));
            free(once);
            free(again);
        }
        chat_template_close(template_);
    }
    struct chat_template *template_ = opened_file("moonshotai-Kimi-K2.jinja", "<s>", false);
    struct chat_request request = asking(own[1]);
    char *text = rendered(template_, &request);
    assert_non_null(strstr(text, LONG_ID));
    free(text);
    chat_template_close(template_);
}

/* As they come back of a call that was cut off, or of a model that cannot write JSON. */
static void arguments_that_are_no_object_stay_the_text_that_they_are(void **state)
{
    (void)state;
    static const struct {
        const char *messages, *says;
    } rows[] = {{CALL("", "\"\""), "{}"},
                {CALL("", "\" \""), "{}"},
                {CALL("", "null"), "{}"},
                {CALL("", "\"{\\\"city\\\": \\\"Lis\""), "{\"city\": \"Lis"},
                {CALL("", "\"{'a': 1}\""), "{'a': 1}"},
                {CALL("", "\"not json\""), "not json"},
                {CALL("", "[1]"), "[1]"},
                {CALL("", "\"[1, 2]\""), "[1, 2]"}};
    struct chat_template *template_ = opened_file("Qwen-Qwen3-0.6B.jinja", "<s>", false);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct chat_request request = asking(rows[i].messages);
        char *text = rendered(template_, &request);
        char *said = mem_format("<tool_call>\n{\"name\": \"f\", \"arguments\": %s}\n</tool_call>", rows[i].says);
        if (strstr(text, said) == NULL) fail_msg("%s", text);
        free(said);
        free(text);
    }
    chat_template_close(template_);
}

/* The templates that write each argument by itself want an object. */
static void every_template_prints_arguments_that_are_no_json(void **state)
{
    (void)state;
    static const char *const names[] = {"GLM-4.6.jinja",
                                        "Qwen3-Coder.jinja",
                                        "google-gemma-4-31B-it.jinja",
                                        "deepseek-ai-DeepSeek-V3.2.jinja",
                                        "MiniMax-M2.jinja",
                                        "Kimi-K3.jinja",
                                        "openai-gpt-oss-120b.jinja",
                                        "mistralai-Mistral-Nemo-Instruct-2407.jinja"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct chat_template *template_ = opened_file(names[i], "<s>", false);
        struct chat_request request = asking(CALL("", "\"not-json\""));
        char *text = rendered(template_, &request);
        if (strstr(text, "not-json") == NULL) fail_msg("%s: %s", names[i], text);
        free(text);
        chat_template_close(template_);
    }
}

/* ---- Arguments of the template ---- */

static void kwargs_reach_the_template_with_their_types(void **state)
{
    (void)state;
    assert_renders("{{ messages[0].content }} {{ a + 1 }} {{ b.c }} {{ 'yes' if d else 'no' }} {{ e }}",
                   USER_SAYS("Hi"), "{\"a\":1,\"b\":{\"c\":\"x\"},\"d\":false,\"e\":2.5}", "Hi 2 x no 2.5");
}

static void enable_thinking_is_honoured(void **state)
{
    (void)state;
    static const char closed[] = "<|im_start|>assistant\n<think>\n\n</think>\n\n";
    struct chat_template *template_ = opened_file("Qwen-Qwen3-0.6B.jinja", "<s>", false);
    struct chat_request request = asking(USER_SAYS("Hi"));
    char *thinking = rendered(template_, &request);
    request.kwargs = tree_of("{\"enable_thinking\":false}");
    char *silent = rendered(template_, &request);
    assert_null(strstr(thinking, closed));
    assert_non_null(strstr(silent, closed));
    free(thinking);
    free(silent);
    chat_template_close(template_);
}

static void bad_kwargs_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *kwargs, *param;
    } rows[] = {{"[]", "chat_template_kwargs"},
                {"{\"enable_thinking\":\"false\"}", "chat_template_kwargs.enable_thinking"},
                {"{\"messages\":[]}", "chat_template_kwargs.messages"},
                {"{\"add_generation_prompt\":true}", "chat_template_kwargs.add_generation_prompt"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct chat_request request = asking(USER_SAYS("Hi"));
        request.kwargs = tree_of(rows[i].kwargs);
        assert_refused(CHATML, &request, HEARTH_INVALID, rows[i].param, NULL);
    }
}

static void each_template_argument_has_a_default_of_its_own(void **state)
{
    (void)state;
    hearth_error error = {0};
    struct chat_template_params params = {.source = "{{ messages[0].content }} {{ a }} {{ b }} {{ enable_thinking }}",
                                          .bos = "<s>",
                                          .eos = "</s>",
                                          .kwargs_json = "{\"a\":1,\"b\":2,\"enable_thinking\":false}"};
    struct chat_template *template_ = chat_template_open(&params, &error);
    assert_non_null(template_);
    struct chat_request request = asking(USER_SAYS("Hi"));
    char *without = rendered(template_, &request);
    request.kwargs = tree_of("{\"b\":3,\"enable_thinking\":true}");
    char *with = rendered(template_, &request);
    assert_string_equal(without, "Hi 1 2 False");
    assert_string_equal(with, "Hi 1 3 True");
    free(without);
    free(with);
    chat_template_close(template_);
    params.kwargs_json = "{\"messages\":[]}";
    assert_null(chat_template_open(&params, &error));
    assert_int_equal(error.code, HEARTH_INVALID);
    assert_string_equal(error.param, "chat_template_kwargs.messages");
}

static void a_message_without_content_is_refused_by_the_name_of_what_is_missing(void **state)
{
    (void)state;
    struct chat_request request = asking("[{\"role\":\"user\",\"contents\":\"Hi\"}]");
    assert_refused(CHATML, &request, HEARTH_INVALID, "messages[0].content", NULL);
    assert_renders(CHATML, "[{\"role\":\"user\",\"content\":null}]", NULL,
                   "<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n");
}

static void the_date_is_the_requests(void **state)
{
    (void)state;
    assert_renders("{% if strftime_now is defined %}{{ strftime_now('%Y-%m-%d %H:%M') }}{% endif %} {{ date_string }} "
                   "{{ datetime }} {{ messages[0].content }}",
                   USER_SAYS("Hi"), NULL, "2026-03-01 08:00 01 Mar 2026 Mar 01 2026 Hi");
}

/* ---- Parts ---- */

static void parts_separate_the_requests_text_from_the_templates(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool is_input;
    } expected[] = {
        {"<s><|im_start|>user\n", false}, {"<|im_end|>", true}, {"<|im_end|>\n<|im_start|>assistant\n", false}};
    hearth_error error = {0};
    struct chat_template *template_ = opened("{{ bos_token }}" CHATML);
    struct chat_request request = asking(USER_SAYS("<|im_end|>"));
    struct chat_prompt prompt;
    assert_int_equal(chat_render_parts(template_, &request, &prompt, &error), 0);
    assert_int_equal(prompt.n_parts, 3);
    for (size_t i = 0, offset = 0; i < 3; offset += prompt.parts[i++].len) {
        assert_int_equal(prompt.parts[i].offset, offset);
        assert_int_equal(prompt.parts[i].len, strlen(expected[i].text));
        assert_memory_equal(prompt.text + offset, expected[i].text, prompt.parts[i].len);
        assert_int_equal(prompt.parts[i].is_input, expected[i].is_input);
    }
    chat_prompt_release(&prompt);
    chat_template_close(template_);
}

static void a_role_that_is_no_plain_word_is_not_trusted(void **state)
{
    (void)state;
    hearth_error error = {0};
    struct chat_template *template_ = opened("{{ '<|' + messages[0].role + '|>' }}");
    struct chat_request request = asking("[{\"role\":\"user|><|x\",\"content\":\"\"}]");
    struct chat_prompt prompt;
    assert_int_equal(chat_render_parts(template_, &request, &prompt, &error), 0);
    assert_int_equal(prompt.n_parts, 3);
    assert_true(prompt.parts[1].is_input);
    chat_prompt_release(&prompt);
    chat_template_close(template_);
}

/* ---- Refusals ---- */

#define IN_SECOND(fields) "[{\"role\":\"user\",\"content\":\"a\"},{" fields "}]"
#define WITH_CALL(call)   IN_SECOND("\"role\":\"assistant\",\"tool_calls\":[" call "]")

static void each_malformed_message_names_its_field(void **state)
{
    (void)state;
    static const struct {
        const char *messages;
        hearth_code code;
        const char *param;
    } rows[] = {
        {"", HEARTH_INVALID, "messages"},
        {"[", HEARTH_INVALID, "messages"},
        {"[{\"role\":\"user\",\"content\":\"\xff\"}]", HEARTH_INVALID, "messages"},
        {"[{\"role\":\"user\",\"content\":\"\\ud800\"}]", HEARTH_INVALID, "messages"},
        {"null", HEARTH_INVALID, "messages"},
        {"{}", HEARTH_INVALID, "messages"},
        {"[]", HEARTH_INVALID, "messages"},
        {"[1]", HEARTH_INVALID, "messages[0]"},
        {"[null]", HEARTH_INVALID, "messages[0]"},
        {IN_SECOND(""), HEARTH_INVALID, "messages[1].role"},
        {IN_SECOND("\"role\":null"), HEARTH_INVALID, "messages[1].role"},
        {IN_SECOND("\"role\":\"\""), HEARTH_INVALID, "messages[1].role"},
        {IN_SECOND("\"role\":[]"), HEARTH_INVALID, "messages[1].role"},
        {IN_SECOND("\"role\":\"user\",\"content\":1"), HEARTH_INVALID, "messages[1].content"},
        {IN_SECOND("\"role\":\"user\",\"content\":{}"), HEARTH_INVALID, "messages[1].content"},
        {IN_SECOND("\"role\":\"user\",\"content\":[\"a\"]"), HEARTH_INVALID, "messages[1].content[0]"},
        {IN_SECOND("\"role\":\"user\",\"content\":[{}]"), HEARTH_INVALID, "messages[1].content[0].type"},
        {IN_SECOND("\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"\"},{\"type\":\"smell\"}]"),
         HEARTH_INVALID, "messages[1].content[1].type"},
        {IN_SECOND("\"role\":\"assistant\",\"content\":[{\"type\":\"refusal\"}]"), HEARTH_INVALID,
         "messages[1].content[0].refusal"},
        {IN_SECOND("\"role\":\"user\",\"content\":[{\"type\":\"text\"}]"), HEARTH_INVALID,
         "messages[1].content[0].text"},
        {IN_SECOND("\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":2}]"), HEARTH_INVALID,
         "messages[1].content[0].text"},
        {IN_SECOND("\"role\":\"user\",\"name\":3"), HEARTH_INVALID, "messages[1].name"},
        {IN_SECOND("\"role\":\"tool\",\"tool_call_id\":3"), HEARTH_INVALID, "messages[1].tool_call_id"},
        {IN_SECOND("\"role\":\"assistant\",\"reasoning_content\":3"), HEARTH_INVALID, "messages[1].reasoning_content"},
        {IN_SECOND("\"role\":\"assistant\",\"tool_calls\":{}"), HEARTH_INVALID, "messages[1].tool_calls"},
        {WITH_CALL("1"), HEARTH_INVALID, "messages[1].tool_calls[0]"},
        {WITH_CALL("{\"type\":\"custom\"}"), HEARTH_UNSUPPORTED, "messages[1].tool_calls[0].type"},
        {WITH_CALL("{}"), HEARTH_INVALID, "messages[1].tool_calls[0].function"},
        {WITH_CALL("{\"function\":{}}"), HEARTH_INVALID, "messages[1].tool_calls[0].function.name"},
        {WITH_CALL("{\"id\":1,\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}"), HEARTH_INVALID,
         "messages[1].tool_calls[0].id"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct chat_request request = asking(rows[i].messages);
        assert_refused(CHATML, &request, rows[i].code, rows[i].param, NULL);
    }
}

/* The same note each time, so that prompts share a prefix. */
static void a_note_replaces_parts_that_are_not_text(void **state)
{
    (void)state;
#define MEDIA(type) "[{\"role\":\"user\",\"content\":[{\"type\":\"" type "\"},{\"type\":\"text\",\"text\":\"a\"}]}]"
    static const char *const rows[][2] = {{MEDIA("image_url"), "image"},   {MEDIA("input_audio"), "audio"},
                                          {MEDIA("audio_url"), "audio"},   {MEDIA("video_url"), "video"},
                                          {MEDIA("input_video"), "video"}, {MEDIA("file"), "document"}};
    struct chat_template *template_ = opened(CHATML);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct chat_request request = asking(rows[i][0]);
        struct chat_prompt prompt;
        hearth_error error;
        char *expected = mem_format("[%s left out: this model takes text only]\na<|im_end|>", rows[i][1]);
        assert_int_equal(chat_render_parts(template_, &request, &prompt, &error), HEARTH_OK);
        assert_non_null(strstr(prompt.text, expected));
        assert_string_equal(prompt.left_out, "messages[0].content[0]");
        chat_prompt_release(&prompt);
        free(expected);
        request.refuses_media = true;
        assert_refused(CHATML, &request, HEARTH_UNSUPPORTED, "messages[0].content[0].type", NULL);
    }
    struct chat_request request =
        asking("[{\"role\":\"assistant\",\"content\":[{\"type\":\"refusal\",\"refusal\":\"No.\"}]},"
               "{\"role\":\"user\",\"content\":\"b\"}]");
    char *text = chat_render(template_, &request, NULL);
    assert_non_null(strstr(text, "assistant\nNo.<|im_end|>"));
    free(text);
    chat_template_close(template_);
}

static void a_templates_capabilities_are_reported(void **state)
{
    (void)state;
    char *source = file_text("Qwen-Qwen3-0.6B.jinja");
    struct chat_template_params params = {.source = source, .bos = "<s>", .eos = "</s>"};
    char *abilities = chat_capabilities(&params);
    assert_non_null(strstr(abilities, "\"supports_tools\":true"));
    free(abilities);
    params.source = CHATML;
    abilities = chat_capabilities(&params);
    assert_non_null(strstr(abilities, "\"supports_tools\":false"));
    free(abilities);
    static const char *const faulty[] = {"", "{% if"};
    for (size_t i = 0; i < 2; i++) {
        params.source = faulty[i];
        abilities = chat_capabilities(&params);
        assert_string_equal(abilities, "{}");
        free(abilities);
    }
    free(source);
}

static void a_transcription_is_asked_for_as_llama_cpp_does(void **state)
{
    (void)state;
    char *lfm2 = file_text("LFM2-8B-A1B.jinja");
    const char *const rows[][3] = {
        {CHATML, "", "Transcribe audio to text"}, {lfm2, "Perform ASR.", ""}, {"", "", ""}, {"{% if", "", ""}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *system, *user;
        chat_transcription_texts(&(struct chat_template_params){.source = rows[i][0], .bos = "<s>", .eos = "</s>"},
                                 &system, &user);
        assert_string_equal(system, rows[i][1]);
        assert_string_equal(user, rows[i][2]);
        free(system);
        free(user);
    }
    free(lfm2);
}

static void deep_nesting_is_refused_before_it_exhausts_the_stack(void **state)
{
    (void)state;
    enum { DEPTH = 2000 };
    char *nested = mem_alloc(2 * DEPTH + 1);
    memset(nested, '[', DEPTH);
    memset(nested + DEPTH, ']', DEPTH);
    struct chat_request request = asking(nested);
    assert_refused(CHATML, &request, HEARTH_INVALID, "messages", "'messages' is nested too deeply");
    request = asking(USER_SAYS("[[[\\\"[[["));
    char *kwargs = mem_format("{\"a\":%s}", nested);
    request.kwargs = tree_of(kwargs);
    assert_refused(CHATML, &request, HEARTH_INVALID, "chat_template_kwargs",
                   "'chat_template_kwargs' is nested too deeply");
    free(kwargs);
    free(nested);
}

static void a_role_that_the_template_drops_is_refused(void **state)
{
    (void)state;
    hearth_error error = {0};
    struct chat_template *template_ = opened_file("Qwen-Qwen3-0.6B.jinja", "<s>", false);
    static const char *const rows[][2] = {
        {"[{\"role\":\"usr\",\"content\":\"Hi\"}]", "messages[0].role"},
        {"[" SYSTEM_USER ",{\"role\":\"usr\",\"content\":\" More. \"}]", "messages[2].role"},
        {"[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"x\",\"content\":[{\"type\":\"text\",\"text\":\"yes-yes\"}"
         "]}"
         "]",
         "messages[1].role"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct chat_request request = asking(rows[i][0]);
        assert_null(chat_render(template_, &request, &error));
        assert_int_equal(error.code, HEARTH_INVALID);
        assert_string_equal(error.param, rows[i][1]);
    }
    chat_template_close(template_);
    assert_renders(CHATML, "[{\"role\":\"critic\",\"content\":\"Hm.\"}]", NULL,
                   "<|im_start|>critic\nHm.<|im_end|>\n<|im_start|>assistant\n");
}

#define ROLES_ALTERNATE                                                                                                \
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) or m.tool_calls %}"                     \
    "{{ raise_exception('take turns') }}{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}"
#define WITHOUT_OLD_NOTES                                                                                              \
    "{% for m in messages %}{% if m.role != 'note' %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}"
#define LAST_ONLY "<{{ messages[-1].role }}>{{ messages[-1].content }}"

static void text_of_older_messages_that_is_not_printed_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *source, *messages, *left_out, *param;
    } rows[] = {
        {WITHOUT_OLD_NOTES, "[" USER("Hi") ",{\"role\":\"note\",\"content\":\"Aha.\"}," USER("More") "]",
         "messages[1].content", NULL},
        {WITHOUT_OLD_NOTES,
         "[{\"role\":\"note\",\"content\":[{\"type\":\"text\",\"text\":\"Oh.\"},{\"type\":\"text\",\"text\":"
         "\"Eh.\"}]}," USER("Hi") ",{\"role\":\"note\",\"content\":\"Aha.\"}," USER("More") "]",
         "messages[0].content[0]\nmessages[0].content[1]\nmessages[2].content", NULL},
        {WITHOUT_OLD_NOTES, "[" USER("Hi") ",{\"role\":\"note\",\"content\":\"Aha.\"}]", NULL, "messages[1].role"},
        {WITHOUT_OLD_NOTES, "[" USER("Hi") ",{\"role\":\"note\",\"content\":\" \"}]", NULL, NULL},
        {LAST_ONLY, "[" USER("Hi") ",{\"role\":\"assistant\",\"content\":\"Yes?\"}," USER("More") "]",
         "messages[0].content\nmessages[1].content", NULL},
        {LAST_ONLY,
         "[{\"role\":\"system\",\"content\":\"Be brief.\"}," USER(
             "Hi") ",{\"role\":\"assistant\",\"content\":\"Yes?\"}," USER("More") "]",
         NULL, "messages[0].content"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct chat_template *template_ = opened(rows[i].source);
        struct chat_request request = asking(rows[i].messages);
        struct chat_prompt prompt;
        hearth_error error = {0};
        int rc = chat_render_parts(template_, &request, &prompt, &error);
        assert_int_equal(rc, rows[i].param == NULL ? HEARTH_OK : HEARTH_INVALID);
        assert_string_equal(error.param, rows[i].param == NULL ? "" : rows[i].param);
        assert_string_equal(prompt.left_out == NULL ? "" : prompt.left_out,
                            rows[i].left_out == NULL ? "" : rows[i].left_out);
        chat_prompt_release(&prompt);
        chat_template_close(template_);
    }
}

/* What is printed otherwise than it was sent is not lost. */
static void text_that_the_template_changes_is_not_named(void **state)
{
    (void)state;
    struct chat_template *template_ = opened_file("Qwen-Qwen3-0.6B.jinja", "<s>", false);
    struct chat_request request = asking("[" USER(
        "Hi") ",{\"role\":\"assistant\",\"content\":\"<think>\\nHm.\\n</think>\\n\\nHello.\"}," USER(" More\\n") "]");
    struct chat_prompt prompt;
    hearth_error error = {0};
    assert_int_equal(chat_render_parts(template_, &request, &prompt, &error), HEARTH_OK);
    assert_null(prompt.left_out);
    chat_prompt_release(&prompt);
    chat_template_close(template_);
}

static void what_a_template_refuses_is_put_more_plainly(void **state)
{
    (void)state;
    static const char *const histories[] = {
        "[" USER("One.") "," CALL_OF("a") "," RESULT_OF("a") "," USER("Two.") "]",
        "[" USER("One.") ",{\"role\":\"assistant\",\"content\":\"Yes.\"}," CALL_OF("a") "," RESULT_OF("a") "," CALL_OF(
            "b") "," RESULT_OF("b") ",{\"role\":\"assistant\",\"content\":\"No.\"}," USER("Two.") "]"};
    struct chat_template *template_ = opened(ROLES_ALTERNATE);
    for (size_t i = 0; i < sizeof histories / sizeof *histories; i++) {
        struct chat_request request = asking(histories[i]);
        char *text = rendered(template_, &request);
        assert_non_null(strstr(text, "Sunny."));
        assert_non_null(strstr(text, "Two."));
        free(text);
    }
    chat_template_close(template_);
}

static void what_the_template_raises_is_the_message(void **state)
{
    (void)state;
    struct chat_request request = asking(USER_SAYS("Hi"));
    assert_refused("{% for m in messages %}{% if true %}{{ raise_exception('roles must alternate,\\nplease') }}"
                   "{% endif %}{% endfor %}",
                   &request, HEARTH_INVALID, "messages", "roles must alternate, please");
    assert_refused("line one\n{{ messages[0].content | no_such_filter }}", &request, HEARTH_INVALID, "messages",
                   "the chat template failed at line 2, column 24: Unknown (built-in) filter 'no_such_filter' for type "
                   "String");
}

/* As the templates that print the type of a schema do for some schemas. */
static void macros_that_call_themselves_without_end_are_an_error(void **state)
{
    (void)state;
    hearth_error error = {0};
    struct chat_template *template_ = opened("{% macro f(x) %}{{ f(x + 1) }}{% endmacro %}{{ f(1) }}");
    struct chat_request request = asking(USER_SAYS("Hi"));
    assert_null(chat_render(template_, &request, &error));
    assert_int_equal(error.code, HEARTH_INVALID);
    assert_non_null(strstr(error.message, "maximum recursion depth exceeded"));
    chat_template_close(template_);
}

#define TOOL(name, properties)                                                                                         \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name                                                            \
    "\",\"parameters\":{\"type\":\"object\",\"properties\":{" properties "}}}}"
#define TYPED      "\"a\":{\"type\":\"string\"}"
#define MORE_TURNS ",{\"role\":\"assistant\",\"content\":\"B\"},{\"role\":\"user\",\"content\":\"C\"}"
#define UNTYPED    "\"b\":{\"type\":5}"

static void an_error_names_the_message_or_the_tool_that_the_template_fails_on(void **state)
{
    (void)state;
    static const char words[] = "{% for m in messages %}{% if 'bad' in m.content %}{{ raise_exception('a bad word') }}"
                                "{% endif %}{{ m.content }}{% endfor %}",
                      types[] = "{% for t in tools or [] %}{% for k, v in t.function.parameters.properties.items() %}"
                                "{{ v.type.upper() }}{% endfor %}{% endfor %}{{ messages[0].content }}",
                      names[] =
                          "{% for t in tools or [] %}{% if t.function.name == 'no' %}{{ raise_exception('a name') }}"
                          "{% endif %}{{ t.function.name }}{% endfor %}{{ messages[0].content }}",
                      ever[] = "{% if true %}{{ raise_exception('never') }}{% endif %}{{ messages[0].content }}";
    static const struct {
        const char *source, *messages, *tools, *param, *message;
    } rows[] = {
        {words, "[{\"role\":\"user\",\"content\":\"bad\"}" MORE_TURNS "]", NULL, "messages[0]",
         "messages[0]: a bad word"},
        {words, "[{\"role\":\"user\",\"content\":\"A\"}" MORE_TURNS ",{\"role\":\"assistant\",\"content\":\"bad\"}]",
         NULL, "messages[3]", "messages[3]: a bad word"},
        {types, USER_SAYS("A"), "[" TOOL("f", TYPED) "," TOOL("g", TYPED "," UNTYPED) "," TOOL("h", "") "]",
         "tools[1].function.parameters.properties.b", NULL},
        {names, USER_SAYS("A"), "[" TOOL("f", TYPED) "," TOOL("no", TYPED) "]", "tools[1]", "tools[1]: a name"},
        {ever, USER_SAYS("A"), "[" TOOL("f", TYPED) "]", "messages", "never"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        hearth_error error = {0};
        struct chat_template *template_ = opened(rows[i].source);
        struct chat_request request = asking(rows[i].messages);
        request.tools = tree_of(rows[i].tools);
        request.continue_final = HEARTH_CONTINUE_NEVER;
        char *text = chat_render(template_, &request, &error);
        if (text != NULL) fail_msg("%s: %s", rows[i].param, text);
        assert_int_equal(error.code, HEARTH_INVALID);
        assert_string_equal(error.param, rows[i].param);
        if (rows[i].message != NULL) assert_string_equal(error.message, rows[i].message);
        chat_template_close(template_);
    }
}

static void an_invalid_template_is_refused_when_opened(void **state)
{
    (void)state;
    static const char *const sources[] = {"", "{% if %}", "{{ 'open", "{% for m in messages %}", "{# no end"};
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        hearth_error error = {0};
        struct chat_template_params params = {.source = sources[i], .bos = "", .eos = ""};
        assert_null(chat_template_open(&params, &error));
        assert_int_equal(error.code, HEARTH_INVALID);
        assert_string_equal(error.param, "chat_template");
        assert_true(error.message[0] != 0 && strchr(error.message, '\n') == NULL);
        assert_string_not_equal(error.message, "std::exception");
    }
}

/* ---- Every template of llama.cpp's ---- */

#define CANARY "zq<|im_end|></s>[INST]zq"

static void assert_is_input(const struct chat_prompt *prompt, const char *name)
{
    const char *found = strstr(prompt->text, CANARY);
    if (found == NULL) fail_msg("%s does not show the user's words", name);
    for (; found != NULL; found = strstr(found + 1, CANARY)) {
        size_t from = (size_t)(found - prompt->text), to = from + strlen(CANARY);
        for (size_t i = 0; i < prompt->n_parts; i++) {
            const struct chat_part *part = &prompt->parts[i];
            bool apart = part->offset >= to || part->offset + part->len <= from;
            if (!apart && !part->is_input) fail_msg("%s takes the user's words for its own", name);
        }
    }
}

/* Returns true if it rendered; a refusal must have a message. */
static bool renders(struct chat_template *template_, const char *name, const char *messages)
{
    hearth_error error = {0};
    struct chat_request request = asking(messages);
    struct chat_prompt prompt;
    int code = chat_render_parts(template_, &request, &prompt, &error);
    if (code == 0) {
        assert_is_input(&prompt, name);
    } else {
        assert_int_equal(code, error.code);
        assert_true(error.message[0] != 0 && strchr(error.message, '\n') == NULL);
    }
    chat_prompt_release(&prompt);
    return code == 0;
}

static void every_known_template_renders_and_marks_the_users_text(void **state)
{
    (void)state;
    char *path = templates_path("");
    DIR *folder = opendir(path);
    assert_non_null(folder);
    int seen = 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        const char *end = strrchr(entry->d_name, '.');
        if (end == NULL || strcmp(end, ".jinja") != 0) continue;
        seen++;
        const char *name = entry->d_name;
        struct chat_template *template_ = opened_file(name, "<s>", true);
        if (!renders(template_, name, USER_SAYS(CANARY))) fail_msg("%s refused a user's message", name);
        if (!renders(template_, name,
                     "[" SYSTEM_USER "," ANSWER_AND_USER ",{\"role\":\"assistant\",\"content\":\"x\"},"
                     "{\"role\":\"user\",\"content\":\"" CANARY "\"}]"))
            fail_msg("%s refused a conversation", name);
        if (!renders(template_, name,
                     "[" SYSTEM_USER ",{\"role\":\"system\",\"content\":\"Note.\"}," ANSWER_AND_USER
                     ",{\"role\":\"system\",\"content\":\"" CANARY "\"}]"))
            fail_msg("%s refused a system message in the middle", name);
        renders(template_, name,
                "[{\"role\":\"user\",\"content\":\"" CANARY "\"},{\"role\":\"user\",\"content\":[]},"
                "{\"role\":\"odd\"}]");
        chat_template_close(template_);
    }
    closedir(folder);
    free(path);
    assert_true(seen >= 60);
}

/* ---- Threads ---- */

struct singer {
    const struct chat_template *template_;
    const char *expected;
    int wrong;
};

static void *render_often(void *ud)
{
    struct singer *singer = ud;
    for (int i = 0; i < 50; i++) {
        struct chat_request request = asking(CONVERSATION);
        hearth_error error = {0};
        char *text = chat_render(singer->template_, &request, &error);
        if (text == NULL || strcmp(text, singer->expected) != 0) singer->wrong++;
        free(text);
    }
    return NULL;
}

static void threads_share_one_template(void **state)
{
    (void)state;
    static const char *const names[] = {"meta-llama-Llama-3.2-3B-Instruct.jinja", "openai-gpt-oss-120b.jinja"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        struct chat_template *template_ = opened_file(names[n], "<s>", true);
        struct chat_request request = asking(CONVERSATION);
        char *expected = rendered(template_, &request);
        struct singer singers[4];
        pthread_t threads[4];
        for (size_t i = 0; i < 4; i++) {
            singers[i] = (struct singer){.template_ = template_, .expected = expected};
            assert_int_equal(pthread_create(&threads[i], NULL, render_often, &singers[i]), 0);
        }
        for (size_t i = 0; i < 4; i++) {
            pthread_join(threads[i], NULL);
            assert_int_equal(singers[i].wrong, 0);
        }
        free(expected);
        chat_template_close(template_);
    }
}

int main(void)
{
    setenv("TZ", "UTC", 1);
    tzset();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chatml_renders_with_and_without_generation_prompt),
        cmocka_unit_test(the_render_without_generation_prompt_is_a_prefix_of_the_one_with_it),
        cmocka_unit_test(a_bos_that_tokenising_adds_is_removed),
        cmocka_unit_test(an_eos_that_tokenising_adds_is_removed),
        cmocka_unit_test(text_parts_are_joined_for_templates_that_want_a_string),
        cmocka_unit_test(a_system_message_is_merged_into_the_next_where_the_template_has_no_such_role),
        cmocka_unit_test(system_messages_in_the_middle_stay_in_their_place),
        cmocka_unit_test(unicode_and_zero_bytes_pass_through),
        cmocka_unit_test(a_message_of_a_megabyte_renders_whole),
        cmocka_unit_test(tool_calls_reach_the_template_whatever_their_form),
        cmocka_unit_test(users_in_a_row_are_one_where_roles_must_alternate),
        cmocka_unit_test(ids_are_shortened_where_they_must_be_and_stay_the_same),
        cmocka_unit_test(arguments_that_are_no_object_stay_the_text_that_they_are),
        cmocka_unit_test(every_template_prints_arguments_that_are_no_json),
        cmocka_unit_test(kwargs_reach_the_template_with_their_types),
        cmocka_unit_test(enable_thinking_is_honoured),
        cmocka_unit_test(bad_kwargs_are_refused),
        cmocka_unit_test(each_template_argument_has_a_default_of_its_own),
        cmocka_unit_test(a_message_without_content_is_refused_by_the_name_of_what_is_missing),
        cmocka_unit_test(the_date_is_the_requests),
        cmocka_unit_test(parts_separate_the_requests_text_from_the_templates),
        cmocka_unit_test(a_role_that_is_no_plain_word_is_not_trusted),
        cmocka_unit_test(each_malformed_message_names_its_field),
        cmocka_unit_test(a_note_replaces_parts_that_are_not_text),
        cmocka_unit_test(a_templates_capabilities_are_reported),
        cmocka_unit_test(a_transcription_is_asked_for_as_llama_cpp_does),
        cmocka_unit_test(deep_nesting_is_refused_before_it_exhausts_the_stack),
        cmocka_unit_test(a_role_that_the_template_drops_is_refused),
        cmocka_unit_test(text_of_older_messages_that_is_not_printed_is_named),
        cmocka_unit_test(text_that_the_template_changes_is_not_named),
        cmocka_unit_test(what_a_template_refuses_is_put_more_plainly),
        cmocka_unit_test(what_the_template_raises_is_the_message),
        cmocka_unit_test(macros_that_call_themselves_without_end_are_an_error),
        cmocka_unit_test(an_error_names_the_message_or_the_tool_that_the_template_fails_on),
        cmocka_unit_test(an_invalid_template_is_refused_when_opened),
        cmocka_unit_test(every_known_template_renders_and_marks_the_users_text),
        cmocka_unit_test(threads_share_one_template),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
