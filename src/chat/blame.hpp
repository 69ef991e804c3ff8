/* Which message or tool of a request a template failed on.
 *
 * A template's error does not say, so smaller requests are rendered until one does not fail: a few for each doubling of
 * messages and tools, and only when a request has failed. Any thread; needs no render_scope. */
#ifndef CHAT_BLAME_HPP
#define CHAT_BLAME_HPP

#include "chat/request.hpp"

#include <string>

namespace chat
{

/* "messages[3]", "tools[0].function.parameters.properties.x" or as much of it as is certain; "" where it is none of
 * them: every request fails, or this one no longer does. `failure` is what render_error_message() made of the error. */
std::string find_culprit(const chat_template &template_, const chat_request &request, const chat_parsed &parsed,
                         const std::string &failure);

} // namespace chat

#endif
