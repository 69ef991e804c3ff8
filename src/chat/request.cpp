/* Turns a chat request into the template's parameters: see request.hpp. */
#include "chat/request.hpp"

#include "chat/fields.hpp"
#include "chat/messages.hpp"
#include "chat/schema.hpp"
#include "chat/tools.hpp"
#include "chat/turns.hpp"
#include "chat/wide.hpp"

#include "chat-auto-parser-helpers.h"

#include <algorithm>
#include <cassert>

namespace chat
{

/* ---- Messages ---- */

static void trim(common_chat_msg &message)
{
    message.content = trim_whitespace(message.content);
    message.reasoning_content = trim_whitespace(message.reasoning_content);
    for (auto &part : message.content_parts) part.text = trim_whitespace(part.text);
}

/* Templates know one role of who runs the model: "developer" is the newer name of "system". */
static void rename_developer(std::vector<common_chat_msg> &messages)
{
    for (auto &message : messages)
        if (message.role == "developer") message.role = "system";
}

/* StepFun's models loop on stray white space. */
static bool wants_trim(const chat_template &template_)
{
    static const char words[] = "You have access to the following functions in JSONSchema format";
    return template_.compiled->source().find(words) != std::string::npos;
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

/* `begins`: the last message was empty, and is no longer there. */
static common_chat_continuation continuation_of(const std::vector<common_chat_msg> &messages,
                                                const chat_request &request, bool begins)
{
    if (request.n_messages > 0 || request.continue_final == HEARTH_CONTINUE_NEVER) return COMMON_CHAT_CONTINUATION_NONE;
    if (request.continue_final == HEARTH_CONTINUE_AUTO) return default_continuation(messages);
    return begins ? COMMON_CHAT_CONTINUATION_NONE : requested_continuation(messages, request.continue_final);
}

/* An empty final assistant message only marks where the reply goes, also where it is to be continued. */
static bool drop_empty_last_message(std::vector<common_chat_msg> &messages, const chat_request &request)
{
    const common_chat_msg &last = messages.back();
    bool empty = last.tool_calls.empty() && last.reasoning_content.empty() && last.render_content().empty();
    bool whole = request.n_messages == 0 && request.continue_final != HEARTH_CONTINUE_NEVER;
    bool drops = whole && empty && messages.size() > 1 && ends_with_assistant(messages);
    if (drops) messages.pop_back();
    return drops;
}

/* The message to continue is not rendered by the template: handlers append it to the rendered text. What the assistant
 * said before it is a message of its own, where the template takes that. */
static void take_continued(autoparser::generation_params &params, const chat_template &template_,
                           std::vector<common_chat_msg> &messages)
{
    params.add_generation_prompt = false;
    params.continue_msg = std::move(messages.back());
    messages.pop_back();
    bool joins = template_.turns.in_a_row != assistants::apart;
    while (joins && !messages.empty() && ends_with_assistant(messages) && messages.back().tool_calls.empty()) {
        join_before(params.continue_msg, messages.back());
        messages.pop_back();
    }
}

static void take_messages(autoparser::generation_params &params, const chat_template &template_,
                          const chat_request &request, const chat_parsed &parsed)
{
    bool partly = request.n_messages > 0 && request.n_messages < parsed.messages.size();
    auto end =
        partly ? parsed.messages.begin() + static_cast<std::ptrdiff_t>(request.n_messages) : parsed.messages.end();
    std::vector<common_chat_msg> messages(parsed.messages.begin(), end);
    bool begins = drop_empty_last_message(messages, request);
    params.add_generation_prompt = request.add_generation_prompt;
    params.continue_final_message = continuation_of(messages, request, begins);
    if (params.continue_final_message != COMMON_CHAT_CONTINUATION_NONE) take_continued(params, template_, messages);
    rename_developer(messages);
    if (!parsed.tools.empty() && (template_.turns.tools_as_text || template_.turns.new_calls_as_text))
        tell_of_tools(template_.turns, messages, parsed.tools);
    if (wants_trim(template_)) std::for_each(messages.begin(), messages.end(), trim);
    const turn_rules rules = request.plain ? plain_rules(template_.turns) : template_.turns;
    params.messages = turns_to_json(rules, make_turns(rules, messages, !partly));
}

/* ---- The rest ---- */

static void take_tool_fields(autoparser::generation_params &params, const chat_template &template_,
                             const chat_request &request, const chat_parsed &parsed)
{
    static const common_chat_tool_choice choices[] = {COMMON_CHAT_TOOL_CHOICE_AUTO, COMMON_CHAT_TOOL_CHOICE_NONE,
                                                      COMMON_CHAT_TOOL_CHOICE_REQUIRED};
    params.tools = parsed.tools;
    params.tool_choice = choices[request.tool_choice];
    bool takes_several = template_.turns.new_calls_as_text || template_.compiled->caps.supports_parallel_tool_calls;
    params.parallel_tool_calls = request.parallel_tool_calls < 0 ? takes_several : request.parallel_tool_calls != 0;
}

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

static void check_tool_choice(const chat_request &request, const chat_parsed &parsed)
{
    if (parsed.tools.empty() && request.tool_choice == HEARTH_TOOLS_REQUIRED)
        throw refusal{HEARTH_INVALID, "tool_choice", "needs tools to choose from"};
    bool may_call = !parsed.tools.empty() && request.tool_choice != HEARTH_TOOLS_NONE;
    if (may_call && request.grammar != nullptr)
        throw refusal{HEARTH_INVALID, "grammar", "cannot be used together with tools"};
}

/* Handlers would not report what is wrong with a schema. An empty one means any object, as with llama-server. */
static void read_schema(const chat_request &request, chat_parsed &parsed)
{
    if (request.json_schema == nullptr) return;
    if (request.grammar != nullptr)
        throw refusal{HEARTH_INVALID, "grammar", "cannot be used together with json_schema"};
    parsed.given_schema = read_tree(request.json_schema, wide_numbers::nearest, "json_schema");
    parsed.schema = reply_schema(parsed.given_schema, parsed.unenforced);
    for (common_json *schema : {&parsed.given_schema, &parsed.schema})
        if (schema->empty()) (*schema)["type"] = "object";
}

chat_parsed parse_request(const chat_request &request)
{
    chat_parsed parsed;
    parsed.messages = read_messages(request, parsed.media_left_out);
    if (request.tools != nullptr) parsed.tools = read_tools(request.tools);
    check_tool_choice(request, parsed);
    read_schema(request, parsed);
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
    take_tool_fields(params, template_, request, parsed);
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
