/* Finds the texts of a request that its prompt does not hold, though the messages were put as the template prints them
 * (turns.hpp): of a role that it leaves out, or in a place where it prints none. Pure functions; any thread. */
#ifndef CHAT_LOST_HPP
#define CHAT_LOST_HPP

#include "chat/request.hpp"

#include <string>
#include <vector>

namespace chat
{

/* Paths of the request's fields, as in "messages[2].content[0]", whose text the template does not print. Throws refusal
 * where such a text is asked for now, that is in the last turn, or is of a system message: what is asked would be
 * answered without it. */
std::vector<std::string> find_lost(const chat_template &template_, const chat_request &request,
                                   const chat_parsed &parsed, const std::string &prompt);

} // namespace chat

#endif
