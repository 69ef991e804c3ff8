/* Converts JSON schemas to grammars, after checking them.
 *
 * llama.cpp walks a schema by recursion and follows its references; what would exhaust the stack is refused here.
 * Pure functions; any thread. */
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
    void add_all(const common_json &schema);

  private:
    void add(const std::string &name);
    void add_named(const std::string &key, const common_json &value);
    void walk(const common_json &root, const common_json &value, bool is_part);

    std::string param;
    size_t n = 0;
    std::map<std::string, std::set<std::string>> alike; /* by the rule name that llama.cpp makes of them */
};

/* Converts the schema to GBNF. Throws refusal, with `param` as the field, where that is impossible. */
std::string schema_grammar(const common_json &schema, const std::string &param);

/* The schema with the character classes in its patterns (\\d, \\w, \\s) expanded, which llama.cpp does not support. */
common_json with_expanded_classes(const common_json &schema);

/* The same as schema_grammar() for a reply, which must validate: a pattern that llama.cpp would take for any string is
 * refused. In a tool's parameters it is accepted: agents send many, and validate the arguments anyway. */
std::string reply_schema_grammar(const common_json &schema);

} // namespace chat

#endif
