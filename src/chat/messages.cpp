/* The messages of a chat request: see messages.hpp. */
#include "chat/messages.hpp"

#include <algorithm>
#include <exception>
#include <iterator>

namespace chat
{

/* Far beyond what arguments of tools need, far below what recursion over the tree can bear. */
static const int max_depth = 128;

static void check_depth(const std::string &text, const std::string &param)
{
    int depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < text.size(); i++) {
        char c = text[i];
        if (quoted && c == '\\') {
            i++;
        } else if (c == '"') {
            quoted = !quoted;
        } else if (!quoted && (c == '[' || c == '{')) {
            if (++depth > max_depth) throw refusal{HEARTH_INVALID, param, "is nested too deeply"};
        } else if (!quoted && (c == ']' || c == '}')) {
            depth--;
        }
    }
}

common_json parse_json(const std::string &text, const std::string &param)
{
    check_depth(text, param);
    try {
        return common_json::parse(text);
    } catch (const std::exception &fault) {
        /* "[json.exception...] parse error at line 1, column 5: ...; last read: '...'": the user's own text and the
         * library's name are left out. */
        std::string what = fault.what();
        size_t from = what.find("] ");
        what = what.substr(from == std::string::npos ? 0 : from + 2);
        throw refusal{HEARTH_INVALID, param, "is not valid JSON: " + what.substr(0, what.find("; last read"))};
    }
}

/* The value of a field; NULL where it is absent or null, which clients use alike. */
static const common_json *find(const common_json &object, const char *key)
{
    if (!object.contains(key)) return nullptr;
    const common_json &value = object.at(key);
    return value.is_null() ? nullptr : &value;
}

static std::string optional_text(const common_json &object, const char *key, const std::string &path)
{
    const common_json *value = find(object, key);
    if (value == nullptr) return "";
    if (!value->is_string()) throw refusal{HEARTH_INVALID, path + "." + key, "must be a string"};
    return value->get<std::string>();
}

static std::string required_text(const common_json &object, const char *key, const std::string &path)
{
    std::string text = optional_text(object, key, path);
    if (text.empty()) throw refusal{HEARTH_INVALID, path + "." + key, "must be a string and not empty"};
    return text;
}

static const common_json &item(const common_json &array, size_t index, const std::string &path)
{
    const common_json &value = array.at(index);
    if (!value.is_object()) throw refusal{HEARTH_INVALID, path, "must be an object"};
    return value;
}

static std::string indexed(const std::string &path, size_t index)
{
    return path + "[" + std::to_string(index) + "]";
}

/* Parts that OpenAI's API knows and this version does not. */
static bool is_media(const std::string &type)
{
    static const char *const known[] = {"image_url", "input_audio", "video_url", "input_video", "file", "refusal"};
    return std::find(std::begin(known), std::end(known), type) != std::end(known);
}

static common_chat_msg_content_part read_part(const common_json &part, const std::string &path)
{
    common_chat_msg_content_part result;
    result.type = required_text(part, "type", path);
    if (result.type != "text")
        throw refusal{is_media(result.type) ? HEARTH_UNSUPPORTED : HEARTH_INVALID, path + ".type",
                      "only parts of type \"text\" are supported"};
    if (find(part, "text") == nullptr) throw refusal{HEARTH_INVALID, path + ".text", "must be a string"};
    result.text = optional_text(part, "text", path);
    return result;
}

static void read_content(common_chat_msg &message, const common_json &object, const std::string &path)
{
    const common_json *content = find(object, "content");
    if (content == nullptr) return;
    if (content->is_string()) {
        message.content = content->get<std::string>();
        return;
    }
    std::string here = path + ".content";
    if (!content->is_array()) throw refusal{HEARTH_INVALID, here, "must be a string, null or an array of parts"};
    for (size_t i = 0; i < content->size(); i++) {
        std::string at = indexed(here, i);
        message.content_parts.push_back(read_part(item(*content, i, at), at));
    }
}

static common_chat_tool_call read_tool_call(const common_json &call, const std::string &path)
{
    const common_json *type = find(call, "type");
    if (type != nullptr && !(type->is_string() && type->get<std::string>() == "function"))
        throw refusal{HEARTH_UNSUPPORTED, path + ".type", "only calls of type \"function\" are supported"};
    const common_json *function = find(call, "function");
    std::string here = path + ".function";
    if (function == nullptr || !function->is_object()) throw refusal{HEARTH_INVALID, here, "must be an object"};

    common_chat_tool_call result;
    result.id = optional_text(call, "id", path);
    result.name = required_text(*function, "name", here);
    const common_json *arguments = find(*function, "arguments");
    if (arguments != nullptr && arguments->is_string())
        result.arguments = arguments->get<std::string>();
    else if (arguments != nullptr && arguments->is_object())
        result.arguments = arguments->dump();
    else
        throw refusal{HEARTH_INVALID, here + ".arguments", "must be JSON text or an object"};
    return result;
}

static void read_tool_calls(common_chat_msg &message, const common_json &object, const std::string &path)
{
    const common_json *calls = find(object, "tool_calls");
    if (calls == nullptr) return;
    std::string here = path + ".tool_calls";
    if (!calls->is_array()) throw refusal{HEARTH_INVALID, here, "must be an array"};
    for (size_t i = 0; i < calls->size(); i++) {
        std::string at = indexed(here, i);
        message.tool_calls.push_back(read_tool_call(item(*calls, i, at), at));
    }
}

std::vector<common_chat_msg> read_messages(const std::string &text)
{
    common_json array = parse_json(text, "messages");
    if (!array.is_array()) throw refusal{HEARTH_INVALID, "messages", "must be an array"};
    if (array.size() == 0) throw refusal{HEARTH_INVALID, "messages", "must hold at least one message"};
    std::vector<common_chat_msg> messages;
    for (size_t i = 0; i < array.size(); i++) {
        std::string path = indexed("messages", i);
        const common_json &object = item(array, i, path);
        common_chat_msg message;
        message.role = required_text(object, "role", path);
        read_content(message, object, path);
        read_tool_calls(message, object, path);
        message.reasoning_content = optional_text(object, "reasoning_content", path);
        message.tool_name = optional_text(object, "name", path);
        message.tool_call_id = optional_text(object, "tool_call_id", path);
        messages.push_back(std::move(message));
    }
    return messages;
}

} // namespace chat
