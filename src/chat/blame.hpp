/* What of a request is to blame where a template fails, or does not print all of it. Any thread. */
#ifndef CHAT_BLAME_HPP
#define CHAT_BLAME_HPP

#include "chat/request.hpp"

#include <string>
#include <vector>

namespace chat
{

/* The message or tool that a template failed on: "messages[3]", "tools[0].function.parameters.properties.x" or as much
 * of it as is certain; "" where it is none of them: every request fails, or this one no longer does. `failure` is what
 * render_error_message() made of the error. Needs no render_scope. */
std::string find_culprit(const chat_template &template_, const chat_request &request, const chat_parsed &parsed,
                         const std::string &failure);

/* Paths of the request's fields, as in "messages[2].content[0]", whose text the template does not print, though the
 * messages were put as it prints them (turns.hpp): of a role that it leaves out, or in a place where it prints none.
 * Throws refusal where such a text is asked for now, that is in the last turn, or is of a system message: what is asked
 * would be answered without it. */
std::vector<std::string> find_lost(const chat_template &template_, const chat_request &request,
                                   const chat_parsed &parsed, const std::string &prompt);

} // namespace chat

#endif
