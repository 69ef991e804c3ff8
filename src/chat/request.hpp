/* Turns a chat request into the parameters of the template and of llama.cpp's handlers, the same as llama-server's.
 *
 * Throws refusal for errors in the request, naming the field. Any thread; needs a render_scope. */
#ifndef CHAT_REQUEST_HPP
#define CHAT_REQUEST_HPP

#include "chat/template.hpp"

namespace chat
{

/* Throws refusal unless these template arguments, JSON or "", may be set. */
void check_kwargs(const std::string &text);

autoparser::generation_params read_request(const chat_template &template_, const chat_request &request);

} // namespace chat

#endif
