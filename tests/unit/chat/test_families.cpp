/* Every chat template that comes with llama.cpp, with llama.cpp itself as the oracle: what is rendered, how the reply
 * is constrained, and how canned replies are parsed while they stream. The canned replies are those of llama.cpp's own
 * test, which is compiled into this program with two of its calls redirected: whenever it has parsed a whole reply,
 * hearth's reader parses the same reply in small chunks. The resulting table is docs/templates.md;
 * HEARTH_WRITE_TEMPLATES=1 writes it. */
#include "chat-auto-parser.h"
#include "chat.h"
#include "json-schema-to-grammar.h"
#include "json_trees.h"

static common_chat_params watched_apply(const common_chat_templates *templates,
                                        const common_chat_templates_inputs &inputs);
static common_chat_msg watched_parse(const common_peg_arena &parser, const std::string &text, bool is_partial,
                                     const common_chat_parser_params &params);

#define common_chat_templates_apply watched_apply
#define common_chat_peg_parse       watched_parse
#define main(...)                                                                                                      \
    unused;                                                                                                            \
    [[maybe_unused]] static int unused_main(__VA_ARGS__)
#include "test-chat.cpp"
#undef main
#undef common_chat_peg_parse
#undef common_chat_templates_apply

#include "../../fakes/cases.h"
#include "../../fakes/sanitized.h"

#include "chat/chat.h"
#include "chat/schema.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <map>
#include <sstream>

namespace
{

/* ---- Both sides ---- */

using texts = std::vector<std::string>;

/* Of the variants a template has one in three, others with the next, and a reply comes whole and in chunks of one of
 * three sizes (fakes/cases.h). A sanitizer makes all of this ten times as slow: a template then has one in twelve, and
 * replies come in fewer chunks. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
constexpr bool sanitized = true;
const size_t one_in = 12;
#else
constexpr bool sanitized = false;
const auto one_in = static_cast<size_t>(cases(1, 3));
#endif

/* The result of either side for a request; `refusal` where it refuses. */
struct outcome {
    std::string refusal, prompt, grammar, prefill, thinking_start;
    bool lazy = false;
    texts triggers, preserved, stops, thinking_ends;
};

/* The strings that a chat_request points to. */
struct request {
    std::string messages, tools, schema, kwargs;
    hearth_tool_choice choice = HEARTH_TOOLS_AUTO;
    hearth_continue continue_final = HEARTH_CONTINUE_AUTO;
    int parallel = -1;
    bool reasoning_in_text = false, cue = true;

    chat_request for_c() const
    {
        auto given = [](const std::string &text) { return text.empty() ? nullptr : text.c_str(); };
        chat_request result = {};
        result.messages = tree_of(messages.c_str());
        result.tools = tree_of(given(tools));
        result.json_schema = tree_of(given(schema));
        result.kwargs = tree_of(given(kwargs));
        result.tool_choice = choice;
        result.continue_final = continue_final;
        result.parallel_tool_calls = parallel;
        result.reasoning_in_text = reasoning_in_text;
        result.add_generation_prompt = cue;
        result.now = std::time(nullptr);
        return result;
    }
};

struct chat_template *opened(const std::string &source)
{
    static auto &known = *new std::map<std::string, struct chat_template *>; /* to the end of the program */
    struct chat_template *&template_ = known[source];
    if (template_ != nullptr) return template_;
    hearth_error error = {};
    chat_template_params params = {};
    params.source = source.c_str();
    params.bos = params.eos = "";
    template_ = chat_template_open(&params, &error);
    if (template_ == nullptr) fail_msg("%s", error.message);
    return template_;
}

template <typename item> texts texts_of(item *const *list, size_t n)
{
    return texts(list, list + n);
}

outcome by_hearth(const std::string &source, const request &asked)
{
    outcome result;
    hearth_error error = {};
    chat_request request = asked.for_c();
    chat_prompt prompt;
    const chat_format *format;
    if (chat_render_parts(opened(source), &request, &prompt, &error) != HEARTH_OK) {
        result.refusal = error.message;
        return result;
    }
    result.prompt.assign(prompt.text, prompt.len);
    chat_prompt_release(&prompt);
    if (chat_format_open(opened(source), &request, nullptr, &format, &error) != HEARTH_OK) {
        result.refusal = error.message;
        return result;
    }
    result.grammar = format->grammar == nullptr ? "" : format->grammar;
    result.lazy = format->grammar_lazy;
    for (size_t i = 0; i < format->n_triggers; i++)
        result.triggers.push_back(std::to_string(format->triggers[i].how) + format->triggers[i].text);
    result.preserved = texts_of(format->preserved, format->n_preserved);
    result.stops = texts_of(format->stops, format->n_stops);
    result.prefill = format->prefill;
    result.thinking_start = format->thinking_start == nullptr ? "" : format->thinking_start;
    result.thinking_ends = texts_of(format->thinking_ends, format->n_thinking_ends);
    chat_format_unref(format);
    return result;
}

/* The line of a grammar that defines the rule: where it begins, and where it ends. */
std::pair<size_t, size_t> line_of(const std::string &grammar, const std::string &rule)
{
    std::string head = rule + " ::= ";
    size_t begin = grammar.compare(0, head.size(), head) == 0 ? 0 : grammar.find("\n" + head);
    if (begin == std::string::npos) return {grammar.size(), grammar.size()};
    if (grammar[begin] == '\n') begin++;
    return {begin, std::min(grammar.find('\n', begin), grammar.size())};
}

/* "RULE ::= (…)+" is "RULE ::= …". */
std::string once(const std::string &line)
{
    size_t open = line.find('('), inner = open + 1;
    bool repeats = line.size() > inner + 2 && line.compare(line.size() - 2, 2, ")+") == 0;
    if (!repeats || line.compare(open - 4, 4, "::= ") != 0) return line;
    return line.substr(0, open) + line.substr(inner, line.size() - 2 - inner);
}

/* Where hearth is stricter: no second call where only one is allowed, no reasoning without its end, no strings and
 * numbers that are no JSON. */
std::string narrowed(const common_chat_params &made, const common_chat_templates_inputs &inputs)
{
    std::string grammar = made.grammar;
    chat::mend_grammar(grammar);
    bool may_call = !inputs.tools.empty() && inputs.tool_choice != COMMON_CHAT_TOOL_CHOICE_NONE;
    for (const auto &tag : made.thinking_end_tags) {
        std::string end = gbnf_format_literal(tag);
        if (made.grammar_lazy) break;
        if (tag == made.thinking_end_tags[0]) chat::replace_all(grammar, end + "?", end);
        chat::replace_all(grammar, "(" + end + " | )", end);
    }
    for (const char *rule : {"tool-calls", "tools"}) {
        auto [begin, length] = line_of(grammar, rule);
        if (may_call && !inputs.parallel_tool_calls)
            grammar.replace(begin, length - begin, once(grammar.substr(begin, length - begin)));
    }
    return grammar;
}

outcome by_llama(const std::string &source, const common_chat_templates_inputs &inputs)
{
    outcome result;
    common_chat_templates_ptr templates = common_chat_templates_init(nullptr, source);
    try {
        common_chat_params made = common_chat_templates_apply(templates.get(), inputs);
        result.prompt = made.prompt;
        result.grammar = narrowed(made, inputs);
        result.lazy = made.grammar_lazy;
        for (const auto &trigger : made.grammar_triggers)
            result.triggers.push_back(std::to_string(trigger.type - COMMON_GRAMMAR_TRIGGER_TYPE_WORD) + trigger.value);
        result.preserved = made.preserved_tokens;
        result.stops = made.additional_stops;
        result.prefill = made.generation_prompt;
        result.thinking_start = made.thinking_start_tag;
        result.thinking_ends = made.thinking_end_tags;
    } catch (const std::exception &fault) {
        result.refusal = fault.what();
    }
    return result;
}

/* ---- Replies ---- */

struct gathered {
    common_chat_msg message;
    bool ids_are_whole = true;
    bool is_whole = false; /* each call is */
};

void gather(void *ud, const hearth_delta *delta)
{
    gathered &into = *static_cast<gathered *>(ud);
    std::string text(delta->text, delta->len);
    if (delta->type == HEARTH_DELTA_REASONING) into.message.reasoning_content += text;
    if (delta->type == HEARTH_DELTA_CONTENT) into.message.content += text;
    if (delta->type < HEARTH_DELTA_CALL) return;
    if (delta->type == HEARTH_DELTA_CALL) {
        assert_int_equal(delta->index, into.message.tool_calls.size());
        into.message.tool_calls.push_back({delta->name, "", delta->id});
    }
    assert_in_range(delta->index, 0, into.message.tool_calls.size() - 1);
    common_chat_tool_call &call = into.message.tool_calls[delta->index];
    into.ids_are_whole = into.ids_are_whole && call.id == delta->id && call.name == delta->name && !call.id.empty();
    call.arguments += text;
}

gathered read_in_pieces(const chat_format *format, const std::string &reply, size_t piece)
{
    gathered result;
    chat_reader *reader = chat_reader_open(format);
    for (size_t at = 0; at < reply.size(); at += piece) {
        std::string part = reply.substr(at, piece);
        chat_reader_add(reader, part.data(), part.size(), gather, &result);
    }
    chat_reader_end(reader, gather, &result);
    result.is_whole = chat_reader_is_whole(reader);
    chat_reader_close(reader);
    return result;
}

struct family {
    bool shows_tools = false, takes_history = false, reasons = false;
    int cuts = 0; /* replies that were cut everywhere */
    size_t replies = 0, calls = 0, parallel = 0, reasoning = 0;
};

std::map<std::string, family> families; /* by the template's text */

std::string described(const common_chat_msg &message)
{
    std::ostringstream out;
    out << "reasoning <" << message.reasoning_content << "> content <" << message.content << ">";
    for (const auto &call : message.tool_calls) out << " call " << call.name << " <" << call.arguments << ">";
    return out.str();
}

void assert_reads(const chat_format *format, const std::string &reply, const common_chat_msg &expected)
{
    static size_t turn;
    const size_t sizes[] = {7, 3, 1}, in_turn = sizes[turn++ % std::size(sizes)];
    for (size_t piece : {reply.size() + 1, sizes[0], sizes[1], sizes[2]}) {
        if (sanitized && piece < 7 && reply.size() > 20) break;
        if (!sanitized && !is_thorough() && piece < reply.size() && piece != in_turn) continue;
        gathered read = read_in_pieces(format, reply, piece);
        if (described(read.message) != described(expected))
            fail_msg("in pieces of %zu:\n%s\nreads as\n%s\nnot\n%s", piece, reply.c_str(),
                     described(read.message).c_str(), described(expected).c_str());
        assert_true(read.ids_are_whole);
        if (!read.is_whole) fail_msg("cut off, it is said:\n%s", reply.c_str());
        for (const auto &call : read.message.tool_calls) common_json::parse(call.arguments);
    }
}

/* The last request of llama.cpp's test. */
std::string current_source;
common_chat_templates_inputs current_inputs;

request as_request(const common_chat_templates_inputs &inputs)
{
    static const std::map<common_chat_continuation, hearth_continue> ways = {
        {COMMON_CHAT_CONTINUATION_NONE, HEARTH_CONTINUE_NEVER},
        {COMMON_CHAT_CONTINUATION_AUTO, HEARTH_CONTINUE_AUTO},
        {COMMON_CHAT_CONTINUATION_REASONING, HEARTH_CONTINUE_REASONING},
        {COMMON_CHAT_CONTINUATION_CONTENT, HEARTH_CONTINUE_CONTENT}};
    request result;
    common_json kwargs = common_json::object();
    for (const auto &entry : inputs.chat_template_kwargs) kwargs[entry.first] = common_json::parse(entry.second);
    kwargs["enable_thinking"] = inputs.enable_thinking;
    result.messages = common_chat_msgs_to_json_oaicompat(inputs.messages).dump();
    if (!inputs.tools.empty()) result.tools = common_chat_tools_to_json_oaicompat(inputs.tools).dump();
    result.schema = inputs.json_schema;
    result.kwargs = kwargs.dump();
    result.choice = inputs.tool_choice == COMMON_CHAT_TOOL_CHOICE_NONE       ? HEARTH_TOOLS_NONE
                    : inputs.tool_choice == COMMON_CHAT_TOOL_CHOICE_REQUIRED ? HEARTH_TOOLS_REQUIRED
                                                                             : HEARTH_TOOLS_AUTO;
    result.continue_final = ways.at(inputs.continue_final_message);
    result.parallel = inputs.parallel_tool_calls;
    result.reasoning_in_text = inputs.reasoning_format == COMMON_REASONING_FORMAT_NONE;
    result.cue = inputs.add_generation_prompt;
    return result;
}

/* llama.cpp returns the whole continued message, hearth only the new part. */
void take_away(std::string &text, const std::string &prefix)
{
    if (text.compare(0, prefix.size(), prefix) == 0) text.erase(0, prefix.size());
}

/* Wherever a reply with calls breaks off, a call in it is said to be whole only if it is. */
void assert_cuts_are_seen(const chat_format *format, const std::string &reply, const common_chat_msg &expected)
{
    for (size_t end = 1; end < reply.size(); end++) {
        gathered read = read_in_pieces(format, reply.substr(0, end), reply.size());
        for (size_t i = 0; read.is_whole && i < read.message.tool_calls.size(); i++) {
            const common_chat_tool_call &call = read.message.tool_calls[i];
            if (call.name != expected.tool_calls.at(i).name || call.arguments != expected.tool_calls.at(i).arguments)
                fail_msg("whole, it is said: %s", reply.substr(0, end).c_str());
        }
    }
}

void check_reply(const std::string &reply, common_chat_msg expected, const common_chat_msg &before)
{
    request asked = as_request(current_inputs);
    chat_request request = asked.for_c();
    hearth_error error = {};
    const chat_format *format;
    if (chat_format_open(opened(current_source), &request, nullptr, &format, &error) != HEARTH_OK)
        fail_msg("%s: %s", error.param, error.message);
    for (auto &call : expected.tool_calls)
        if (call.arguments.empty()) call.arguments = "{}";
    if (current_inputs.continue_final_message != COMMON_CHAT_CONTINUATION_NONE) {
        take_away(expected.content, before.content);
        take_away(expected.reasoning_content, before.reasoning_content);
    }
    assert_reads(format, reply, expected);
    family &seen = families[current_source];
    bool calls = !expected.tool_calls.empty();
    if (calls && seen.cuts++ < (sanitized ? 0 : 2)) assert_cuts_are_seen(format, reply, expected);
    chat_format_unref(format);
    seen.replies++;
    seen.calls += expected.tool_calls.size() == 1;
    seen.parallel += expected.tool_calls.size() > 1;
    seen.reasoning += !expected.reasoning_content.empty();
}

void canned_replies_read_the_same_in_any_pieces(void **)
{
    std::filesystem::current_path(std::string(std::getenv("HEARTH_LLAMA")) + "/source");
    test_template_output_peg_parsers(false);
    size_t with_replies = 0;
    for (const auto &entry : families) with_replies += entry.second.replies > 0;
    assert_true(with_replies >= 25);
}

/* ---- Every template ---- */

#define USER "{\"role\":\"user\",\"content\":\"What is the weather?\"}"
#define CALLED                                                                                                         \
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"call12345\",\"type\":\"function\","            \
    "\"function\":{\"name\":\"weather\",\"arguments\":\"{\\\"city\\\": \\\"Ulm\\\"}\"}}]}"
#define RESULT "{\"role\":\"tool\",\"tool_call_id\":\"call12345\",\"name\":\"weather\",\"content\":\"Fog.\"}"
#define TOOLS                                                                                                          \
    "[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"description\":\"Tells the weather.\","               \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"},\"days\":{\"type\":"           \
    "\"integer\"}},\"required\":[\"city\"]}}},{\"type\":\"function\",\"function\":{\"name\":\"clock\"}}]"
#define SCHEMA "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]}"

struct variant {
    const char *name, *messages, *tools, *schema, *kwargs;
    hearth_tool_choice choice;
    bool tabled; /* the table lists its result */
};

const variant variants[] = {
    {"plain", "[" USER "]", "", "", "", HEARTH_TOOLS_AUTO, true},
    {"tools", "[" USER "]", TOOLS, "", "", HEARTH_TOOLS_AUTO, true},
    {"tools, none", "[" USER "]", TOOLS, "", "", HEARTH_TOOLS_NONE, false},
    {"tools, required", "[" USER "]", TOOLS, "", "", HEARTH_TOOLS_REQUIRED, false},
    {"schema", "[" USER "]", "", SCHEMA, "", HEARTH_TOOLS_AUTO, false},
    {"no thinking", "[" USER "]", "", "", "{\"enable_thinking\":false}", HEARTH_TOOLS_AUTO, false},
    {"history", "[" USER "," CALLED "," RESULT "]", TOOLS, "", "", HEARTH_TOOLS_AUTO, true},
    {"content goes on", "[" USER ",{\"role\":\"assistant\",\"content\":\"It is\"}]", "", "", "", HEARTH_TOOLS_AUTO,
     false},
    {"reasoning goes on", "[" USER ",{\"role\":\"assistant\",\"reasoning_content\":\"Is it\",\"content\":\"\"}]", "",
     "", "", HEARTH_TOOLS_AUTO, false},
};

/* As llama-server sets them. */
common_chat_templates_inputs inputs_of(const variant &asked, const std::string &source)
{
    static const common_chat_tool_choice choices[] = {COMMON_CHAT_TOOL_CHOICE_AUTO, COMMON_CHAT_TOOL_CHOICE_NONE,
                                                      COMMON_CHAT_TOOL_CHOICE_REQUIRED};
    common_chat_templates_inputs inputs;
    common_chat_templates_ptr templates = common_chat_templates_init(nullptr, source);
    common_json kwargs = asked.kwargs[0] == 0 ? common_json::object() : common_json::parse(asked.kwargs);
    for (const auto &entry : kwargs.items()) inputs.chat_template_kwargs[entry.key()] = entry.value().dump();
    inputs.chat_template_kwargs.emplace("preserve_reasoning", "true");
    inputs.messages = common_chat_msgs_parse_oaicompat(common_json::parse(asked.messages));
    if (asked.tools[0] != 0) inputs.tools = common_chat_tools_parse_oaicompat(common_json::parse(asked.tools));
    inputs.json_schema = asked.schema;
    inputs.tool_choice = choices[asked.choice];
    inputs.reasoning_format = COMMON_REASONING_FORMAT_DEEPSEEK;
    inputs.parallel_tool_calls = common_chat_templates_get_caps(templates.get())["supports_parallel_tool_calls"];
    inputs.enable_thinking = common_chat_templates_support_enable_thinking(templates.get());
    if (kwargs.contains("enable_thinking")) inputs.enable_thinking = kwargs.at("enable_thinking").get<bool>();
    if (inputs.messages.back().role == "assistant") {
        inputs.continue_final_message = COMMON_CHAT_CONTINUATION_AUTO;
        inputs.add_generation_prompt = false;
    }
    return inputs;
}

outcome by_hearth(const std::string &source, const variant &asked)
{
    request given;
    given.messages = asked.messages;
    given.tools = asked.tools;
    given.schema = asked.schema;
    given.kwargs = asked.kwargs;
    given.choice = asked.choice;
    return by_hearth(source, given);
}

void assert_same(const char *what, const std::string &name, const std::string &ours, const std::string &theirs)
{
    if (ours != theirs)
        fail_msg("%s, %s:\n%s\nis not llama.cpp's\n%s", name.c_str(), what, ours.c_str(), theirs.c_str());
}

std::string joined(const texts &list)
{
    std::string result;
    for (const auto &text : list) result += "<" + text + ">";
    return result;
}

/* Without white space before the end of a call, where llama.cpp's parser takes none: see test_call_grammars.c. */
std::string closed_tightly(std::string grammar)
{
    auto [begin, end] = line_of(grammar, "tool-call");
    std::string line = grammar.substr(begin, end - begin);
    for (const char *tag : {"\"</tool_call>\"", "\"</function_call>\""})
        chat::replace_all(line, std::string(" space ") + tag, std::string(" ") + tag);
    return grammar.replace(begin, end - begin, line);
}

/* Where llama.cpp drops what a request asks for, hearth keeps it or refuses the request. */
bool keeps_what_llama_cpp_drops(const variant &asked, const outcome &ours, const outcome &theirs)
{
    if (!theirs.grammar.empty()) return false;
    if (asked.schema[0] != '\0' && ours.refusal.empty())
        return ours.grammar.find("response-format") != std::string::npos;
    return asked.choice == HEARTH_TOOLS_REQUIRED && ours.refusal.find("has no form of calls") != std::string::npos;
}

/* Of a required call the root rule is hearth's own: nothing else comes before it. */
std::string compared(const variant &asked, const outcome &of)
{
    auto [begin, end] = line_of(of.grammar, "root");
    bool required = asked.choice == HEARTH_TOOLS_REQUIRED && begin < end;
    return required ? of.grammar.substr(0, begin) + of.grammar.substr(end) : of.grammar;
}

/* Whether the prompt has the call and the result of the history. */
bool shows_history(const std::string &prompt)
{
    return prompt.find("Ulm") != std::string::npos && prompt.find("Fog.") != std::string::npos;
}

/* Tools and calls that are words, where the template or llama.cpp knows none: test_worded_tools.c. */
bool tells_in_words(const variant &asked, const outcome &ours)
{
    return asked.tools[0] != '\0' &&
           ours.prompt.find("Where no function helps, answer without one.") < std::string::npos;
}

/* Where llama.cpp loses a call or its result, hearth does not: test_forms.cpp. */
void assert_same(const std::string &name, const variant &asked, const outcome &ours, const outcome &theirs,
                 bool has_history)
{
    bool they_lose = has_history && !shows_history(theirs.prompt);
    if (they_lose && !shows_history(ours.prompt)) fail_msg("%s: %s", name.c_str(), ours.prompt.c_str());
    if (tells_in_words(asked, ours)) return;
    if (they_lose || keeps_what_llama_cpp_drops(asked, ours, theirs)) return;
    if (ours.refusal.empty() != theirs.refusal.empty())
        fail_msg("%s: hearth says '%s', llama.cpp '%s'", name.c_str(), ours.refusal.c_str(), theirs.refusal.c_str());
    assert_same("prompt", name, ours.prompt, theirs.prompt);
    std::string mine = compared(asked, ours), other = compared(asked, theirs);
    assert_same("grammar", name, mine, mine == other ? other : closed_tightly(other));
    assert_same("prefill", name, ours.prefill, theirs.prefill);
    assert_same("thinking", name, ours.thinking_start + joined(ours.thinking_ends),
                theirs.thinking_start + joined(theirs.thinking_ends));
    assert_same("triggers", name, joined(ours.triggers), joined(theirs.triggers));
    assert_same("preserved tokens", name, joined(ours.preserved), joined(theirs.preserved));
    assert_same("stops", name, joined(ours.stops), joined(theirs.stops));
    assert_int_equal(ours.lazy, theirs.lazy);
}

/* The names of the template files, in order, with their texts. */
std::map<std::string, std::string> template_files()
{
    std::map<std::string, std::string> result;
    std::filesystem::path folder = std::string(std::getenv("HEARTH_LLAMA")) + "/source/models/templates";
    for (const auto &entry : std::filesystem::directory_iterator(folder))
        if (entry.path().extension() == ".jinja") result[entry.path().stem()] = read_file(entry.path());
    return result;
}

/* A template that prints the time may do so in two different minutes: then once more. */
outcome ours_beside(const std::string &source, const variant &asked, outcome &theirs)
{
    common_chat_templates_inputs inputs = inputs_of(asked, source);
    theirs = by_llama(source, inputs);
    outcome ours = by_hearth(source, asked);
    if (ours.prompt == theirs.prompt) return ours;
    theirs = by_llama(source, inputs);
    return by_hearth(source, asked);
}

/* llama.cpp's tests name a template's text; families are keyed by it. */
std::string as_loaded(const std::string &source)
{
    return common_chat_templates_source(common_chat_templates_init(nullptr, source).get());
}

void every_template_gives_what_llama_cpp_gives(void **)
{
    auto files = template_files();
    assert_true(files.size() >= 60);
    size_t turn = 0;
    for (const auto &[name, source] : files) {
        std::map<std::string, outcome> made;
        turn++;
        for (size_t i = 0; i < std::size(variants); i++) {
            const variant &asked = variants[i];
            if (!asked.tabled && (turn + i) % one_in != 0) continue;
            outcome theirs;
            outcome ours = made[asked.name] = ours_beside(source, asked, theirs);
            bool has_history = asked.name == std::string("history");
            assert_same(name + ", " + asked.name, asked, ours, theirs, has_history);
            if (has_history) families[as_loaded(source)].takes_history = shows_history(theirs.prompt);
        }
        family &seen = families[as_loaded(source)];
        assert_string_equal(made["plain"].refusal.c_str(), "");
        const std::string &with_tools = made["tools"].prompt;
        seen.shows_tools = with_tools.find("Tells the weather.") != std::string::npos &&
                           with_tools.find("You can call functions to answer the user.") == std::string::npos;
        seen.reasons = !made["plain"].thinking_start.empty();
    }
}

/* ---- The table ---- */

std::string count(size_t n)
{
    return n == 0 ? "" : std::to_string(n);
}

std::string table()
{
    std::ostringstream out;
    out << "# Chat templates\n\n"
           "Checked against llama.cpp by tests/unit/chat/test_families.cpp, which also writes this table. A template "
           "that\n"
           "is none of these is analysed when its model is loaded, as most of these are.\n\n"
           "- *tools*: the template prints the tools. Where it does not, they are words of the system's.\n"
           "- *calls*: the template prints earlier calls with their results. Where it does not, they are words of the\n"
           "  assistant's and the user's.\n"
           "- *reasoning*: the template's format sets reasoning apart from content.\n"
           "- The numbers: canned replies that read the same streamed as whole, and as llama.cpp reads them; those "
           "among\n"
           "  them with reasoning, with one call, and with several.\n\n"
           "| template | tools | calls | reasoning | replies | reasoning | one call | several |\n"
           "|---|---|---|---|---|---|---|---|\n";
    for (const auto &[name, source] : template_files()) {
        const family &seen = families.at(as_loaded(source));
        auto mark = [](bool yes) { return yes ? "yes" : "no"; };
        out << "| " << name << " | " << mark(seen.shows_tools) << " | " << mark(seen.takes_history) << " | "
            << mark(seen.reasons) << " | " << count(seen.replies) << " | " << count(seen.reasoning) << " | "
            << count(seen.calls) << " | " << count(seen.parallel) << " |\n";
    }
    return out.str();
}

void the_table_in_the_documents_is_this_one(void **)
{
    std::string path = std::string(std::getenv("HEARTH_SOURCE")) + "/docs/templates.md", now = table();
    std::cout << now;
    if (std::getenv("HEARTH_WRITE_TEMPLATES") != nullptr) std::ofstream(path) << now;
    assert_string_equal(read_file(path).c_str(), now.c_str());
}

} // namespace

static common_chat_params watched_apply(const common_chat_templates *templates,
                                        const common_chat_templates_inputs &inputs)
{
    current_source = common_chat_templates_source(templates);
    current_inputs = inputs;
    return common_chat_templates_apply(templates, inputs);
}

static common_chat_msg watched_parse(const common_peg_arena &parser, const std::string &text, bool is_partial,
                                     const common_chat_parser_params &params)
{
    common_chat_msg result = common_chat_peg_parse(parser, text, is_partial, params);
    if (!is_partial) check_reply(text, result, common_chat_peg_parse(parser, "", true, params));
    return result;
}

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_template_gives_what_llama_cpp_gives),
        cmocka_unit_test(canned_replies_read_the_same_in_any_pieces),
        cmocka_unit_test(the_table_in_the_documents_is_this_one),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
