/* Reads a request's JSON field by field, with errors that name the field as in "messages[2].content[0].type".
 *
 * Errors are thrown as refusal. Pure functions; any thread. */
#ifndef CHAT_FIELDS_HPP
#define CHAT_FIELDS_HPP

#include "chat/errors.hpp"

#include "json.h"

#include <jansson.h>

#include <string>

namespace chat
{

/* What stands for numbers that llama.cpp's JSON cannot hold. */
enum class wide_numbers {
    marked, /* strings: see wide.hpp */
    nearest /* the nearest double; one that is beyond all doubles is refused */
};

/* Refuses nesting so deep that walking the tree would exhaust the stack, and objects so wide that reading them would
 * take forever; and numbers, as said above. */
void check_tree(const json_t *tree, wide_numbers how, const std::string &param);

/* A tree that was checked, as llama.cpp has it. */
common_json to_common(const json_t *tree, wide_numbers how);

/* Both. */
common_json read_tree(const json_t *tree, wide_numbers how, const std::string &param);

/* The same for a text, which is refused where it is no JSON. */
common_json parse_json(const std::string &text, const std::string &param);

/* The value of a field; NULL where it is absent or null, which clients use alike. */
const json_t *find_field(const json_t *object, const char *key);

std::string string_of(const json_t *string);
std::string optional_text(const json_t *object, const char *key, const std::string &path);
std::string required_text(const json_t *object, const char *key, const std::string &path);
const json_t *required_object(const json_t *object, const char *key, const std::string &path);

/* The index-th item, which must be an object; `path` is its own. */
const json_t *object_item(const json_t *array, size_t index, const std::string &path);

std::string indexed(const std::string &path, size_t index);

} // namespace chat

#endif
