/* Tools as words: see worded_tools.hpp. Calls and results in earlier messages become text of the same form in
 * turns.cpp. */
#include "chat/worded_tools.hpp"

#include <string>

namespace chat
{

/* ---- The template ---- */

bool has_form_of_calls(const chat_template &template_)
{
    if (template_.has_handler) return true;
    const autoparser::autoparser &analysis = template_.analysis;
    return analysis.jinja_caps.supports_tool_calls && analysis.tools.format.mode != autoparser::tool_format::NONE;
}

void put_calls_in_words(chat_template &template_)
{
    autoparser::autoparser &analysis = template_.analysis;
    analysis.jinja_caps.supports_tool_calls = true;
    analysis.tools = autoparser::analyze_tools();
    analysis.tools.format.mode = autoparser::tool_format::JSON_NATIVE;
    analysis.tools.format.per_call_start = "<tool_call>";
    analysis.tools.format.per_call_end = "</tool_call>";
    turn_rules &rules = template_.turns;
    rules.new_calls_as_text = rules.calls_as_text = rules.results_as_text = true;
}

/* ---- The words ---- */

static std::string list_of(const common_json &tools)
{
    std::string words = "You can call functions to answer the user. They are, in JSON, one a line:\n<tools>\n";
    for (size_t i = 0; i < tools.size(); i++) words += tools.at(i).dump() + "\n";
    return words + "</tools>\n\n";
}

static std::string words_of(const turn_rules &rules, const common_json &tools)
{
    static const char form[] =
        "To call a function, write its name and its arguments as JSON between these tags:\n<tool_call>\n"
        "{\"name\": \"the function's name\", \"arguments\": {\"an argument's name\": \"its value\"}}\n</tool_call>\n"
        "Then stop: what the function returns comes next, between <tool_response> tags. ";
    return "# Tools\n\n" + (rules.tools_as_text ? list_of(tools) : "") + (rules.new_calls_as_text ? form : "") +
           "Where no function helps, answer without one.";
}

void tell_of_tools(const turn_rules &rules, std::vector<common_chat_msg> &messages, const common_json &tools)
{
    if (messages.empty() || messages.front().role != "system") {
        common_chat_msg first;
        first.role = "system";
        messages.insert(messages.begin(), first);
    }
    common_chat_msg &system = messages.front();
    std::string said = text_of(system);
    system.content_parts.clear();
    system.content = said + (said.empty() ? "" : "\n\n") + words_of(rules, tools);
}

} // namespace chat
