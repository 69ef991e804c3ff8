/* The messages of a chat request: from JSON, checked field by field, to llama.cpp's structs.
 *
 * All checks happen here, before llama.cpp sees anything: its assertions end the process, and its own complaints do not
 * name the field. Pure functions; any thread. */
#ifndef CHAT_MESSAGES_HPP
#define CHAT_MESSAGES_HPP

#include "chat-auto-parser.h"

#include <string>
#include <vector>

namespace chat
{

/* Throws refusal, naming the field as in "messages[2].content[0].type". */
std::vector<common_chat_msg> read_messages(const std::string &text);

} // namespace chat

#endif
