/* System messages in the middle of a conversation: see system.hpp. */
#include "chat/system.hpp"

#include "chat/turns.hpp"

namespace chat
{

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
    for (const auto &one : conversations)
        if (ask_template(template_, one.messages, one.n_words) != answer::prints) return false;
    return true;
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
            append_text(turns.back(), text);
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
