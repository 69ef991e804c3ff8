/* Grammars of calls, and of calls or text: see call_grammar.hpp. */
#include "chat/call_grammar.hpp"

#include "chat/errors.hpp"
#include "chat/schema.hpp"

#include "json-schema-to-grammar.h"

#include <cctype>

namespace chat
{

/* ---- Calls ---- */

/* Whether a rule of calls follows there, perhaps after white space. */
static bool calls_follow(const std::string &grammar, size_t at)
{
    static const std::string space = " space";
    if (grammar.compare(at, space.size() + 1, space + " ") == 0) at += space.size();
    return grammar.substr(at + 1, grammar.find_first_of(" \n", at + 1) - at - 1).find("tool") != std::string::npos;
}

/* llama.cpp allows text before a required call, and a small model may never come to the call; where the text looks like
 * the beginning of a call, none is read. This removes the text from the root rule. */
static void drop_text_before_call(std::string &grammar)
{
    size_t line = grammar.compare(0, 9, "root ::= ") == 0 ? 0 : grammar.find("\nroot ::= ");
    if (line == std::string::npos) return;
    size_t at = line;
    while ((at = grammar.find(" until-", at)) < grammar.find('\n', line + 1)) {
        size_t end = grammar.find_first_not_of("0123456789", at + 7);
        if (end != std::string::npos && grammar[end] == '?')
            grammar.erase(at, end + 1 - at);
        else if (end != std::string::npos && calls_follow(grammar, end))
            grammar.erase(at, end - at);
        else
            at++;
    }
}

/* Functionary's calls may follow a message, in llama.cpp's grammar without what its parser wants between the two. */
static void drop_message_before_call(std::string &grammar)
{
    size_t begin = grammar.find("(\"all\\n\" "), end = grammar.find(" | tools)", begin);
    if (begin != std::string::npos && end < grammar.find('\n', begin)) grammar.replace(begin, end + 9 - begin, "tools");
}

void require_call(common_chat_params &params)
{
    if (params.grammar.empty())
        throw refusal{HEARTH_UNSUPPORTED, "tool_choice",
                      "requires a call, and this model's chat template has no form of calls: leave it out"};
    drop_text_before_call(params.grammar);
    drop_message_before_call(params.grammar);
}

void close_reasoning(common_chat_params &params)
{
    if (params.grammar_lazy || params.thinking_end_tags.empty()) return;
    std::string first = gbnf_format_literal(params.thinking_end_tags[0]);
    replace_all(params.grammar, first + "?", first);
    for (const auto &tag : params.thinking_end_tags) {
        std::string end = gbnf_format_literal(tag);
        replace_all(params.grammar, "(" + end + " | )", end);
    }
}

void limit_to_one_call(std::string &grammar)
{
    static const std::string end = ")+\n";
    for (const std::string begin : {"\ntool-calls ::= (", "\ntools ::= ("}) {
        size_t at = grammar.find(begin);
        if (at == std::string::npos) continue;
        size_t stop = grammar.find('\n', at + 1);
        if (stop == std::string::npos || grammar.compare(stop + 1 - end.size(), end.size(), end) != 0) continue;
        grammar.erase(stop - 2, 2);
        grammar.erase(at + begin.size() - 1, 1);
    }
}

void close_calls_tightly(const chat_template &template_, std::string &grammar)
{
    if (template_.has_handler) return;
    const autoparser::analyze_tools &tools = template_.analysis.tools;
    if (tools.format.mode != autoparser::tool_format::TAG_WITH_TAGGED || !tools.function.close.empty()) return;
    if (tools.format.per_call_end.empty() || tools.arguments.tolerate_intertag_whitespace) return;
    std::string end = gbnf_format_literal(tools.format.per_call_end);
    replace_all(grammar, " space " + end, " " + end);
}

/* ---- Either ---- */

static bool is_of_name(char c)
{
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
}

/* Behind what begins at `at` and holds no names: quoted text, a set of characters, a token, a count, a comment. */
static size_t skip_literal(const std::string &grammar, size_t at)
{
    static const std::string begins = "\"[<{#", ends = "\"]>}\n";
    size_t kind = begins.find(grammar[at]);
    if (kind == std::string::npos) return at;
    for (at++; at < grammar.size() && grammar[at] != ends[kind]; at++)
        if (grammar[at] == '\\' && kind < 2) at++;
    return std::min(at + 1, grammar.size());
}

/* The grammar with `prefix` before the names of all of its rules. */
static std::string with_prefix(const std::string &grammar, const std::string &prefix)
{
    std::string result;
    for (size_t at = 0; at < grammar.size();) {
        size_t end = skip_literal(grammar, at);
        bool is_name = end == at && is_of_name(grammar[at]);
        while (is_name && end < grammar.size() && is_of_name(grammar[end])) end++;
        if (is_name) result += prefix;
        end = std::max(end, at + 1);
        result.append(grammar, at, end - at);
        at = end;
    }
    return result;
}

std::string either_grammar(const std::string &first, const std::string &second)
{
    return "root ::= first-root | second-root\n" + with_prefix(first, "first-") + "\n" + with_prefix(second, "second-");
}

} // namespace chat
