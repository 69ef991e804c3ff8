/* What some templates refuse though clients send it: users' messages in a row, a user's message after the results of
 * tools, and ids of calls that are not nine letters and digits. Messages are changed so that a prompt that was rendered
 * once stays a prefix of later ones. Pure functions; any thread. */
#ifndef CHAT_TURNS_HPP
#define CHAT_TURNS_HPP

#include "chat/template.hpp"

namespace chat
{

/* Whether the template prints "word-1", "word-2", … of so many in this order, or something else, or refuses the
 * messages.
 */
enum class answer { prints, prints_otherwise, refuses };
answer ask_template(const chat_template &template_, const std::string &messages_json, int n_words);

/* Renders some short conversations to find out what the template refuses. */
turn_rules find_turn_rules(const chat_template &template_);

/* Adds a text, unless it is empty, to what the message says. */
void append_text(common_chat_msg &message, const std::string &text);

/* Changes the messages as far as the rules want it. */
void keep_turn_rules(const turn_rules &rules, std::vector<common_chat_msg> &messages);

} // namespace chat

#endif
