/* What several JSON schemas demand together, as one. Pure functions; any thread. */
#ifndef CHAT_SCHEMA_MERGE_HPP
#define CHAT_SCHEMA_MERGE_HPP

#include "json.h"

#include <stdexcept>
#include <string>

namespace chat
{

/* A schema that cannot be converted, and why. */
struct schema_fault : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/* Whether a keyword is enforced, other than by combining schemas ($ref, allOf, anyOf, oneOf). */
bool is_enforced(const std::string &keyword);

/* The enforced keywords of a schema, each in one form: "type" a list, "const" an "enum", a list of "items"
 * "prefixItems". Throws schema_fault where one is malformed. */
common_json enforced_part(const common_json &schema);

/* Adds what another schema demands, both as enforced_part() has them. False: no value satisfies both. */
bool merge_schema(common_json &into, common_json more);

/* A schema that demands both. */
common_json both(const common_json &a, const common_json &b);

/* Whether a value is of the type that a schema names. */
bool is_of_type(const common_json &value, const std::string &type);

} // namespace chat

#endif
