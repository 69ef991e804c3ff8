/* A template is compiled when it is opened and never again. llama.cpp parses a template's text with
 * jinja::lexer::tokenize(); the linker wraps that call. */
#include "jinja/lexer.h"
#include "json_trees.h"

#include "chat/chat.h"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

#include <string>

namespace
{

int n_texts;

/* A template that llama.cpp has a handler for, and one that it analyses. */
const char *const sources[] = {
    "{%- for m in messages -%}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' -}}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}",
    "{%- for m in messages -%}{{- '<|start|>' + m.role + '<|channel|>final<|message|>' + m.content -}}{%- endfor -%}"};

#define TOOLS "[{\"type\":\"function\",\"function\":{\"name\":\"clock\",\"parameters\":{\"type\":\"object\"}}}]"

void ask(const struct chat_template *template_, const char *messages, const char *tools)
{
    hearth_error error = {};
    chat_request request = {};
    chat_prompt prompt;
    const chat_format *format;
    request.messages = tree_of(messages);
    request.tools = tree_of(tools);
    request.add_generation_prompt = true;
    if (chat_render_parts(template_, &request, &prompt, &error) != HEARTH_OK) fail_msg("%s", error.message);
    if (chat_format_open(template_, &request, &prompt, &format, &error) != HEARTH_OK) fail_msg("%s", error.message);
    chat_format_unref(format);
    chat_prompt_release(&prompt);
}

void requests_compile_nothing(void **)
{
    for (const char *source : sources) {
        hearth_error error = {};
        chat_template_params params = {};
        params.source = source;
        params.bos = params.eos = "";
        n_texts = 0;
        struct chat_template *template_ = chat_template_open(&params, &error);
        if (template_ == nullptr) fail_msg("%s", error.message);
        assert_true(n_texts > 0);
        n_texts = 0;
        for (int i = 0; i < 3; i++) {
            ask(template_, "[{\"role\":\"user\",\"content\":\"Hello.\"}]", nullptr);
            ask(template_,
                "[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":\"When?\"}]", TOOLS);
        }
        assert_int_equal(n_texts, 0);
        chat_template_close(template_);
    }
}

} // namespace

jinja::lexer_result take_apart(jinja::lexer *lexer, const std::string &text) __asm__(
    "__real__ZN5jinja5lexer8tokenizeERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE");
jinja::lexer_result count_and_take_apart(jinja::lexer *lexer, const std::string &text) __asm__(
    "__wrap__ZN5jinja5lexer8tokenizeERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE");

jinja::lexer_result count_and_take_apart(jinja::lexer *lexer, const std::string &text)
{
    n_texts++;
    return take_apart(lexer, text);
}

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_compile_nothing),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
