/* llama.cpp's template engine against Python's Jinja2: for every template that comes with llama.cpp and each
 * conversation of jinja2_oracle.py, what the engine was given and what it printed goes into a file, which
 * jinja2_oracle.py renders again. So what hearth and llama.cpp do to a request before it is rendered makes no
 * difference here. Python is the system's own: python3-jinja2 is Debian's package. */
#include "../../fakes/cases.h"
#include "../../fakes/sanitized.h"
#include "json_trees.h"

#include "chat/chat.h"
#include "chat/template.hpp"

#include "jinja/parser.h"
#include "jinja/runtime.h"
#include "json.h"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace
{

/* Every fourth of the conversations with a template, others with the next (fakes/cases.h). A sanitizer makes this ten
 * times as slow: it then has every tenth. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
bool is_played(size_t sum)
{
    return sum % 10 == 0;
}
#else
bool is_played(size_t sum)
{
    return is_in_part(sum);
}
#endif

constexpr int64_t now = 1772352000;

/* ---- What the engine is given and what it prints ---- */

common_json given; /* to the rendering that begins next */
std::string current_template, current_case, last_line;
std::ofstream *records; /* NULL: nothing is recorded */

/* Some values are set by llama.cpp beside those that it passes in as JSON. */
void note_given(jinja::context &context, const common_json &values)
{
    given = values;
    for (const char *name : {"preserve_thinking", "clear_thinking", "truncate_history_thinking", "drop_thinking",
                             "reasoning_effort", "reasoning_strength"}) {
        jinja::value set = context.get_val(name);
        if (given.contains(name) || set->is_undefined()) continue;
        if (jinja::is_val<jinja::value_bool>(set))
            given[name] = set->as_bool();
        else
            given[name] = set->as_string().str();
    }
}

void record(const char *key, const std::string &outcome)
{
    if (records == nullptr) return;
    common_json entry = common_json::object();
    entry["template"] = current_template;
    entry["case"] = current_case;
    entry["now"] = now;
    entry["context"] = given;
    entry["text"] = nullptr;
    entry["error"] = nullptr;
    entry[key] = outcome;
    std::string line = entry.dump();
    if (last_line != line) *records << line << "\n"; /* what a prompt ends with is found out by rendering it again */
    last_line = line;
}

void note_source(const std::string &source)
{
    common_json entry = common_json::object();
    entry["template"] = current_template;
    entry["source"] = source;
    *records << entry.dump() << "\n";
}

/* Around a whole template, hearth's own root statement too. */
struct watched : jinja::statement {
    jinja::statements body;

    std::string type() const override { return "Watched"; }

    jinja::value execute_impl(jinja::context &context) const override
    {
        try {
            auto results = jinja::mk_val<jinja::value_array>();
            for (const auto &piece : body) results->push_back(piece->execute(context));
            auto printed = jinja::runtime::gather_string_parts(results);
            record("text", printed->as_string().str());
            return printed;
        } catch (const std::exception &fault) {
            record("error", fault.what());
            throw;
        }
    }
};

void watch(jinja::program &program)
{
    auto around = std::make_unique<watched>();
    around->pos = 0;
    around->body = std::move(program.body);
    program.body.clear();
    program.body.push_back(std::move(around));
}

/* ---- Conversations and templates ---- */

std::string oracle(const std::string &arguments)
{
    return "/usr/bin/python3 " + std::string(std::getenv("HEARTH_SOURCE")) + "/tests/unit/chat/jinja2_oracle.py " +
           arguments;
}

/* What the command prints; the test fails where the command does. */
std::string printed_by(const std::string &command)
{
    std::string text;
    char piece[65536];
    FILE *out = popen(command.c_str(), "r");
    assert_non_null(out);
    for (size_t n; (n = std::fread(piece, 1, sizeof piece, out)) > 0;) text.append(piece, n);
    if (pclose(out) != 0) fail_msg("%s failed: %s", command.c_str(), text.c_str());
    return text;
}

std::string text_of(const std::filesystem::path &path)
{
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

/* llama.cpp replaces some templates; otherwise the file itself is what counts, since the engine changes its text. */
std::string rendered_source(const std::string &file, const struct chat_template *template_)
{
    auto squeezed = [](std::string text) {
        text.erase(std::remove(text.begin(), text.end(), '\r'), text.end());
        while (!text.empty() && text.back() == '\n') text.pop_back();
        return text;
    };
    std::string used = chat_template_source(template_);
    return squeezed(file) == squeezed(used) ? file : used;
}

struct chat_template *opened(const std::string &source)
{
    hearth_error error = {};
    chat_template_params params = {};
    params.source = source.c_str();
    params.bos = "<s>";
    params.eos = "</s>";
    struct chat_template *template_ = chat_template_open(&params, &error);
    if (template_ == nullptr) fail_msg("%s: %s", current_template.c_str(), error.message);
    watch(template_->compiled->prog);
    return template_;
}

void render(const struct chat_template *template_, const common_json &conversation)
{
    auto text = [&](const char *key) { return conversation.value(key, ""); };
    std::string messages = text("messages"), tools = text("tools"), kwargs = text("kwargs");
    hearth_error error = {};
    chat_request request = {};
    chat_prompt prompt;
    current_case = conversation.at("name").get<std::string>();
    request.messages = tree_of(messages.c_str());
    request.tools = tree_of(tools.empty() ? nullptr : tools.c_str());
    request.kwargs = tree_of(kwargs.empty() ? nullptr : kwargs.c_str());
    request.add_generation_prompt = !conversation.contains("cue");
    request.now = now;
    if (chat_render_parts(template_, &request, &prompt, &error) == HEARTH_OK) chat_prompt_release(&prompt);
}

std::vector<std::string> lines_of(const std::string &text)
{
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

void render_all(const std::filesystem::path &path, const std::vector<std::string> &conversations, size_t first)
{
    std::string file = text_of(path);
    current_template = path.stem().string();
    struct chat_template *template_ = opened(file);
    note_source(rendered_source(file, template_));
    for (size_t i = 0; i < conversations.size(); i++)
        if (is_played(first + i)) render(template_, common_json::parse(conversations[i]));
    chat_template_close(template_);
}

/* ---- Expressions ---- */

void evaluate(const common_json &expression)
{
    std::string source = expression.at("source").get<std::string>();
    jinja::program program;
    current_template = current_case = source;
    note_source(source);
    try {
        jinja::lexer lexer;
        program = jinja::parse_from_tokens(lexer.tokenize(source));
        watch(program);
        jinja::context context(source);
        jinja::global_from_json(context, common_json::parse(expression.at("values").get<std::string>()), true);
        jinja::runtime(context).execute(program);
    } catch (const std::exception &fault) {
        if (program.body.empty()) record("error", fault.what());
    }
}

/* ---- Tests ---- */

/* Writes what is rendered to a file, and has Python compare it. */
struct recording {
    std::string path = std::filesystem::temp_directory_path() / ("hearth-jinja2-" + std::to_string(getpid()));
    std::ofstream file{path, std::ios::binary};

    recording() { records = &file; }

    void compare()
    {
        records = nullptr;
        file.close();
        std::string differences = printed_by(oracle("compare " + path));
        std::filesystem::remove(path);
        std::fputs(differences.c_str(), stderr);
        assert_non_null(std::strstr(differences.c_str(), " 0 differ"));
    }
};

void every_template_prints_what_jinja2_prints(void **)
{
    std::vector<std::string> conversations = lines_of(printed_by(oracle("cases")));
    std::filesystem::path folder = std::string(std::getenv("HEARTH_LLAMA")) + "/source/models/templates";
    recording rendered;
    size_t n_templates = 0;
    for (const auto &entry : std::filesystem::directory_iterator(folder))
        if (entry.path().extension() == ".jinja") render_all(entry.path(), conversations, n_templates++);
    assert_in_range(n_templates, 60, 1000);
    rendered.compare();
}

void expressions_print_what_jinja2_prints(void **)
{
    recording rendered;
    for (const std::string &line : lines_of(printed_by(oracle("expressions")))) evaluate(common_json::parse(line));
    rendered.compare();
}

void numbers_are_printed_as_python_prints_them(void **)
{
    common_json asked = common_json::parse(printed_by(oracle("numbers")));
    auto text = [&](const char *key) { return asked.at(key).get<std::string>(); };
    std::string source = text("source"), messages = text("messages"), tools = text("tools"), kwargs = text("kwargs");
    struct chat_template *template_ = opened(source);
    hearth_error error = {};
    chat_request request = {};
    request.messages = tree_of(messages.c_str());
    request.tools = tree_of(tools.c_str());
    request.kwargs = tree_of(kwargs.c_str());
    char *prompt = chat_render(template_, &request, &error);
    if (prompt == nullptr) fail_msg("%s", error.message);
    assert_string_equal(prompt, text("expected").c_str());
    std::free(prompt);
    chat_template_close(template_);
}

} // namespace

/* The linker wraps llama.cpp's function that takes the values. */
void real_values(jinja::context &context, const common_json &values,
                 bool mark_input) __asm__("__real__ZN5jinja16global_from_jsonI11common_jsonEEvRNS_7contextERKT_b");
void watched_values(jinja::context &context, const common_json &values,
                    bool mark_input) __asm__("__wrap__ZN5jinja16global_from_jsonI11common_jsonEEvRNS_7contextERKT_b");

void watched_values(jinja::context &context, const common_json &values, bool mark_input)
{
    note_given(context, values);
    real_values(context, values, mark_input);
}

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_template_prints_what_jinja2_prints),
        cmocka_unit_test(expressions_print_what_jinja2_prints),
        cmocka_unit_test(numbers_are_printed_as_python_prints_them),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
