/* System messages in the middle of a conversation: see system.hpp. */
#include "chat/system.hpp"

#include "chat/request.hpp"

namespace chat
{

/* ---- Asking a template ---- */

static bool prints_in_order(const std::string &text, int n_words)
{
    size_t at = 0;
    for (int i = 1; i <= n_words && at != std::string::npos; i++) at = text.find("word-" + std::to_string(i), at);
    return at != std::string::npos;
}

bool accepts_later_system(const chat_template &template_)
{
    /* As agents send them: one system message ends the request, one comes between two turns. */
    static const struct {
        const char *messages;
        int n_words;
    } conversations[] = {{R"([{"role":"user","content":"word-1"},{"role":"system","content":"word-2"}])", 2},
                         {R"([{"role":"system","content":"word-1"},{"role":"user","content":"word-2"},
                              {"role":"assistant","content":"word-3"},{"role":"system","content":"word-4"},
                              {"role":"user","content":"word-5"}])",
                          5}};
    render_scope scope(0);
    try {
        for (const auto &conversation : conversations) {
            chat_request request = {};
            request.messages_json = conversation.messages;
            request.add_generation_prompt = true;
            std::string text = prompt_of(template_, read_request(template_, request, parse_request(request))).prompt;
            if (!prints_in_order(text, conversation.n_words)) return false;
        }
    } catch (const std::exception &) {
        return false;
    }
    return true;
}

/* ---- Wrapping ---- */

static void join(common_chat_msg &message, const std::string &text)
{
    if (!message.content_parts.empty())
        message.content_parts.push_back({"text", text});
    else
        message.content += (message.content.empty() ? "" : "\n\n") + text;
}

void wrap_later_system(std::vector<common_chat_msg> &messages)
{
    std::vector<common_chat_msg> turns;
    bool open = false; /* the last turn ends with a wrapped system message: the user's next message is appended to it */
    for (auto &message : messages) {
        bool wraps = message.role == "system" && !turns.empty() && turns.back().role != "system";
        std::string text = message.render_content("\n");
        if (wraps) text.insert(0, "<system>\n").append("\n</system>");
        bool joins = !turns.empty() && turns.back().role == (wraps ? "user" : message.role) &&
                     (message.role == "system" || (message.role == "user" && open));
        if (joins) {
            join(turns.back(), text);
        } else if (wraps) {
            turns.emplace_back();
            turns.back().role = "user";
            turns.back().content = text;
        } else {
            turns.push_back(std::move(message));
        }
        open = wraps || (joins && open);
    }
    messages = std::move(turns);
}

} // namespace chat
