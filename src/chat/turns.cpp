/* Turns as templates want them: see turns.hpp. */
#include "chat/turns.hpp"

#include "chat/errors.hpp"
#include "chat/request.hpp"

#include <cctype>

namespace chat
{

/* ---- Asking a template ---- */

static bool prints_in_order(const std::string &text, int n_words)
{
    size_t at = 0;
    for (int i = 1; i <= n_words && at != std::string::npos; i++) at = text.find("word-" + std::to_string(i), at);
    return at != std::string::npos;
}

answer ask_template(const chat_template &template_, const std::string &messages_json, int n_words)
{
    render_scope scope(0);
    try {
        chat_request request = {};
        request.messages_json = messages_json.c_str();
        request.add_generation_prompt = true;
        std::string text = prompt_of(template_, read_request(template_, request, parse_request(request))).prompt;
        return prints_in_order(text, n_words) ? answer::prints : answer::prints_otherwise;
    } catch (const std::exception &) {
        return answer::refuses;
    } catch (const refusal &) {
        return answer::refuses;
    }
}

static std::string one_call(const std::string &id)
{
    return R"([{"role":"user","content":"word-1"},{"role":"assistant","content":"","tool_calls":[
               {"type":"function","id":")" +
           id + R"(","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":")" + id +
           R"(","content":"word-2"})";
}

turn_rules find_turn_rules(const chat_template &template_)
{
    static const char user[] = R"([{"role":"user","content":"word-1"})", more[] = R"(,{"role":"user","content":"word-)";
    const std::string with_short_id = one_call("abc123DEF"), with_long_id = one_call("call_0123456789abcdefghijklmn");
    auto takes = [&](const std::string &messages, int n) {
        return ask_template(template_, messages, n) == answer::prints;
    };
    auto refuses = [&](const std::string &messages) { return ask_template(template_, messages, 0) == answer::refuses; };
    turn_rules rules;
    rules.joins_users = takes(std::string(user) + "]", 1) && refuses(std::string(user) + more + "2\"}]");
    bool takes_results = takes(with_short_id + "]", 2);
    rules.joins_results = takes_results && refuses(with_short_id + more + "3\"}]");
    rules.shortens_ids = takes_results && refuses(with_long_id + "]");
    return rules;
}

/* ---- Joining ---- */

void append_text(common_chat_msg &message, const std::string &text)
{
    if (text.empty()) return;
    if (!message.content_parts.empty())
        message.content_parts.push_back({"text", text});
    else
        message.content += (message.content.empty() ? "" : "\n\n") + text;
}

static std::string text_of(const common_chat_msg &message)
{
    std::string text = message.content;
    for (const auto &part : message.content_parts) text += (text.empty() ? "" : "\n") + part.text;
    return text;
}

/* Parts stay where a user shows media: what tools return is text to most templates. */
static void append(common_chat_msg &message, common_chat_msg &more)
{
    if (message.role == "tool" || (!message.contains_media() && !more.contains_media())) {
        message.content = text_of(message);
        message.content_parts.clear();
        append_text(message, text_of(more));
        return;
    }
    if (message.content_parts.empty()) message.content_parts.push_back({"text", message.content});
    message.content.clear();
    if (more.content_parts.empty()) append_text(message, more.content);
    for (auto &part : more.content_parts) message.content_parts.push_back(std::move(part));
}

static void join_turns(const turn_rules &rules, std::vector<common_chat_msg> &messages)
{
    std::vector<common_chat_msg> turns;
    for (auto &message : messages) {
        const std::string before = turns.empty() ? "" : turns.back().role;
        bool joins = (rules.joins_users && before == "user") || (rules.joins_results && before == "tool");
        if (message.role == "user" && joins)
            append(turns.back(), message);
        else
            turns.push_back(std::move(message));
    }
    messages = std::move(turns);
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

void keep_turn_rules(const turn_rules &rules, std::vector<common_chat_msg> &messages)
{
    if (rules.joins_users || rules.joins_results) join_turns(rules, messages);
    for (auto &message : messages) {
        if (!rules.shortens_ids) continue;
        for (auto &call : message.tool_calls) call.id = short_id(call.id);
        if (message.role == "tool") message.tool_call_id = short_id(message.tool_call_id);
    }
}

} // namespace chat
