/* System messages after the first message, for templates that refuse them there ("System message must be at the
 * beginning"), drop them or move them. They become part of a user's turn, at their own position, so that a prompt that
 * was rendered once stays a prefix of later ones. Pure functions; any thread. */
#ifndef CHAT_SYSTEM_HPP
#define CHAT_SYSTEM_HPP

#include "chat/template.hpp"

namespace chat
{

/* Whether the template prints system messages where they stand. Renders two short conversations to find out. */
bool accepts_later_system(const chat_template &template_);

/* Wraps the system messages after the first into user turns. Those that directly follow the first one are appended to
 * it. Messages of the assistant and of tools stay as they are. */
void wrap_later_system(std::vector<common_chat_msg> &messages);

} // namespace chat

#endif
