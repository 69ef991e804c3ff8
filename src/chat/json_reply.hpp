/* Makes a schema hold where llama.cpp's handler of a template takes no notice of it. Pure functions; any thread. */
#ifndef CHAT_JSON_REPLY_HPP
#define CHAT_JSON_REPLY_HPP

#include "chat/template.hpp"

#include "chat-peg-parser.h"

namespace chat
{

/* Whether the reply is to be JSON of a schema, and nothing that llama.cpp made of the request sees to it. */
bool lacks_json_grammar(const common_chat_params &made, const autoparser::generation_params &params);

/* What llama.cpp makes of the request without its tools, with a grammar by which the content is JSON of the schema. */
common_chat_params json_reply(const chat_template &template_, autoparser::generation_params params);

/* Makes a parser one of replies without text before the content that has marks around it, as the grammar has it. */
void take_last_content(common_peg_arena &parser);

} // namespace chat

#endif
