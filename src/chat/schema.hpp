/* Converts JSON schemas to grammars, after lowering them (schema_lower.cpp) and counting what the conversion costs
 * (schema_parts.hpp). Any thread. */
#ifndef CHAT_SCHEMA_HPP
#define CHAT_SCHEMA_HPP

#include "chat/fields.hpp"
#include "chat/schema_parts.hpp"

#include "json.h"

#include <string>

namespace chat
{

/* Converts a schema as reply_schema() and tool_schema() make it to GBNF. Throws refusal, with `param` as the field,
 * where that is impossible. */
std::string schema_grammar(const common_json &schema, const std::string &param);

void replace_all(std::string &text, const std::string &from, const std::string &to);

/* Makes a grammar of llama.cpp's strict where it matches text that is no JSON. Such text is raw backslashes and control
 * characters in quotes, halves of surrogate pairs, and numbers beyond a double. Takes the quotes off strings that are
 * numbers (NUMBER_MARK). */
void mend_grammar(std::string &grammar);

/* The schema of a reply as llama.cpp takes it, lowered. Throws refusal where a part of it cannot be kept or the whole
 * costs too much, with that part's JSON pointer. `unenforced` gets what nothing enforces, as docs/schemas.md names it.
 */
common_json reply_schema(const common_json &schema, std::set<std::string> &unenforced);

/* The same for a tool's parameters, where parts that cannot be kept are free, with a line in the log. One tool is no
 * reason to refuse a request, and agents validate arguments anyway. `prefix`: of the names of definitions, one for each
 * tool; `all`: of all tools together. `unenforced` gets the parts that are free, too, as in
 * "find#/properties/place". */
common_json tool_schema(const common_json &parameters, const std::string &tool, const std::string &prefix,
                        schema_budget &all, std::set<std::string> &unenforced);

/* Whether llama.cpp takes a schema, and why not, which is known once it was converted. */
bool is_convertible(const common_json &schema, std::string &reason);

/* The arguments of a tool of which nothing is known, with a line in the log. */
common_json freed_arguments(const std::string &tool, const std::string &why, std::set<std::string> &unenforced);

/* One name a line. */
std::string lines_of(const std::set<std::string> &names);

} // namespace chat

#endif
