/* Reads the messages of a chat request: see messages.hpp. */
#include "chat/messages.hpp"

#include "chat/fields.hpp"

namespace chat
{

/* The name of a media type in the note that replaces such a part; NULL: an unknown type. */
static const char *name_of_media(const std::string &type)
{
    static const struct {
        const char *type, *name;
    } rows[] = {{"image_url", "image"}, {"input_audio", "audio"}, {"audio_url", "audio"},
                {"video_url", "video"}, {"input_video", "video"}, {"file", "document"}};
    for (const auto &row : rows)
        if (type == row.type) return row.name;
    return nullptr;
}

/* How media parts are read. */
struct media_reader {
    const chat_request &request;
    std::vector<std::string> &left_out;
};

/* What is rendered for the part; its text is NULL where the model does not take it. */
static chat_medium medium_of(const json_t *part, const chat_request &request, const std::string &path)
{
    const json_t *media = find_field(part, "media");
    if (media == nullptr || request.media == nullptr) return {};
    size_t i = json_is_integer(media) ? static_cast<size_t>(json_integer_value(media)) : request.n_media;
    if (i >= request.n_media) throw refusal{HEARTH_INVALID, path + ".media", "must be the place of a medium"};
    return request.media[i];
}

static void read_media(const json_t *part, const std::string &type, const media_reader &media, const std::string &path,
                       common_chat_msg_content_part &result)
{
    const char *name = name_of_media(type);
    if (name == nullptr)
        throw refusal{HEARTH_INVALID, path + ".type", "must be \"text\", \"image_url\", \"input_audio\" or \"file\""};
    chat_medium medium = medium_of(part, media.request, path);
    if (medium.text != nullptr) {
        result.type = medium.is_marker ? "media_marker" : "text";
        result.text = medium.text;
        return;
    }
    bool takes_some = media.request.takes_media;
    if (media.request.refuses_media)
        throw refusal{HEARTH_UNSUPPORTED, path + ".type",
                      "is \"" + type + "\", and this model takes " + (takes_some ? "no such files" : "text only") +
                          ": leave it out of the messages"};
    media.left_out.push_back(path);
    result.text =
        std::string("[") + name + " left out: this model takes " + (takes_some ? "no such files]" : "text only]");
}

static common_chat_msg_content_part read_part(const json_t *part, const media_reader &media, const std::string &path)
{
    common_chat_msg_content_part result;
    std::string type = required_text(part, "type", path);
    result.type = "text";
    if (type != "text" && type != "refusal") {
        read_media(part, type, media, path, result);
        return result;
    }
    if (find_field(part, type.c_str()) == nullptr) throw refusal{HEARTH_INVALID, path + "." + type, "must be a string"};
    result.text = optional_text(part, type.c_str(), path);
    return result;
}

static void read_content(common_chat_msg &message, const json_t *object, const media_reader &media,
                         const std::string &path)
{
    const json_t *content = find_field(object, "content");
    if (content == nullptr) return;
    if (json_is_string(content)) {
        message.content = string_of(content);
        return;
    }
    std::string here = path + ".content";
    if (!json_is_array(content)) throw refusal{HEARTH_INVALID, here, "must be a string, null or an array of parts"};
    for (size_t i = 0; i < json_array_size(content); i++) {
        std::string at = indexed(here, i);
        message.content_parts.push_back(read_part(object_item(content, i, at), media, at));
    }
}

static common_chat_tool_call read_tool_call(const json_t *call, const std::string &path)
{
    const json_t *type = find_field(call, "type");
    if (type != nullptr && !(json_is_string(type) && string_of(type) == "function"))
        throw refusal{HEARTH_UNSUPPORTED, path + ".type", "only calls of type \"function\" are supported"};
    const json_t *function = required_object(call, "function", path);
    std::string here = path + ".function";

    common_chat_tool_call result;
    result.id = optional_text(call, "id", path);
    result.name = required_text(function, "name", here);
    const json_t *arguments = find_field(function, "arguments");
    if (arguments != nullptr)
        result.arguments =
            json_is_string(arguments) ? string_of(arguments) : to_common(arguments, wide_numbers::nearest).dump();
    return result;
}

static void read_tool_calls(common_chat_msg &message, const json_t *object, const std::string &path)
{
    const json_t *calls = find_field(object, "tool_calls");
    if (calls == nullptr) return;
    std::string here = path + ".tool_calls";
    if (!json_is_array(calls)) throw refusal{HEARTH_INVALID, here, "must be an array"};
    for (size_t i = 0; i < json_array_size(calls); i++) {
        std::string at = indexed(here, i);
        message.tool_calls.push_back(read_tool_call(object_item(calls, i, at), at));
    }
}

/* A misspelt "content" would give an empty message. Only messages that call tools and results of tools may lack it. */
static void check_has_content(const json_t *object, const common_chat_msg &message, const std::string &path)
{
    bool may_lack = message.role == "assistant" || message.role == "tool";
    if (!may_lack && json_object_get(object, "content") == nullptr)
        throw refusal{HEARTH_INVALID, path + ".content", "is missing"};
}

std::vector<common_chat_msg> read_messages(const chat_request &request, std::vector<std::string> &media_left_out)
{
    media_reader media = {request, media_left_out};
    const json_t *array = request.messages;
    check_tree(array, wide_numbers::nearest, "messages");
    if (!json_is_array(array)) throw refusal{HEARTH_INVALID, "messages", "must be an array"};
    if (json_array_size(array) == 0) throw refusal{HEARTH_INVALID, "messages", "must hold at least one message"};
    std::vector<common_chat_msg> messages;
    for (size_t i = 0; i < json_array_size(array); i++) {
        std::string path = indexed("messages", i);
        const json_t *object = object_item(array, i, path);
        common_chat_msg message;
        message.role = required_text(object, "role", path);
        read_content(message, object, media, path);
        read_tool_calls(message, object, path);
        message.reasoning_content = optional_text(object, "reasoning_content", path);
        message.tool_name = optional_text(object, "name", path);
        message.tool_call_id = optional_text(object, "tool_call_id", path);
        check_has_content(object, message, path);
        messages.push_back(std::move(message));
    }
    return messages;
}

} // namespace chat
