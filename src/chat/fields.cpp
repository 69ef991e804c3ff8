/* Exceptions and error messages of the C++ shim, and reading a request's JSON: see fields.hpp. */
#include "chat/fields.hpp"

#include "chat/wide.hpp"

extern "C" {
#include "base/error.h"
#include "base/json_text.h"
}

#include <cmath>
#include <cstdlib>
#include <exception>
#include <new>
#include <vector>

namespace chat
{

/* ---- Errors ---- */

std::string one_line(const std::string &what)
{
    std::string text = what;
    std::replace_if(
        text.begin(), text.end(), [](unsigned char c) { return c < ' '; }, ' ');
    size_t from = text.find_first_not_of(' ');
    return from == std::string::npos ? "" : text.substr(from, text.find_last_not_of(' ') + 1 - from);
}

/* "<what>: <message>\n...<source>...\n   ^", as the lexer and the parser write it. */
std::string compile_error_message(const std::string &what)
{
    size_t line = what.find('\n');
    if (line == std::string::npos) return one_line(what);
    size_t next = what.find('\n', line + 1);
    return one_line(what.substr(0, line)) + " near " + one_line(what.substr(line + 1, next - line - 1));
}

/* llama.cpp's form: "\n---\nWhile executing <kind> at <line and column> in source:\n<source>\nError: <message>"; the
 * source has no line ends. A raise_exception() is the template's own message to the user and is passed on unchanged. */
std::string render_error_message(const std::string &what)
{
    static const std::string mark = "\nError: ", raised = "Jinja Exception: ";
    size_t at = what.find(mark);
    std::string message = at == std::string::npos ? what : what.substr(at + mark.size());
    if (message.compare(0, raised.size(), raised) == 0) return one_line(message.substr(raised.size()));
    size_t line = what.find(" at line "), source = what.find(" in source:");
    std::string where = line < source && source < at ? what.substr(line, source - line) : "";
    return "the chat template failed" + where + ": " + one_line(message);
}

int guarded(hearth_error *error, const char *param, std::string (*explain)(const std::string &),
            const std::function<void()> &act)
{
    try {
        act();
        return HEARTH_OK;
    } catch (const refusal &exception) {
        return error_at(error, exception.code, exception.param.c_str(), "'%s' %s", exception.param.c_str(),
                        exception.message.c_str());
    } catch (const template_failure &exception) {
        return error_at(error, HEARTH_INVALID, exception.param.c_str(), "%s: %s", exception.param.c_str(),
                        exception.message.c_str());
    } catch (const given_up &) {
        return error_set(error, HEARTH_CANCELLED, "request was cancelled");
    } catch (const std::bad_alloc &) {
        return error_set(error, HEARTH_NO_MEMORY, "no memory for a chat prompt");
    } catch (const std::exception &exception) {
        return error_at(error, HEARTH_INVALID, param, "%s", explain(exception.what()).c_str());
    } catch (...) {
        return error_set(error, HEARTH_INTERNAL, "the chat template failed in an unknown way");
    }
}

/* ---- Whole values ---- */

/* Far more than tools' arguments need, far less than recursion over the tree can take. */
static const size_t max_tree_depth = 128;

/* llama.cpp looks a member up in linear time, and does so for every member that it reads. */
static const size_t max_members = 4096;

static const char too_deep[] = "is nested too deeply", too_wide[] = "has too many members in one object";

static void check_shape(const std::string &text, const std::string &param)
{
    std::vector<size_t> members; /* of the objects that are open */
    bool quoted = false;
    for (size_t i = 0; i < text.size(); i++) {
        char c = text[i];
        if (quoted && c == '\\') {
            i++;
        } else if (c == '"') {
            quoted = !quoted;
        } else if (!quoted && (c == '[' || c == '{')) {
            members.push_back(0);
            if (members.size() > max_tree_depth) throw refusal{HEARTH_INVALID, param, too_deep};
        } else if (!quoted && (c == ']' || c == '}') && !members.empty()) {
            members.pop_back();
        } else if (!quoted && c == ':' && !members.empty() && ++members.back() > max_members) {
            throw refusal{HEARTH_INVALID, param, too_wide};
        }
    }
}

common_json parse_json(const std::string &text, const std::string &param)
{
    check_shape(text, param);
    try {
        return common_json::parse(text);
    } catch (const std::exception &exception) {
        /* "[json.exception...] parse error at line 1, column 5: ...; last read: '...'": the library's name and the
         * user's own text are left out. */
        std::string what = exception.what();
        size_t from = what.find("] ");
        what = what.substr(from == std::string::npos ? 0 : from + 2);
        throw refusal{HEARTH_INVALID, param, "is not valid JSON: " + what.substr(0, what.find("; last read"))};
    }
}

void check_tree(const json_t *value, wide_numbers how, const std::string &param, size_t depth)
{
    const char *wide = json_text_wide(value), *key;
    json_t *item;
    size_t i;
    if (wide != nullptr) {
        if (how == wide_numbers::nearest && !std::isfinite(std::strtod(wide, nullptr)))
            throw refusal{HEARTH_INVALID, param,
                          "is not valid JSON: number overflow parsing '" + std::string(wide) + "'"};
        return;
    }
    if (!json_is_object(value) && !json_is_array(value)) return;
    if (depth > max_tree_depth) throw refusal{HEARTH_INVALID, param, too_deep};
    if (json_object_size(value) > max_members) throw refusal{HEARTH_INVALID, param, too_wide};
    json_array_foreach(value, i, item) check_tree(item, how, param, depth + 1);
    json_object_foreach(const_cast<json_t *>(value), key, item) check_tree(item, how, param, depth + 1);
}

common_json to_common(const json_t *tree, wide_numbers how)
{
    const char *wide = json_text_wide(tree);
    if (wide != nullptr) {
        if (is_uint64(wide)) return common_json(std::strtoull(wide, nullptr, 10));
        return how == wide_numbers::marked ? common_json(marked_number(wide)) : common_json(std::strtod(wide, nullptr));
    }
    if (json_is_integer(tree)) {
        /* Integers that are not below 0 have no sign in llama.cpp's JSON. */
        json_int_t value = json_integer_value(tree);
        return value < 0 ? common_json(value) : common_json(static_cast<uint64_t>(value));
    }
    if (json_is_object(tree)) {
        common_json object = common_json::object();
        const char *key;
        json_t *item;
        json_object_foreach(const_cast<json_t *>(tree), key, item) object.set({key, to_common(item, how)});
        return object;
    }
    if (json_is_string(tree)) return common_json(string_of(tree));
    if (json_is_real(tree)) return common_json(json_real_value(tree));
    if (json_is_boolean(tree)) return common_json(json_is_true(tree));
    if (!json_is_array(tree)) return common_json();
    common_json result = common_json::array();
    for (size_t i = 0; i < json_array_size(tree); i++) result.push_back(to_common(json_array_get(tree, i), how));
    return result;
}

common_json read_tree(const json_t *tree, wide_numbers how, const std::string &param)
{
    check_tree(tree, how, param);
    return to_common(tree, how);
}

/* ---- Fields ---- */

const json_t *find_field(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? nullptr : value;
}

std::string string_of(const json_t *string)
{
    return {json_string_value(string), json_string_length(string)};
}

std::string optional_text(const json_t *object, const char *key, const std::string &path)
{
    const json_t *value = find_field(object, key);
    if (value == nullptr) return "";
    if (!json_is_string(value)) throw refusal{HEARTH_INVALID, path + "." + key, "must be a string"};
    return string_of(value);
}

std::string required_text(const json_t *object, const char *key, const std::string &path)
{
    std::string text = optional_text(object, key, path);
    if (text.empty()) throw refusal{HEARTH_INVALID, path + "." + key, "must be a string and not empty"};
    return text;
}

const json_t *required_object(const json_t *object, const char *key, const std::string &path)
{
    const json_t *value = find_field(object, key);
    if (!json_text_is_object(value)) throw refusal{HEARTH_INVALID, path + "." + key, "must be an object"};
    return value;
}

const json_t *object_item(const json_t *array, size_t index, const std::string &path)
{
    const json_t *value = json_array_get(array, index);
    if (!json_text_is_object(value)) throw refusal{HEARTH_INVALID, path, "must be an object"};
    return value;
}

std::string indexed(const std::string &path, size_t index)
{
    return path + "[" + std::to_string(index) + "]";
}

} // namespace chat
