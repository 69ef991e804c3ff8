/* Turns as templates want them: see turns.hpp. */
#include "chat/turns.hpp"

#include "chat/fields.hpp"
#include "chat/wide.hpp"

#include <algorithm>
#include <cctype>
#include <cstdint>

namespace chat
{

/* ---- Text ---- */

std::string text_of(const common_chat_msg &message)
{
    if (message.content_parts.empty()) return message.content;
    std::string text;
    bool behind_medium = true; /* or at the beginning */
    for (const auto &part : message.content_parts) {
        bool is_medium = part.type == "media_marker";
        if (!is_medium && !behind_medium) text += "\n";
        text += part.text;
        behind_medium = is_medium;
    }
    return text;
}

static void set_text(common_chat_msg &message, const std::string &text)
{
    message.content_parts.clear();
    message.content = text;
}

/* Adds a text, unless it is empty, to what the message says. */
static void append_text(common_chat_msg &message, const std::string &text, const char *between = "\n\n")
{
    std::string before = text_of(message);
    if (!text.empty()) set_text(message, before.empty() ? text : before + between + text);
}

void join_before(common_chat_msg &message, const common_chat_msg &before)
{
    std::string after = text_of(message);
    set_text(message, text_of(before));
    append_text(message, after);
    if (message.reasoning_content.empty()) message.reasoning_content = before.reasoning_content;
}

static common_chat_msg message_of(const char *role, const std::string &text)
{
    common_chat_msg message;
    message.role = role;
    message.content = text;
    return message;
}

/* ---- Calls and results ---- */

static void put_result(const turn_rules &rules, std::vector<common_chat_msg> &turns, const common_chat_msg &result)
{
    turns.push_back(result);
    if (!rules.results_as_text) return;
    std::string text = "<tool_response>\n" + text_of(result) + "\n</tool_response>";
    turns.back() = message_of("user", text);
}

static void put_calls(const turn_rules &rules, std::vector<common_chat_msg> &turns, const common_chat_msg &asked,
                      std::vector<common_chat_msg> &results)
{
    common_chat_msg calls = asked;
    if (rules.calls_as_text) {
        for (const auto &call : asked.tool_calls) {
            std::string arguments = call.arguments.empty() ? "{}" : call.arguments;
            append_text(calls,
                        "<tool_call>\n{\"name\": " + common_json(call.name).dump() + ", \"arguments\": " + arguments +
                            "}\n</tool_call>",
                        "\n");
        }
        calls.tool_calls.clear();
        return turns.push_back(calls);
    }
    /* The text beside the calls is a message of its own before them. */
    if (rules.text_before_calls && !text_of(asked).empty()) {
        turns.push_back(asked);
        turns.back().tool_calls.clear();
        turns.back().reasoning_content.clear(); /* which stays beside the calls */
        set_text(calls, "");
    }
    if (!rules.calls_apart) return turns.push_back(calls);
    /* Each call is a message of its own, and its result follows it: the one with its id, else the first. */
    common_chat_msg one = calls;
    for (const auto &call : calls.tool_calls) {
        one.tool_calls = {call};
        turns.push_back(one);
        auto found = std::find_if(results.begin(), results.end(), [&](const common_chat_msg &result) {
            return !call.id.empty() && result.tool_call_id == call.id;
        });
        if (found == results.end()) found = results.begin();
        if (found != results.end()) {
            turns.push_back(std::move(*found));
            results.erase(found);
        }
        set_text(one, "");
        one.reasoning_content.clear();
    }
}

static std::vector<common_chat_msg> with_calls(const turn_rules &rules, const std::vector<common_chat_msg> &before)
{
    std::vector<common_chat_msg> turns;
    for (auto one = before.begin(); one != before.end();) {
        const common_chat_msg &said = *one++;
        if (said.tool_calls.empty()) {
            said.role == "tool" ? put_result(rules, turns, said) : turns.push_back(said);
            continue;
        }
        std::vector<common_chat_msg> results;
        while (one != before.end() && one->role == "tool") results.push_back(*one++);
        put_calls(rules, turns, said, results);
        for (const auto &result : results) put_result(rules, turns, result);
    }
    return turns;
}

/* ---- System messages ---- */

/* Messages that are the user's are marked as open where a system message is the last part of them: the next message of
 * the user's is appended. */
static std::vector<common_chat_msg> with_system(const turn_rules &rules, const std::vector<common_chat_msg> &before)
{
    if (rules.system == system_place::anywhere) return before;
    std::vector<common_chat_msg> turns;
    bool open = false, leads = true; /* only system messages so far */
    const char *between = "\n\n";
    for (const auto &one : before) {
        const std::string role = one.role, text = text_of(one);
        bool is_system = role == "system";
        bool becomes_user = is_system && (!leads || rules.system == system_place::nowhere);
        bool appends =
            !turns.empty() && ((is_system && (leads || turns.back().role == "user")) || (role == "user" && open));
        std::string said = is_system && !leads ? "<system>\n" + text + "\n</system>" : text;
        if (appends && is_system && leads)
            append_text(turns.back(), said);
        else if (appends)
            append_text(turns.back(), said, between);
        else
            turns.push_back(becomes_user ? message_of("user", said) : one);
        open = becomes_user || (appends && open);
        between = leads && is_system ? rules.system_end.c_str() : "\n\n";
        leads = leads && is_system;
    }
    return turns;
}

/* ---- Who follows whom ---- */

static bool is_plain_assistant(const common_chat_msg &message)
{
    return message.role == "assistant" && message.tool_calls.empty();
}

static void put_in_row(const turn_rules &rules, std::vector<common_chat_msg> &turns, const common_chat_msg &next)
{
    const std::string role = next.role;
    common_chat_msg *last = turns.empty() ? nullptr : &turns.back();
    bool two_say = last != nullptr && is_plain_assistant(*last) && is_plain_assistant(next);
    bool says_and_calls = last != nullptr && is_plain_assistant(*last) && !next.tool_calls.empty();
    bool joins = last != nullptr && role == "user" &&
                 ((rules.joins_users && last->role == "user") || (rules.joins_results && last->role == "tool"));
    if (joins) return append_text(*last, text_of(next));
    if (two_say && rules.in_a_row == assistants::joined) {
        common_chat_msg before = std::move(*last);
        *last = next;
        return join_before(*last, before);
    }
    bool parts = (two_say && rules.in_a_row == assistants::parted) || (says_and_calls && rules.parts_calls);
    if (parts) turns.push_back(message_of("user", ""));
    turns.push_back(next);
}

static std::vector<common_chat_msg> in_a_row(const turn_rules &rules, const std::vector<common_chat_msg> &before,
                                             bool whole)
{
    std::vector<common_chat_msg> turns;
    bool begun = !rules.user_first;
    for (const auto &one : before) {
        const std::string role = one.role;
        if (!begun && role != "system" && role != "user") put_in_row(rules, turns, message_of("user", ""));
        begun = begun || role != "system";
        put_in_row(rules, turns, one);
    }
    if (!begun && whole) turns.push_back(message_of("user", ""));
    return turns;
}

/* ---- Ids ---- */

/* The id, if it is nine letters and digits, else nine of its hash (FNV-1a). */
static std::string short_id(const std::string &id)
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    static const size_t n = 9;
    uint64_t hash = 14695981039346656037U;
    bool fits = id.size() == n;
    for (unsigned char c : id) {
        fits = fits && std::isalnum(c) != 0;
        hash = (hash ^ c) * 1099511628211U;
    }
    if (fits) return id;
    std::string result;
    for (; result.size() < n; hash /= sizeof letters - 1) result += letters[hash % (sizeof letters - 1)];
    return result;
}

std::vector<common_chat_msg> make_turns(const turn_rules &rules, const std::vector<common_chat_msg> &messages,
                                        bool whole)
{
    std::vector<common_chat_msg> turns = messages;
    for (auto &one : turns)
        if (one.contains_media()) set_text(one, text_of(one));
    turns = in_a_row(rules, with_system(rules, with_calls(rules, turns)), whole);
    if (rules.shortens_ids) {
        for (auto &one : turns) {
            for (auto &call : one.tool_calls) call.id = short_id(call.id);
            if (one.role == "tool") one.tool_call_id = short_id(one.tool_call_id);
        }
    }
    return turns;
}

turn_rules plain_rules(const turn_rules &known)
{
    turn_rules rules = known;
    rules.system = system_place::nowhere;
    rules.calls_as_text = rules.results_as_text = rules.user_first = rules.joins_users = true;
    rules.in_a_row = assistants::joined;
    return rules;
}

/* ---- Tools as words ---- */

void tell_of_tools(const turn_rules &rules, std::vector<common_chat_msg> &messages, const common_json &tools)
{
    static const char form[] =
        "To call a function, write its name and its arguments as JSON between these tags:\n<tool_call>\n"
        "{\"name\": \"the function's name\", \"arguments\": {\"an argument's name\": \"its value\"}}\n</tool_call>\n"
        "Then stop: what the function returns comes next, between <tool_response> tags. ";
    std::string words = "# Tools\n\n";
    if (rules.tools_as_text) {
        words += "You can call functions to answer the user. They are, in JSON, one a line:\n<tools>\n";
        for (size_t i = 0; i < tools.size(); i++) words += tools.at(i).dump() + "\n";
        words += "</tools>\n\n";
    }
    if (rules.new_calls_as_text) words += form;
    words += "Where no function helps, answer without one.";
    if (messages.empty() || messages.front().role != "system")
        messages.insert(messages.begin(), message_of("system", ""));
    append_text(messages.front(), words);
}

/* ---- Handing over ---- */

/* Arguments that are no object stay the text that they are: of a call that was cut off, or of a model that cannot write
 * JSON. */
static common_json arguments_of(const turn_rules &rules, const std::string &text)
{
    if (text.find_first_not_of(" \t\r\n") == std::string::npos) return arguments_of(rules, "{}");
    common_json parsed;
    try {
        parsed = parse_json(mark_wide_numbers(text), "arguments");
    } catch (const refusal &) {
        parsed = common_json(); /* no JSON: raw, too */
    }
    if (parsed.is_object()) return rules.argument_objects ? parsed : common_json(text);
    if (!rules.wraps_raw) return common_json(text);
    common_json wrapped = common_json{{"arguments", text}};
    return rules.argument_objects ? wrapped : common_json(wrapped.dump());
}

common_json turns_to_json(const turn_rules &rules, const std::vector<common_chat_msg> &turns)
{
    std::vector<common_chat_msg> messages = turns;
    for (auto &one : messages) {
        shape wanted = one.role == "system"      ? rules.system_shape
                       : one.role == "assistant" ? rules.assistant_shape
                       : one.role == "tool"      ? rules.tool_shape
                                                 : rules.user_shape;
        bool is_text = one.content_parts.empty();
        if (wanted == shape::native || wanted == (is_text ? shape::text : shape::parts)) continue;
        std::string text = text_of(one);
        set_text(one, wanted == shape::text ? text : "");
        if (wanted != shape::text) one.content_parts.push_back({"text", text});
    }
    common_json array = common_chat_msgs_to_json_oaicompat(messages, false);
    for (size_t i = 0; i < messages.size(); i++) {
        for (size_t k = 0; k < messages[i].tool_calls.size(); k++)
            array[i]["tool_calls"][k]["function"]["arguments"] =
                arguments_of(rules, messages[i].tool_calls[k].arguments);
    }
    return array;
}

} // namespace chat
