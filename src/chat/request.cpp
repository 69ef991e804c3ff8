/* Turns a chat request into the template's parameters: see request.hpp. */
#include "chat/request.hpp"

#include "chat/fields.hpp"
#include "chat/messages.hpp"
#include "chat/schema.hpp"
#include "chat/system.hpp"
#include "chat/tools.hpp"

#include "chat-auto-parser-helpers.h"

namespace chat
{

/* ---- Messages ---- */

static void trim(common_chat_msg &message)
{
    message.content = trim_whitespace(message.content);
    message.reasoning_content = trim_whitespace(message.reasoning_content);
    for (auto &part : message.content_parts) part.text = trim_whitespace(part.text);
}

/* Adapts the messages to the template's capabilities, as llama-server does. */
static void adapt_messages(std::vector<common_chat_msg> &messages, const chat_template &template_)
{
    const common_chat_template &compiled = *template_.compiled;
    bool knows_developer = compiled.source().find("<|channel|>") != std::string::npos; /* gpt-oss */
    /* StepFun's models loop on stray white space. */
    bool wants_trim =
        compiled.source().find("You have access to the following functions in JSONSchema format") != std::string::npos;
    for (auto &message : messages) {
        if (message.role == "developer" && !knows_developer) message.role = "system";
        if (wants_trim) trim(message);
    }
    if (!template_.accepts_later_system) wrap_later_system(messages);
    if (!compiled.caps.supports_system_role && !messages.empty() && messages[0].role == "system") {
        if (messages.size() > 1) {
            messages[1].content = messages[0].render_content("\n") + "\n" + messages[1].render_content("\n");
            messages[1].content_parts.clear();
        }
        messages.erase(messages.begin());
    }
    if (compiled.caps.supports_string_content || !compiled.caps.supports_typed_content) return;
    for (auto &message : messages) {
        if (!message.content_parts.empty()) continue;
        message.content_parts.push_back({"text", message.content});
        message.content.clear();
    }
}

static std::vector<size_t> indices_of_callers(const std::vector<common_chat_msg> &messages)
{
    std::vector<size_t> indices;
    for (size_t i = 0; i < messages.size(); i++)
        if (!messages[i].tool_calls.empty()) indices.push_back(i);
    return indices;
}

/* `indices`: of the messages with calls within the request, since adapt_messages() removes others. */
static void parse_arguments(common_json &messages, const std::vector<size_t> &indices)
{
    auto index = indices.begin();
    for (size_t i = 0; i < messages.size(); i++) {
        if (!messages[i].contains("tool_calls")) continue;
        common_json &calls = messages[i]["tool_calls"];
        std::string caller = indexed("messages", *index++);
        for (size_t k = 0; k < calls.size(); k++) {
            common_json &arguments = calls[k]["function"]["arguments"];
            std::string path = caller + ".tool_calls[" + std::to_string(k) + "].function.arguments";
            arguments = parse_json(arguments.get<std::string>(), path);
        }
    }
}

/* ---- Going on with the last message ---- */

static bool ends_with_assistant(const std::vector<common_chat_msg> &messages)
{
    return messages.back().role == "assistant";
}

/* By default a final assistant message is continued where that is possible. */
static common_chat_continuation default_continuation(const std::vector<common_chat_msg> &messages)
{
    if (!ends_with_assistant(messages) || !messages.back().tool_calls.empty()) return COMMON_CHAT_CONTINUATION_NONE;
    if (messages.size() > 1 && messages[messages.size() - 2].role == "assistant")
        throw refusal{HEARTH_INVALID, "messages", "must not end with two messages of the assistant's"};
    const common_chat_msg &last = messages.back();
    bool reasons = !last.reasoning_content.empty() && last.content.empty() && last.content_parts.empty();
    return reasons ? COMMON_CHAT_CONTINUATION_REASONING : COMMON_CHAT_CONTINUATION_CONTENT;
}

static common_chat_continuation requested_continuation(const std::vector<common_chat_msg> &messages,
                                                       hearth_continue what)
{
    std::string last = indexed("messages", messages.size() - 1);
    if (!ends_with_assistant(messages))
        throw refusal{HEARTH_INVALID, last + ".role", "must be \"assistant\" to continue the message"};
    if (!messages.back().tool_calls.empty())
        throw refusal{HEARTH_INVALID, last + ".tool_calls", "must be absent to continue the message"};
    return what == HEARTH_CONTINUE_CONTENT ? COMMON_CHAT_CONTINUATION_CONTENT : COMMON_CHAT_CONTINUATION_REASONING;
}

static common_chat_continuation continuation_of(const std::vector<common_chat_msg> &messages,
                                                const chat_request &request)
{
    if (request.n_messages > 0 || request.continue_final == HEARTH_CONTINUE_NEVER) return COMMON_CHAT_CONTINUATION_NONE;
    if (request.continue_final == HEARTH_CONTINUE_AUTO) return default_continuation(messages);
    return requested_continuation(messages, request.continue_final);
}

/* An empty final assistant message only marks where the reply goes. */
static void drop_empty_last_message(std::vector<common_chat_msg> &messages, const chat_request &request)
{
    const common_chat_msg &last = messages.back();
    bool empty = last.tool_calls.empty() && last.reasoning_content.empty() && last.render_content().empty();
    bool whole = request.n_messages == 0 && request.continue_final == HEARTH_CONTINUE_AUTO;
    if (whole && empty && messages.size() > 1 && ends_with_assistant(messages)) messages.pop_back();
}

/* The message to continue is not rendered by the template: handlers append it to the rendered text. */
static void read_messages(autoparser::generation_params &params, const chat_template &template_,
                          const chat_request &request)
{
    std::vector<common_chat_msg> messages = read_messages(request);
    if (request.n_messages > 0 && request.n_messages < messages.size()) messages.resize(request.n_messages);
    drop_empty_last_message(messages, request);
    params.add_generation_prompt = request.add_generation_prompt;
    params.continue_final_message = continuation_of(messages, request);
    if (params.continue_final_message != COMMON_CHAT_CONTINUATION_NONE) {
        params.add_generation_prompt = false;
        params.continue_msg = std::move(messages.back());
        messages.pop_back();
    }
    std::vector<size_t> callers = indices_of_callers(messages);
    adapt_messages(messages, template_);
    const jinja::caps &caps = template_.compiled->caps;
    bool joined = caps.supports_string_content && !caps.supports_typed_content;
    params.messages = common_chat_msgs_to_json_oaicompat(messages, joined);
    if (caps.supports_object_arguments) parse_arguments(params.messages, callers);
}

/* ---- The rest ---- */

static void read_tool_fields(autoparser::generation_params &params, const chat_template &template_,
                             const chat_request &request)
{
    static const common_chat_tool_choice choices[] = {COMMON_CHAT_TOOL_CHOICE_AUTO, COMMON_CHAT_TOOL_CHOICE_NONE,
                                                      COMMON_CHAT_TOOL_CHOICE_REQUIRED};
    std::vector<common_chat_tool> tools;
    if (request.tools_json != nullptr) tools = read_tools(request.tools_json);
    params.tools = common_chat_tools_to_json_oaicompat(tools);
    params.tool_choice = choices[request.tool_choice];
    params.parallel_tool_calls = request.parallel_tool_calls < 0 ? template_.compiled->caps.supports_parallel_tool_calls
                                                                 : request.parallel_tool_calls != 0;
    if (tools.empty() && request.tool_choice == HEARTH_TOOLS_REQUIRED)
        throw refusal{HEARTH_INVALID, "tool_choice", "needs tools to choose from"};
    bool may_call = !tools.empty() && request.tool_choice != HEARTH_TOOLS_NONE;
    if (may_call && request.grammar != nullptr)
        throw refusal{HEARTH_INVALID, "grammar", "cannot be used together with tools"};
}

/* Handlers would not report what is wrong with a schema. A request is rendered several times, one after the other, so
 * the last good schema is cached. */
static void check_schema_once(const char *text, const common_json &schema)
{
    static thread_local std::string good;
    if (good == text) return;
    reply_schema_grammar(schema);
    good = text;
}

/* An empty schema means any object, as with llama-server. */
static void read_schema(autoparser::generation_params &params, const chat_request &request)
{
    if (request.json_schema == nullptr) return;
    if (request.grammar != nullptr)
        throw refusal{HEARTH_INVALID, "grammar", "cannot be used together with json_schema"};
    params.json_schema = with_expanded_classes(parse_json(request.json_schema, "json_schema"));
    check_schema_once(request.json_schema, params.json_schema);
    if (params.json_schema.empty()) params.json_schema["type"] = "object";
}

/* Refuses the two arguments that would override what was checked or requested elsewhere. */
static void read_kwargs(autoparser::generation_params &params, const std::string &text)
{
    if (text.empty()) return;
    common_json kwargs = parse_json(text, "chat_template_kwargs");
    if (!kwargs.is_object()) throw refusal{HEARTH_INVALID, "chat_template_kwargs", "must be an object"};
    for (const auto &entry : kwargs.items()) {
        std::string path = "chat_template_kwargs." + entry.key();
        if (entry.key() == "messages" || entry.key() == "add_generation_prompt")
            throw refusal{HEARTH_INVALID, path, "cannot be set here"};
        if (entry.key() == "enable_thinking") {
            if (!entry.value().is_boolean()) throw refusal{HEARTH_INVALID, path, "must be true or false"};
            params.enable_thinking = entry.value().get<bool>();
        }
        params.extra_context[entry.key()] = entry.value();
    }
}

void check_kwargs(const std::string &text)
{
    autoparser::generation_params scratch;
    scratch.extra_context = common_json::object();
    read_kwargs(scratch, text);
}

autoparser::generation_params read_request(const chat_template &template_, const chat_request &request)
{
    autoparser::generation_params params;
    read_messages(params, template_, request);
    read_tool_fields(params, template_, request);
    read_schema(params, request);
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
    read_kwargs(params, template_.kwargs);
    read_kwargs(params, request.kwargs_json != nullptr ? request.kwargs_json : "");
    return params;
}

} // namespace chat
