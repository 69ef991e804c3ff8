/* The messages of a chat request: from JSON, checked field by field, to llama.cpp's structs.
 *
 * All checks happen here, before llama.cpp sees anything: its assertions end the process, and its own complaints do not
 * name the field. Any thread. */
#ifndef CHAT_MESSAGES_HPP
#define CHAT_MESSAGES_HPP

#include "chat/chat.h"

#include "chat-auto-parser.h"

#include <string>
#include <vector>

namespace chat
{

/* Throws refusal, naming the field as in "messages[2].content[0].type". This is where it is decided what becomes of
 * images and other parts that are no text: in their place the prompt has a fixed note, so that a conversation keeps its
 * prefix and goes on; or they are refused. Counts them in the performance, which it needs. */
std::vector<common_chat_msg> read_messages(const chat_request &request);

} // namespace chat

#endif
