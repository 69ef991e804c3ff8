/* Reads the messages of a chat request: from a tree, checked field by field, to llama.cpp's structs.
 *
 * All checks happen here, before llama.cpp gets the messages: its assertions end the process, and its own errors do not
 * name the field. Any thread. */
#ifndef CHAT_MESSAGES_HPP
#define CHAT_MESSAGES_HPP

#include "chat/chat.h"

#include "chat-auto-parser.h"

#include <string>
#include <vector>

namespace chat
{

/* Throws refusal, naming the field as in "messages[2].content[0].type". Images and other parts that are not text are
 * refused, or replaced by a fixed note, so that a conversation keeps its prefix; `media_left_out` gets the places of
 * the replaced ones. */
std::vector<common_chat_msg> read_messages(const chat_request &request, std::vector<std::string> &media_left_out);

} // namespace chat

#endif
