/* A chat request as the template and llama.cpp's handlers take it: what llama-server would give them.
 *
 * Throws refusal for what is wrong with the request, naming the field. Any thread; needs a performance. */
#ifndef CHAT_REQUEST_HPP
#define CHAT_REQUEST_HPP

#include "chat/template.hpp"

namespace chat
{

/* Whether these arguments, JSON or "", may be set. */
void check_kwargs(const std::string &text);

autoparser::generation_params read_request(const chat_template &template_, const chat_request &request);

} // namespace chat

#endif
