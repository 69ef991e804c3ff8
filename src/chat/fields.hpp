/* Reads a request's JSON field by field, with errors that name the field as in "messages[2].content[0].type".
 *
 * Errors are thrown as refusal. Pure functions; any thread. */
#ifndef CHAT_FIELDS_HPP
#define CHAT_FIELDS_HPP

#include "chat/errors.hpp"

#include "json.h"

#include <string>

namespace chat
{

/* Refuses text that is no JSON, nesting so deep that walking it would exhaust the stack, and objects so wide that
 * reading them would take forever. */
common_json parse_json(const std::string &text, const std::string &param);

/* The value of a field; NULL where it is absent or null, which clients use alike. */
const common_json *find_field(const common_json &object, const char *key);

std::string optional_text(const common_json &object, const char *key, const std::string &path);
std::string required_text(const common_json &object, const char *key, const std::string &path);
const common_json &required_object(const common_json &object, const char *key, const std::string &path);

/* The index-th item, which must be an object; `path` is its own. */
const common_json &object_item(const common_json &array, size_t index, const std::string &path);

std::string indexed(const std::string &path, size_t index);

} // namespace chat

#endif
