/* Nothing that a client says is lost between its messages and the prompt: every template that comes with llama.cpp,
 * every role, form and place of a message. Each text is marked with a word of its own, and every word must stand in the
 * prompt once and in order; or the request is refused with the field; or the prompt names the field as left out. */
#include "chat/chat.h"
#include "json_trees.h"

#include "../../fakes/cases.h"
#include "../../fakes/sanitized.h"

#include "json.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
}

namespace
{

/* ---- Conversations ---- */

struct word {
    std::string text;
    bool is_name = false; /* of a tool, which templates repeat beside its result */
    int of_call = -1;     /* of a result: the last word of its call */
};

/* Messages whose texts are words that occur nowhere else, and the words in their order. */
class conversation
{
  public:
    common_json messages = common_json::array();
    std::vector<word> words;
    std::vector<std::string> media;

    std::string add_word(bool is_name = false)
    {
        words.push_back({"qw" + std::to_string(words.size() + 100) + "zk", is_name});
        return words.back().text;
    }

    common_json &say(const std::string &role, const common_json &content)
    {
        messages.push_back(common_json{{"role", role}, {"content", content}});
        return messages[messages.size() - 1];
    }

    void say(const std::string &role) { say(role, add_word()); }

    void call(const common_json &content, size_t n)
    {
        common_json calls = common_json::array();
        for (size_t i = 0; i < n; i++) {
            std::string name = add_word(true), arguments = "{\"x\":\"" + add_word() + "\"}";
            calls_end.push_back(static_cast<int>(words.size()) - 1);
            calls.push_back(common_json{{"id", "callid" + std::to_string(100 + n_calls++)},
                                        {"type", "function"},
                                        {"function", common_json{{"name", name}, {"arguments", arguments}}}});
        }
        say("assistant", content)["tool_calls"] = calls;
    }

    void answer(common_json (*make)(conversation &))
    {
        size_t before = words.size();
        common_json content = make(*this);
        for (size_t i = before; i < words.size(); i++) words[i].of_call = calls_end[n_answers];
        say("tool", content)["tool_call_id"] = "callid" + std::to_string(100 + n_answers++);
    }

  private:
    size_t n_calls = 0, n_answers = 0;
    std::vector<int> calls_end; /* the last word of each call */
};

/* ---- Forms of content ---- */

common_json text_part(const std::string &text)
{
    return common_json{{"type", "text"}, {"text", text}};
}

common_json string_of(conversation &c)
{
    return c.add_word();
}

common_json part_of(conversation &c)
{
    common_json parts = common_json::array();
    parts.push_back(text_part(c.add_word()));
    return parts;
}

common_json parts_of(conversation &c)
{
    common_json parts = common_json::array();
    for (int i = 0; i < 3; i++) parts.push_back(text_part(c.add_word()));
    return parts;
}

common_json beside_media(conversation &c)
{
    common_json parts = common_json::array();
    parts.push_back(text_part(c.add_word()));
    parts.push_back(common_json{{"type", "image_url"}, {"media", c.media.size()}});
    c.media.push_back(c.add_word());
    parts.push_back(text_part(c.add_word()));
    return parts;
}

common_json empty(conversation &)
{
    return "";
}

common_json null(conversation &)
{
    return nullptr;
}

using content_maker = common_json (*)(conversation &);

const struct {
    const char *name;
    content_maker make;
} forms[] = {{"string", string_of},   {"part", part_of}, {"parts", parts_of},
             {"media", beside_media}, {"empty", empty},  {"null", null}};

const char *const roles[] = {"system", "developer", "user", "assistant", "calls", "tool"};
const char *const places[] = {"first", "middle", "last", "twice", "alone"};

/* ---- Every role, form and place ---- */

void say_in(conversation &c, const std::string &role, content_maker make, bool twice)
{
    if (role == "tool") {
        c.call("", twice ? 2 : 1);
        for (int i = 0; i < (twice ? 2 : 1); i++) c.answer(make);
        return;
    }
    for (int i = 0; i < (twice ? 2 : 1); i++) {
        common_json content = make(c);
        if (role != "calls") {
            c.say(role, content);
            continue;
        }
        c.call(content, 1);
        c.answer(string_of);
    }
}

/* A conversation in which one role speaks in one form at one place. */
conversation conversation_of(const std::string &role, content_maker make, const std::string &place)
{
    conversation c;
    bool says_before = role == "user" || role == "system" || role == "developer";
    if (place == "first" || place == "alone") {
        say_in(c, role, make, false);
        if (place == "first") c.say("user");
        return c;
    }
    c.say("system");
    c.say("user");
    if (place == "last") {
        if (role == "user") c.say("assistant");
        say_in(c, role, make, false);
        return c;
    }
    if (says_before) c.say("assistant");
    say_in(c, role, make, place == "twice");
    if (role != "assistant") c.say("assistant");
    c.say("user");
    return c;
}

/* ---- Any conversation ---- */

conversation random_conversation(std::mt19937 &random)
{
    conversation c;
    size_t n = 1 + random() % 8;
    for (size_t i = 0; i < n; i++) {
        const char *role = roles[random() % 6];
        say_in(c, role, forms[random() % 6].make, random() % 4 == 0);
    }
    return c;
}

/* ---- Templates ---- */

std::string read(const std::filesystem::path &path)
{
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

chat_template *opened(const std::filesystem::path &path)
{
    hearth_error error = {};
    std::string source = read(path);
    chat_template_params params = {};
    params.source = source.c_str();
    params.bos = "<s>";
    params.eos = "</s>";
    chat_template *template_ = chat_template_open(&params, &error);
    if (template_ == nullptr) fail_msg("%s: %s", path.c_str(), error.message);
    return template_;
}

/* A sanitizer makes all of this ten times as slow: it then takes every tenth template. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
constexpr size_t nth = 10;
#else
constexpr size_t nth = 1;
#endif

std::vector<std::filesystem::path> templates()
{
    std::vector<std::filesystem::path> found;
    std::string folder = std::string(getenv("HEARTH_LLAMA")) + "/source/models/templates";
    for (const auto &entry : std::filesystem::directory_iterator(folder))
        if (entry.path().extension() == ".jinja") found.push_back(entry.path());
    std::sort(found.begin(), found.end());
    assert_true(found.size() > 60);
    std::vector<std::filesystem::path> taken;
    for (size_t i = 0; i < found.size(); i += nth) taken.push_back(found[i]);
    return taken;
}

/* ---- What becomes of the words ---- */

struct outcome {
    bool refused = false, is_left_out = false;
    std::string fault; /* "": none */
};

/* Results may follow their calls one by one, where the template prints one call at a time. */
bool is_in_order(const std::vector<word> &words, const std::vector<size_t> &at, size_t i)
{
    if (words[i].of_call < 0) return i == 0 || at[i] > *std::max_element(at.begin(), at.begin() + static_cast<long>(i));
    bool goes_on = words[i - 1].of_call == words[i].of_call;
    return at[i] > at[goes_on ? i - 1 : static_cast<size_t>(words[i].of_call)];
}

std::string fault_of(const std::string &text, const conversation &c)
{
    std::vector<size_t> at;
    for (const auto &one : c.words) {
        size_t first = text.find(one.text);
        if (first == std::string::npos) return "lost " + one.text;
        if (!one.is_name && text.find(one.text, first + 1) != std::string::npos) return "twice " + one.text;
        at.push_back(first);
    }
    for (size_t i = 0; i < at.size(); i++)
        if (!is_in_order(c.words, at, i)) return "moved " + c.words[i].text;
    return "";
}

chat_request request_of(const std::string &messages, const std::vector<chat_medium> &media, bool with_tools)
{
    chat_request request = {};
    request.messages = tree_of(messages.c_str());
    request.add_generation_prompt = true;
    request.now = 1772352000;
    request.media = media.data();
    request.n_media = media.size();
    request.takes_media = true;
    request.continue_final = HEARTH_CONTINUE_NEVER;
    if (with_tools)
        request.tools = tree_of(R"([{"type": "function", "function": {"name": "act", "description": "acts",
            "parameters": {"type": "object", "properties": {"x": {"type": "string"}}}}}])");
    return request;
}

outcome outcome_of(const chat_template *template_, const conversation &c, bool with_tools)
{
    outcome result;
    hearth_error error = {};
    std::string messages = c.messages.dump();
    std::vector<chat_medium> media;
    for (const auto &marker : c.media) media.push_back({marker.c_str(), true});
    chat_request request = request_of(messages, media, with_tools);
    chat_prompt prompt;
    if (chat_render_parts(template_, &request, &prompt, &error) != HEARTH_OK) {
        result.refused = true;
        result.fault = error.param[0] != 0 ? "" : "refused without a field";
        return result;
    }
    result.is_left_out = prompt.left_out != nullptr;
    if (!result.is_left_out) result.fault = fault_of(std::string(prompt.text, prompt.len), c);
    chat_prompt_release(&prompt);
    return result;
}

struct count {
    size_t cells = 0, refused = 0, left_out = 0, faults = 0;

    void note(const std::string &what, const outcome &result)
    {
        cells++;
        refused += result.refused;
        left_out += result.is_left_out;
        if (result.refused) printf("  refused: %s\n", what.c_str());
        if (result.fault.empty()) return;
        faults++;
        printf("  %s: %s\n", what.c_str(), result.fault.c_str());
    }

    void report() const
    {
        printf("  %zu cells, %zu refused, %zu left out and named, %zu others\n", cells, refused, left_out, faults);
        assert_int_equal(faults, 0);
    }
};

void every_word_of_every_role_form_and_place_is_in_the_prompt(void **)
{
    count all;
    size_t turn = 0;
    for (const auto &path : templates()) {
        chat_template *template_ = opened(path);
        turn++; /* another template begins with another form */
        for (const char *role : roles)
            for (const auto &form : forms)
                for (const char *place : places) {
                    if (!is_in_part(turn++)) continue;
                    conversation c = conversation_of(role, form.make, place);
                    bool with_tools = role == std::string("calls") || role == std::string("tool");
                    std::string what = path.stem().string() + ", " + role + ", " + form.name + ", " + place;
                    all.note(what, outcome_of(template_, c, with_tools));
                }
        chat_template_close(template_);
    }
    all.report();
}

void every_word_of_any_conversation_is_in_the_prompt(void **)
{
    count all;
    const char *given = getenv("HEARTH_SEED");
    unsigned long seed = given != nullptr ? strtoul(given, nullptr, 10) : 20261128;
    printf("  HEARTH_SEED=%lu\n", seed);
    for (const auto &path : templates()) {
        chat_template *template_ = opened(path);
        std::mt19937 random(static_cast<unsigned>(seed));
        for (int i = 0; i < 60; i++) {
            conversation c = random_conversation(random);
            if (!is_in_part(static_cast<size_t>(i))) continue;
            std::string what = path.stem().string() + ", conversation " + std::to_string(i);
            all.note(what, outcome_of(template_, c, i % 2 == 0));
        }
        chat_template_close(template_);
    }
    all.report();
}

} // namespace

int main()
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_word_of_every_role_form_and_place_is_in_the_prompt),
                                       cmocka_unit_test(every_word_of_any_conversation_is_in_the_prompt)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
