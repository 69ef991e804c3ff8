/* Goes through JSON schemas by the places of their keywords, finds what references mean, and merges what several
 * schemas demand: a property's name or a literal value is never taken for a keyword. Pure functions; any thread. */
#ifndef CHAT_SCHEMA_WALK_HPP
#define CHAT_SCHEMA_WALK_HPP

#include "chat/pattern.hpp"
#include "chat/schema_cost.hpp"

#include "json.h"

#include <set>
#include <stdexcept>
#include <string>

namespace chat
{

/* A schema that demands a type alone. */
common_json of_type(const char *type);

/* The names that a schema requires. */
std::set<std::string> required_of(const common_json &schema);

/* A key as a step of a JSON pointer. */
std::string pointer_step(const std::string &key);

/* What a JSON pointer ("", "/$defs/a") leads to; NULL: nothing is there. Spends what the search costs. */
const common_json *value_at(const common_json &root, const std::string &pointer, schema_budget &budget);

/* The schema with each reference that leads to a part of it as "#" and that part's JSON pointer, whatever it was: with
 * an anchor, percent-encoded, relative to an $id. Others stay as they are. Throws schema_too_large. */
common_json with_plain_references(const common_json &schema, schema_budget &budget);

/* ---- What several schemas demand together, as one ---- */

/* A schema that cannot be converted, and why. */
struct schema_fault : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/* The enforced keywords of a schema, each in one form: "type" a list, "const" an "enum", a list of "items"
 * "prefixItems". Throws schema_fault where one is malformed. */
common_json enforced_part(const common_json &schema);

/* Adds what another schema demands, both as enforced_part() has them. False: no value satisfies both. */
bool merge_schema(common_json &into, common_json more);

/* A schema that demands both. */
common_json both(const common_json &a, const common_json &b);

/* A keyword that counts, and the lengths of a string; `none`: what there is without it. */
uint32_t count_of(const common_json &schema, const char *key, uint32_t none);
lengths lengths_in(const common_json &schema);

/* Whether bounds and types allow a literal value; other keywords beside literals are not looked at. */
bool allows_literal(const common_json &schema, const common_json &value);

} // namespace chat

#endif
