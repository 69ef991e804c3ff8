/* Reads a chat request, once, and turns it into the parameters of the template and of llama.cpp's handlers, the same
 * as llama-server's.
 *
 * Throws refusal for errors in the request, naming the field. Any thread; read_request() needs a render_scope. */
#ifndef CHAT_REQUEST_HPP
#define CHAT_REQUEST_HPP

#include "chat/template.hpp"

#include <optional>
#include <set>

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

chat_parsed parse_request(const chat_request &request);

/* What the request was parsed to before; else parses it into `own`. */
const chat_parsed &parsed_of(const chat_request &request, std::optional<chat_parsed> &own);

/* Template arguments. Throws refusal for what is no object, and for those that may not be set. */
common_json read_kwargs(common_json kwargs);

autoparser::generation_params read_request(const chat_template &template_, const chat_request &request,
                                           const chat_parsed &parsed);

} // namespace chat

#endif
