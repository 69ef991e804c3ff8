/* System messages where a template does not take them: it refuses them after the first message ("System message must be
 * at the beginning"), leaves them out, or puts them elsewhere. There they become part of a user's turn, at the place
 * where they came, so that what was rendered once is rendered so again. Pure functions; any thread. */
#ifndef CHAT_SYSTEM_HPP
#define CHAT_SYSTEM_HPP

#include "chat/template.hpp"

namespace chat
{

/* Whether the template says system messages where they stand. Renders a few conversations. */
bool takes_later_system(const chat_template &template_);

/* Turns the system messages after the first into words of the user's. Those that directly follow the first one join it.
 * Messages of the assistant's and of tools stay as they are. */
void wrap_later_system(std::vector<common_chat_msg> &messages);

} // namespace chat

#endif
