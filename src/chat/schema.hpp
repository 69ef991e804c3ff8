/* JSON schemas: checked before llama.cpp makes grammars of them.
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

/* Counts the names that become names of rules, in all that llama.cpp makes one grammar of. Throws refusal where they
 * would take it too long, or too deep. */
class schema_names
{
  public:
    explicit schema_names(std::string of) : param(std::move(of)) {}
    void add_all(const common_json &value);

  private:
    void add(const std::string &name);

    std::string param;
    size_t n = 0;
    std::map<std::string, std::set<std::string>> alike; /* by what llama.cpp sees of them */
};

/* The grammar of what the schema describes. Refuses, under the name `param`, what makes none. */
std::string schema_grammar(const common_json &schema, const std::string &param);

/* The schema with the classes in its patterns (\\d, \\w, \\s) spelled out, which llama.cpp would not take. */
common_json with_plain_patterns(const common_json &schema);

/* The same as schema_grammar() for a reply, which is to validate: a pattern that llama.cpp would take for any string is
 * refused. Of a tool's parameters it is taken so: agents send many, and have the arguments checked anyway. */
std::string reply_schema_grammar(const common_json &schema);

} // namespace chat

#endif
