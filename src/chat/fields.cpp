/* Reads a request's JSON field by field: see fields.hpp. */
#include "chat/fields.hpp"

#include <exception>
#include <vector>

namespace chat
{

/* Far more than tools' arguments need, far less than recursion over the tree can take. */
static const size_t max_depth = 128;

/* llama.cpp looks a member up in linear time, and does so for every member that it reads. */
static const size_t max_members = 4096;

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
            if (members.size() > max_depth) throw refusal{HEARTH_INVALID, param, "is nested too deeply"};
        } else if (!quoted && (c == ']' || c == '}') && !members.empty()) {
            members.pop_back();
        } else if (!quoted && c == ':' && !members.empty() && ++members.back() > max_members) {
            throw refusal{HEARTH_INVALID, param, "has too many members in one object"};
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

const common_json *find_field(const common_json &object, const char *key)
{
    if (!object.contains(key)) return nullptr;
    const common_json &value = object.at(key);
    return value.is_null() ? nullptr : &value;
}

std::string optional_text(const common_json &object, const char *key, const std::string &path)
{
    const common_json *value = find_field(object, key);
    if (value == nullptr) return "";
    if (!value->is_string()) throw refusal{HEARTH_INVALID, path + "." + key, "must be a string"};
    return value->get<std::string>();
}

std::string required_text(const common_json &object, const char *key, const std::string &path)
{
    std::string text = optional_text(object, key, path);
    if (text.empty()) throw refusal{HEARTH_INVALID, path + "." + key, "must be a string and not empty"};
    return text;
}

const common_json &required_object(const common_json &object, const char *key, const std::string &path)
{
    const common_json *value = find_field(object, key);
    if (value == nullptr || !value->is_object()) throw refusal{HEARTH_INVALID, path + "." + key, "must be an object"};
    return *value;
}

const common_json &object_item(const common_json &array, size_t index, const std::string &path)
{
    const common_json &value = array.at(index);
    if (!value.is_object()) throw refusal{HEARTH_INVALID, path, "must be an object"};
    return value;
}

std::string indexed(const std::string &path, size_t index)
{
    return path + "[" + std::to_string(index) + "]";
}

} // namespace chat
