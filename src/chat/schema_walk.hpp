/* Goes through JSON schemas by the places of their keywords, and finds what references mean: a property's name or a
 * literal value is never taken for a keyword. Pure functions; any thread. */
#ifndef CHAT_SCHEMA_WALK_HPP
#define CHAT_SCHEMA_WALK_HPP

#include "chat/schema_cost.hpp"

#include "json.h"

#include <functional>
#include <string>

namespace chat
{

/* Calls `each` for every schema directly within a schema, with its JSON pointer from there ("/properties/a"). */
void each_subschema(const common_json &schema,
                    const std::function<void(const std::string &pointer, const common_json &within)> &each);

/* A key as a step of a JSON pointer. */
std::string pointer_step(const std::string &key);

/* What a JSON pointer ("", "/$defs/a") leads to; NULL: nothing is there. Spends what the search costs. */
const common_json *value_at(const common_json &root, const std::string &pointer, schema_budget &budget);

/* The schema with each reference that leads to a part of it as "#" and that part's JSON pointer, whatever it was: with
 * an anchor, percent-encoded, relative to an $id. Others stay as they are. Throws schema_too_large. */
common_json with_plain_references(const common_json &schema, schema_budget &budget);

} // namespace chat

#endif
