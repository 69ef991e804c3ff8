/* Reads a request's JSON field by field, with errors that name the field as in "messages[2].content[0].type".
 *
 * Errors inside the C++ shim are thrown as exceptions and become a hearth_error at the boundary to C. No exception may
 * leave the shim: every function that C calls runs its work under guarded(). Pure functions; any thread. */
#ifndef CHAT_FIELDS_HPP
#define CHAT_FIELDS_HPP

#include "hearth.h"

#include "json.h"

#include <functional>
#include <jansson.h>
#include <string>

namespace chat
{

/* An error in a request, with the field at fault. */
struct refusal {
    hearth_code code;
    std::string param, message;
};

/* A template's own error, with what it failed on. */
struct template_failure {
    std::string param, message;
};

/* The work is given up (template.hpp). No std::exception: the template engine would make an error of the
 * template's of it, and the messages would be put in another form. */
struct given_up {
};

/* The text without control characters and outer white space: errors are one line. */
std::string one_line(const std::string &text);

/* llama.cpp's messages for a template that does not compile, and for one that failed while rendering, made readable. */
std::string compile_error_message(const std::string &what);
std::string render_error_message(const std::string &what);

/* Runs `act`, which may throw. A refusal becomes the error as it is; for any other exception `explain` makes the
 * message. */
int guarded(hearth_error *error, const char *param, std::string (*explain)(const std::string &),
            const std::function<void()> &act);

/* ---- Fields; all throw refusal ---- */

/* The form in which llama.cpp's JSON gets numbers that it cannot hold. */
enum class wide_numbers {
    marked, /* strings: see wide.hpp */
    nearest /* the nearest double; one that is beyond all doubles is refused */
};

/* Refuses nesting so deep that walking the tree would exhaust the stack, and objects so wide that reading them would
 * take forever; and numbers, as said above. */
void check_tree(const json_t *tree, wide_numbers how, const std::string &param, size_t depth = 1);

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
