/* Reads the tools of a chat request, checked field by field, and makes them what grammars need. Pure functions; any
 * thread. */
#ifndef CHAT_TOOLS_HPP
#define CHAT_TOOLS_HPP

#include "chat-auto-parser.h"

#include <jansson.h>

#include <set>
#include <string>
#include <vector>

namespace chat
{

/* The tools in the form in which templates get them; null: there are none. Throws refusal, naming the field as in
 * "tools[0].function.name". */
common_json read_tools(const json_t *array);

/* Replaces the parameters of tools, in OpenAI's form, by what llama.cpp can make a grammar of: see tool_schema(). The
 * prompt shows them as they were. `unenforced` gets what nothing enforces of them. */
void lower_parameters(common_json &tools, std::set<std::string> &unenforced);

/* Frees those that llama.cpp does not take after all, which is known once it was tried. False: there are none. */
bool free_unconvertible(common_json &tools, std::set<std::string> &unenforced);

} // namespace chat

#endif
