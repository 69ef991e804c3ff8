/* Reads a chat request, once, and turns it into the parameters of the template and of llama.cpp's handlers, the same
 * as llama-server's. All checks happen here, before llama.cpp gets the messages: its assertions end the process, and
 * its own errors do not name the field.
 *
 * Throws refusal for errors in the request, naming the field. Any thread; read_request() needs a render_scope. */
#ifndef CHAT_REQUEST_HPP
#define CHAT_REQUEST_HPP

#include "chat/chat.h"
#include "chat/template.hpp"

#include "chat-auto-parser.h"

#include <jansson.h>
#include <optional>
#include <set>
#include <string>
#include <vector>

/* All that is the same for every rendering of a request. */
struct chat_parsed {
    std::vector<common_chat_msg> messages;
    common_json tools;                       /* an array in OpenAI's form; null: the request has none */
    common_json given_schema;                /* as the client has it, for templates that show it */
    common_json schema;                      /* null: the request has none */
    std::set<std::string> unenforced;        /* of the schema, as docs/schemas.md names it */
    common_json kwargs;                      /* an object; null: the request has none */
    std::vector<std::string> media_left_out; /* parts that a note replaced, as in "messages[0].content[1]" */
};

namespace chat
{

/* The request as it was parsed before; else parses it into `own`. */
const chat_parsed &parsed_of(const chat_request &request, std::optional<chat_parsed> &own);

/* Template arguments. Throws refusal for what is no object, and for those that may not be set. */
common_json read_kwargs(common_json kwargs);

autoparser::generation_params read_request(const chat_template &template_, const chat_request &request,
                                           const chat_parsed &parsed);

/* Replaces the parameters of tools, in OpenAI's form, by what llama.cpp can make a grammar of: see tool_schema(). The
 * prompt shows them as they were. `unenforced` gets what nothing enforces of them. */
void lower_parameters(common_json &tools, std::set<std::string> &unenforced);

/* Frees those that llama.cpp does not take after all, which is known once it was tried. False: there are none. */
bool free_unconvertible(common_json &tools, std::set<std::string> &unenforced);

} // namespace chat

#endif
