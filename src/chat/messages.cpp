/* The messages of a chat request: see messages.hpp. */
#include "chat/messages.hpp"

#include "chat/fields.hpp"

#include <algorithm>
#include <iterator>

namespace chat
{

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
    if (find_field(part, "text") == nullptr) throw refusal{HEARTH_INVALID, path + ".text", "must be a string"};
    result.text = optional_text(part, "text", path);
    return result;
}

static void read_content(common_chat_msg &message, const common_json &object, const std::string &path)
{
    const common_json *content = find_field(object, "content");
    if (content == nullptr) return;
    if (content->is_string()) {
        message.content = content->get<std::string>();
        return;
    }
    std::string here = path + ".content";
    if (!content->is_array()) throw refusal{HEARTH_INVALID, here, "must be a string, null or an array of parts"};
    for (size_t i = 0; i < content->size(); i++) {
        std::string at = indexed(here, i);
        message.content_parts.push_back(read_part(object_item(*content, i, at), at));
    }
}

static common_chat_tool_call read_tool_call(const common_json &call, const std::string &path)
{
    const common_json *type = find_field(call, "type");
    if (type != nullptr && !(type->is_string() && type->get<std::string>() == "function"))
        throw refusal{HEARTH_UNSUPPORTED, path + ".type", "only calls of type \"function\" are supported"};
    const common_json &function = required_object(call, "function", path);
    std::string here = path + ".function";

    common_chat_tool_call result;
    result.id = optional_text(call, "id", path);
    result.name = required_text(function, "name", here);
    const common_json *arguments = find_field(function, "arguments");
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
    const common_json *calls = find_field(object, "tool_calls");
    if (calls == nullptr) return;
    std::string here = path + ".tool_calls";
    if (!calls->is_array()) throw refusal{HEARTH_INVALID, here, "must be an array"};
    for (size_t i = 0; i < calls->size(); i++) {
        std::string at = indexed(here, i);
        message.tool_calls.push_back(read_tool_call(object_item(*calls, i, at), at));
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
        const common_json &object = object_item(array, i, path);
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
