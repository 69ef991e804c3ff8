/* Converts JSON schemas to grammars, after checking and lowering them (schema_lower.hpp).
 *
 * llama.cpp walks a schema by recursion and follows its references; what would exhaust the stack is refused here. Any
 * thread. */
#ifndef CHAT_SCHEMA_HPP
#define CHAT_SCHEMA_HPP

#include "chat/errors.hpp"

#include "json.h"

#include <map>
#include <set>
#include <string>
#include <utility>

namespace chat
{

/* Counts the names that become rule names in one of llama.cpp's grammars. Throws refusal where they are so many or so
 * long that conversion would take too long or recurse too deeply. */
class schema_names
{
  public:
    explicit schema_names(std::string of) : param(std::move(of)) {}
    void walk(const common_json &schema); /* as lower_schema() makes it */

  private:
    void add(const std::string &name);

    std::string param;
    size_t n = 0, optional = 0;
    std::map<std::string, std::set<std::string>> alike; /* by the rule name that llama.cpp makes of them */
};

/* Converts a schema as lower_schema() makes it to GBNF. Throws refusal, with `param` as the field, where that is
 * impossible. */
std::string schema_grammar(const common_json &schema, const std::string &param);

void replace_all(std::string &text, const std::string &from, const std::string &to);

/* Makes a grammar of llama.cpp's strict where it lets through what is no JSON: keys that are no property's, halves of
 * surrogate pairs, quoted text with control characters, numbers beyond what a double holds. */
void mend_grammar(std::string &grammar);

/* The schema of a reply as llama.cpp takes it, lowered. Throws refusal where a part of it cannot be kept, with that
 * part's JSON pointer. */
common_json reply_schema(const common_json &schema);

/* The same for a tool's parameters: what cannot be kept is free, with a line in the log, since one tool is no reason to
 * refuse a request, and agents validate arguments anyway. `prefix`: of the names of definitions, one for each tool. */
common_json tool_schema(const common_json &parameters, const std::string &tool, const std::string &prefix);

} // namespace chat

#endif
