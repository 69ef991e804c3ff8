/* Parses the tools of a chat request: from JSON, checked field by field, to llama.cpp's structs. Pure functions; any
 * thread. */
#ifndef CHAT_TOOLS_HPP
#define CHAT_TOOLS_HPP

#include "chat-auto-parser.h"

#include <string>
#include <vector>

namespace chat
{

/* Throws refusal, naming the field as in "tools[0].function.name". */
std::vector<common_chat_tool> read_tools(const std::string &text);

/* Throws refusal for parameters that cannot be converted to a grammar: the expensive part of the check. */
void check_parameters(const std::vector<common_chat_tool> &tools);

} // namespace chat

#endif
