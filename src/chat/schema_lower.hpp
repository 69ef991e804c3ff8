/* Rewrites JSON schemas into the part of them that llama.cpp converts faithfully.
 *
 * llama.cpp reads `allOf`, references with something beside them, `anyOf` beside properties, bounds, patterns and more
 * in its own way, and some it reads wrong. What comes out of here has objects, arrays, strings, integers and literals,
 * alternatives of them and plain references, and allows no text that the schema given does not, but for the keywords
 * that are named as not enforced. Pure functions; any thread. */
#ifndef CHAT_SCHEMA_LOWER_HPP
#define CHAT_SCHEMA_LOWER_HPP

#include "chat/schema_cost.hpp"

#include "json.h"

#include <set>
#include <string>
#include <vector>

namespace chat
{

struct lowered_schema {
    struct fault {
        std::string pointer; /* of the sub-schema that takes any value now: "/properties/a" */
        std::string reason;
    };

    common_json schema;
    std::vector<fault> faults;        /* what could not be kept, each once; not all of very many */
    std::set<std::string> unenforced; /* keywords in it that nothing enforces, as docs/schemas.md names them */
};

/* `prefix`: of the names of definitions, which are unique in a grammar. `of_tool`: of a tool's arguments, whose
 * outermost part stays an object with properties: alternatives beside them are not enforced. Throws schema_too_large.
 */
lowered_schema lower_schema(const common_json &schema, const std::string &prefix, bool of_tool, schema_budget &budget);

} // namespace chat

#endif
