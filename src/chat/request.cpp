/* Reads a chat request's messages and tools, and turns it into the template's parameters: see request.hpp. */
#include "chat/request.hpp"

#include "chat/fields.hpp"
#include "chat/schema.hpp"
#include "chat/turns.hpp"
#include "chat/wide.hpp"

#include "chat-auto-parser-helpers.h"

#include <algorithm>
#include <cassert>

namespace chat
{

/* ---- Messages ---- */

/* How media parts are read. */
struct media_reader {
    const chat_request &request;
    std::vector<std::string> &left_out;
};

static void read_media(const json_t *part, const std::string &type, const media_reader &media, const std::string &path,
                       common_chat_msg_content_part &result)
{
    static const struct {
        const char *type, *name; /* in the note that replaces such a part */
    } kinds[] = {{"image_url", "image"}, {"input_audio", "audio"}, {"audio_url", "audio"},
                 {"video_url", "video"}, {"input_video", "video"}, {"file", "document"}};
    const auto *kind =
        std::find_if(std::begin(kinds), std::end(kinds), [&](const auto &one) { return type == one.type; });
    if (kind == std::end(kinds))
        throw refusal{HEARTH_INVALID, path + ".type", "must be \"text\", \"image_url\", \"input_audio\" or \"file\""};
    const chat_request &request = media.request;
    const json_t *place = find_field(part, "media");
    chat_medium medium = {}; /* without text where the model does not take it */
    if (place != nullptr && request.media != nullptr) {
        size_t i = json_is_integer(place) ? static_cast<size_t>(json_integer_value(place)) : request.n_media;
        if (i >= request.n_media) throw refusal{HEARTH_INVALID, path + ".media", "must be the place of a medium"};
        medium = request.media[i];
    }
    if (medium.text != nullptr) {
        result.type = medium.is_marker ? "media_marker" : "text";
        result.text = medium.text;
        return;
    }
    bool takes_some = request.takes_media;
    if (request.refuses_media)
        throw refusal{HEARTH_UNSUPPORTED, path + ".type",
                      "is \"" + type + "\", and this model takes " + (takes_some ? "no such files" : "text only") +
                          ": leave it out of the messages"};
    media.left_out.push_back(path);
    result.text =
        std::string("[") + kind->name + " left out: this model takes " + (takes_some ? "no such files]" : "text only]");
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
        const json_t *part = object_item(content, i, at);
        common_chat_msg_content_part result;
        std::string type = required_text(part, "type", at);
        result.type = "text";
        if (type != "text" && type != "refusal")
            read_media(part, type, media, at, result);
        else if (find_field(part, type.c_str()) == nullptr)
            throw refusal{HEARTH_INVALID, at.append(".").append(type), "must be a string"};
        else
            result.text = optional_text(part, type.c_str(), at);
        message.content_parts.push_back(std::move(result));
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

/* Media that the model takes become the request's text for them. Other media are refused, or replaced by a fixed note,
 * so that a conversation keeps its prefix. `media_left_out` gets the paths of the replaced ones. */
static std::vector<common_chat_msg> read_messages(const chat_request &request, std::vector<std::string> &media_left_out)
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
        const json_t *calls = find_field(object, "tool_calls");
        std::string here = path + ".tool_calls";
        if (calls != nullptr && !json_is_array(calls)) throw refusal{HEARTH_INVALID, here, "must be an array"};
        for (size_t k = 0; k < json_array_size(calls); k++) {
            std::string at = indexed(here, k);
            message.tool_calls.push_back(read_tool_call(object_item(calls, k, at), at));
        }
        message.reasoning_content = optional_text(object, "reasoning_content", path);
        message.tool_name = optional_text(object, "name", path);
        message.tool_call_id = optional_text(object, "tool_call_id", path);
        /* A misspelt "content" would give an empty message. Only messages that call tools and results of tools may lack
         * it. */
        bool may_lack = message.role == "assistant" || message.role == "tool";
        if (!may_lack && json_object_get(object, "content") == nullptr)
            throw refusal{HEARTH_INVALID, path + ".content", "is missing"};
        messages.push_back(std::move(message));
    }
    return messages;
}

/* ---- Tools ---- */

/* llama.cpp makes rule names of tools' names with a regular expression that recurses once a letter, and renders
 * templates over all tools several times. */
static const size_t max_tool_name = 256, max_tools = 1024;

static common_json read_tool(const json_t *tool, const std::string &path)
{
    std::string type = required_text(tool, "type", path);
    if (type != "function")
        throw refusal{HEARTH_UNSUPPORTED, path + ".type", "only tools of type \"function\" are supported"};
    const json_t *function = required_object(tool, "function", path);
    std::string here = path + ".function";
    std::string name = required_text(function, "name", here);
    if (name.size() > max_tool_name)
        throw refusal{HEARTH_INVALID, here + ".name", "is longer than " + std::to_string(max_tool_name) + " bytes"};
    std::string description = optional_text(function, "description", here);
    if (find_field(function, "parameters") != nullptr) required_object(function, "parameters", here);
    const json_t *parameters = json_object_get(function, "parameters");
    return {{"type", "function"},
            {"function",
             {{"name", name},
              {"description", description},
              {"parameters",
               parameters == nullptr ? common_json::object() : to_common(parameters, wide_numbers::marked)}}}};
}

/* Of the budget of one schema: of a hundred tools, most have little. */
static const size_t max_schemas = 4;

void lower_parameters(common_json &tools, std::set<std::string> &unenforced)
{
    schema_budget budget(max_schemas);
    for (size_t i = 0; i < tools.size(); i++) {
        common_json &function = tools[i]["function"];
        if (!function.contains("parameters")) continue;
        common_json parameters = function.at("parameters");
        if (!parameters.is_object() || parameters.empty()) continue;
        unmark_numbers(parameters);
        function["parameters"] = tool_schema(parameters, function.at("name").get<std::string>(),
                                             "t" + std::to_string(i) + "d", budget, unenforced);
    }
}

bool free_unconvertible(common_json &tools, std::set<std::string> &unenforced)
{
    bool found = false;
    std::string reason;
    for (size_t i = 0; i < tools.size(); i++) {
        common_json &function = tools[i]["function"];
        if (!function.contains("parameters") || is_convertible(function.at("parameters"), reason)) continue;
        function["parameters"] = freed_arguments(function.at("name").get<std::string>(), reason, unenforced);
        found = true;
    }
    return found;
}

/* ---- What templates and handlers get ---- */

static void trim(common_chat_msg &message)
{
    message.content = trim_whitespace(message.content);
    message.reasoning_content = trim_whitespace(message.reasoning_content);
    for (auto &part : message.content_parts) part.text = trim_whitespace(part.text);
}

/* ---- Going on with the last message ---- */

static bool ends_with_assistant(const std::vector<common_chat_msg> &messages)
{
    return messages.back().role == "assistant";
}

/* `begins`: the last message was empty, and is no longer there. */
static common_chat_continuation continuation_of(const std::vector<common_chat_msg> &messages,
                                                const chat_request &request, bool begins)
{
    const common_chat_msg &last = messages.back();
    bool is_assistant = ends_with_assistant(messages), calls = !last.tool_calls.empty();
    if (request.n_messages > 0 || request.continue_final == HEARTH_CONTINUE_NEVER) return COMMON_CHAT_CONTINUATION_NONE;
    if (request.continue_final == HEARTH_CONTINUE_AUTO) {
        /* A final assistant message is continued where that is possible. */
        if (!is_assistant || calls) return COMMON_CHAT_CONTINUATION_NONE;
        bool reasons = !last.reasoning_content.empty() && last.content.empty() && last.content_parts.empty();
        return reasons ? COMMON_CHAT_CONTINUATION_REASONING : COMMON_CHAT_CONTINUATION_CONTENT;
    }
    if (begins) return COMMON_CHAT_CONTINUATION_NONE;
    std::string path = indexed("messages", messages.size() - 1);
    if (!is_assistant) throw refusal{HEARTH_INVALID, path + ".role", "must be \"assistant\" to continue the message"};
    if (calls) throw refusal{HEARTH_INVALID, path + ".tool_calls", "must be absent to continue the message"};
    return request.continue_final == HEARTH_CONTINUE_CONTENT ? COMMON_CHAT_CONTINUATION_CONTENT
                                                             : COMMON_CHAT_CONTINUATION_REASONING;
}

static void take_messages(autoparser::generation_params &params, const chat_template &template_,
                          const chat_request &request, const chat_parsed &parsed)
{
    bool partly = request.n_messages > 0 && request.n_messages < parsed.messages.size();
    auto end =
        partly ? parsed.messages.begin() + static_cast<std::ptrdiff_t>(request.n_messages) : parsed.messages.end();
    std::vector<common_chat_msg> messages(parsed.messages.begin(), end);
    /* An empty final assistant message only marks where the reply goes, also where it is to be continued. */
    const common_chat_msg &last = messages.back();
    bool empty = last.tool_calls.empty() && last.reasoning_content.empty() && last.render_content().empty();
    bool whole = request.n_messages == 0 && request.continue_final != HEARTH_CONTINUE_NEVER;
    bool begins = whole && empty && messages.size() > 1 && ends_with_assistant(messages);
    if (begins) messages.pop_back();
    params.add_generation_prompt = request.add_generation_prompt;
    params.continue_final_message = continuation_of(messages, request, begins);
    if (params.continue_final_message != COMMON_CHAT_CONTINUATION_NONE) {
        /* The message to continue is not rendered by the template: handlers append it to the rendered text. The
         * assistant's message before it stays a message of its own, where the template takes two in a row. */
        params.add_generation_prompt = false;
        params.continue_msg = std::move(messages.back());
        messages.pop_back();
        bool joins = template_.turns.in_a_row != assistants::apart;
        while (joins && !messages.empty() && ends_with_assistant(messages) && messages.back().tool_calls.empty()) {
            join_before(params.continue_msg, messages.back());
            messages.pop_back();
        }
    }
    /* Templates know one role of who runs the model: "developer" is the newer name of "system". */
    for (auto &message : messages)
        if (message.role == "developer") message.role = "system";
    if (!parsed.tools.empty() && (template_.turns.tools_as_text || template_.turns.new_calls_as_text))
        tell_of_tools(template_.turns, messages, parsed.tools);
    /* StepFun's models loop on stray white space. */
    static const char words[] = "You have access to the following functions in JSONSchema format";
    if (template_.compiled->source().find(words) != std::string::npos)
        std::for_each(messages.begin(), messages.end(), trim);
    const turn_rules rules = request.plain ? plain_rules(template_.turns) : template_.turns;
    params.messages = turns_to_json(rules, make_turns(rules, messages, !partly));
}

/* ---- The rest ---- */

/* Refuses the two arguments that would override what was checked or requested elsewhere. */
common_json read_kwargs(common_json kwargs)
{
    if (!kwargs.is_object()) throw refusal{HEARTH_INVALID, "chat_template_kwargs", "must be an object"};
    for (const auto &entry : kwargs.items()) {
        std::string path = "chat_template_kwargs." + entry.key();
        if (entry.key() == "messages" || entry.key() == "add_generation_prompt")
            throw refusal{HEARTH_INVALID, path, "cannot be set here"};
        if (entry.key() == "enable_thinking" && !entry.value().is_boolean())
            throw refusal{HEARTH_INVALID, path, "must be true or false"};
    }
    return kwargs;
}

static void take_kwargs(autoparser::generation_params &params, const common_json &kwargs)
{
    if (kwargs.is_null()) return;
    for (const auto &entry : kwargs.items()) {
        if (entry.key() == "enable_thinking") params.enable_thinking = entry.value().get<bool>();
        params.extra_context[entry.key()] = entry.value();
    }
}

/* ---- Reading ---- */

static chat_parsed parse_request(const chat_request &request)
{
    chat_parsed parsed;
    parsed.messages = read_messages(request, parsed.media_left_out);
    if (request.tools != nullptr) {
        check_tree(request.tools, wide_numbers::marked, "tools");
        if (!json_is_array(request.tools)) throw refusal{HEARTH_INVALID, "tools", "must be an array"};
        if (json_array_size(request.tools) > max_tools)
            throw refusal{HEARTH_INVALID, "tools", "has more than " + std::to_string(max_tools) + " tools"};
    }
    for (size_t i = 0; i < json_array_size(request.tools); i++) {
        std::string path = indexed("tools", i);
        parsed.tools.push_back(read_tool(object_item(request.tools, i, path), path));
    }
    if (parsed.tools.empty() && request.tool_choice == HEARTH_TOOLS_REQUIRED)
        throw refusal{HEARTH_INVALID, "tool_choice", "needs tools to choose from"};
    bool may_call = !parsed.tools.empty() && request.tool_choice != HEARTH_TOOLS_NONE;
    if (may_call && request.grammar != nullptr)
        throw refusal{HEARTH_INVALID, "grammar", "cannot be used together with tools"};
    if (request.json_schema != nullptr) {
        if (request.grammar != nullptr)
            throw refusal{HEARTH_INVALID, "grammar", "cannot be used together with json_schema"};
        parsed.given_schema = read_tree(request.json_schema, wide_numbers::nearest, "json_schema");
        /* Handlers would not report what is wrong with a schema. An empty one means any object, as with llama-server.
         */
        parsed.schema = reply_schema(parsed.given_schema, parsed.unenforced);
        for (common_json *schema : {&parsed.given_schema, &parsed.schema})
            if (schema->empty()) (*schema)["type"] = "object";
    }
    if (request.kwargs != nullptr)
        parsed.kwargs = read_kwargs(read_tree(request.kwargs, wide_numbers::marked, "chat_template_kwargs"));
    return parsed;
}

const chat_parsed &parsed_of(const chat_request &request, std::optional<chat_parsed> &own)
{
    if (request.parsed != nullptr) return *request.parsed;
    return own.emplace(parse_request(request));
}

autoparser::generation_params read_request(const chat_template &template_, const chat_request &request,
                                           const chat_parsed &parsed)
{
    assert(render_scope::current != nullptr && !parsed.messages.empty());
    autoparser::generation_params params;
    take_messages(params, template_, request, parsed);
    static const common_chat_tool_choice choices[] = {COMMON_CHAT_TOOL_CHOICE_AUTO, COMMON_CHAT_TOOL_CHOICE_NONE,
                                                      COMMON_CHAT_TOOL_CHOICE_REQUIRED};
    params.tools = parsed.tools;
    params.tool_choice = choices[request.tool_choice];
    bool takes_several = template_.turns.new_calls_as_text || template_.compiled->caps.supports_parallel_tool_calls;
    params.parallel_tool_calls = request.parallel_tool_calls < 0 ? takes_several : request.parallel_tool_calls != 0;
    params.json_schema = parsed.schema;
    params.reasoning_format =
        request.reasoning_in_text ? COMMON_REASONING_FORMAT_NONE : COMMON_REASONING_FORMAT_DEEPSEEK;
    params.enable_thinking = template_.supports_thinking;
    params.add_bos = template_.adds_bos;
    params.add_eos = template_.adds_eos;
    params.extra_context = common_json::object();
    params.extra_context["datetime"] = format_time(render_scope::current->now, "%b %d %Y");
    params.extra_context["date_string"] = format_time(render_scope::current->now, "%d %b %Y");
    /* As llama-server does: a template that drops the reasoning of earlier turns changes text before the last message,
     * and with it the prefix that could be reused. */
    params.extra_context["preserve_reasoning"] = true;
    take_kwargs(params, template_.kwargs);
    take_kwargs(params, parsed.kwargs);
    return params;
}

} // namespace chat

int chat_parse(const struct chat_request *request, struct chat_parsed **parsed, hearth_error *error)
{
    assert(request != nullptr && request->messages != nullptr && parsed != nullptr);
    *parsed = nullptr;
    return chat::guarded(error, "messages", chat::render_error_message,
                         [&] { *parsed = new chat_parsed(chat::parse_request(*request)); });
}

void chat_parsed_close(struct chat_parsed *parsed)
{
    delete parsed;
}
