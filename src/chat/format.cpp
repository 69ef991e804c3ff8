/* Formats of replies: see format.hpp.
 *
 * What a format depends on makes a long key, which is what is compared: the tools and what else the request says of its
 * reply, and the words that the prompt ends with, which some templates choose by the messages. */
#include "chat/format.hpp"

#include "chat/errors.hpp"
#include "chat/fields.hpp"
#include "chat/request.hpp"
#include "chat/schema.hpp"
#include "chat/template.hpp"
#include "chat/tools.hpp"

#include <cstring>
#include <memory>

namespace chat
{

/* ---- What C sees ---- */

static std::vector<const char *> pointers(const std::vector<std::string> &texts)
{
    std::vector<const char *> result;
    result.reserve(texts.size());
    for (const auto &text : texts) result.push_back(text.c_str());
    return result;
}

static chat_trigger trigger_of(const common_grammar_trigger &trigger)
{
    chat_trigger result = {};
    result.how = trigger.type == COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN        ? chat_trigger::CHAT_TRIGGER_PATTERN
                 : trigger.type == COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN_FULL ? chat_trigger::CHAT_TRIGGER_WHOLE
                                                                            : chat_trigger::CHAT_TRIGGER_WORD;
    result.text = trigger.value.c_str();
    return result;
}

/* A grammar of the request's own is of what the model writes; one of llama.cpp's begins with the prompt's last words.
 */
void reply_format::show()
{
    bool own = !user_grammar.empty();
    const std::string &text = own ? user_grammar : made.grammar;
    for (const auto &trigger : made.grammar_triggers) trigger_list.push_back(trigger_of(trigger));
    preserved_list = pointers(made.preserved_tokens);
    stop_list = pointers(made.additional_stops);
    end_list = pointers(made.thinking_end_tags);
    grammar = text.empty() ? nullptr : text.c_str();
    grammar_lazy = !own && made.grammar_lazy;
    grammar_prefilled = !own && !made.grammar.empty() && !made.grammar_lazy && !parser.empty();
    triggers = trigger_list.data();
    n_triggers = own ? 0 : trigger_list.size();
    preserved = preserved_list.data();
    n_preserved = preserved_list.size();
    stops = stop_list.data();
    n_stops = stop_list.size();
    prefill = made.generation_prompt.c_str();
    thinking_start = made.thinking_start_tag.empty() ? nullptr : made.thinking_start_tag.c_str();
    thinking_ends = end_list.data();
    n_thinking_ends = end_list.size();
}

/* ---- Remembering ---- */

static const size_t max_kept = 32;

formats::~formats()
{
    for (const auto &entry : used) chat_format_unref(entry.format);
}

const chat_format *formats::find(const std::string &key)
{
    std::lock_guard<std::mutex> hold(lock);
    for (auto entry = used.begin(); entry != used.end(); ++entry) {
        if (entry->key != key) continue;
        used.splice(used.begin(), used, entry);
        return chat_format_ref(entry->format);
    }
    return nullptr;
}

/* Two threads may have made the same one: the later is found first, the other grows old. */
void formats::keep(const std::string &key, const chat_format *format)
{
    std::lock_guard<std::mutex> hold(lock);
    used.push_front({key, chat_format_ref(format)});
    if (used.size() <= max_kept) return;
    chat_format_unref(used.back().format);
    used.pop_back();
}

/* Every part with its length before it, so that nothing can stand in another's place. */
static void add_part(std::string &key, const std::string &part)
{
    key += std::to_string(part.size()) + ":" + part;
}

static void add_part(std::string &key, const char *part)
{
    part == nullptr ? add_part(key, std::string("-")) : add_part(key, "+" + std::string(part));
}

/* All messages, where the words that the prompt ends with cannot be told from the rest. */
static std::string cue_or_messages(const chat_template &template_, const chat_request &request,
                                   const autoparser::generation_params &params, const chat_prompt *prompt)
{
    try {
        return generation_prompt_of(template_, params, prompt);
    } catch (const std::exception &) {
        return request.messages_json;
    }
}

static std::string key_of(const chat_template &template_, const chat_request &request,
                          const autoparser::generation_params &params, const chat_prompt *prompt)
{
    std::string key;
    for (int number : {static_cast<int>(request.tool_choice), static_cast<int>(params.parallel_tool_calls),
                       static_cast<int>(params.continue_final_message), static_cast<int>(request.reasoning_in_text),
                       static_cast<int>(params.add_generation_prompt), static_cast<int>(params.enable_thinking)})
        key += std::to_string(number) + ",";
    for (const char *text :
         {request.tools_json, request.allowed_tools_json, request.grammar, request.json_schema, request.kwargs_json})
        add_part(key, text);
    add_part(key, params.continue_msg.render_content());
    add_part(key, params.continue_msg.reasoning_content);
    add_part(key, cue_or_messages(template_, request, params, prompt));
    return key;
}

/* ---- Making ---- */

static bool has_tools(const autoparser::generation_params &params)
{
    return params.tools.is_array() && !params.tools.empty() && params.tool_choice != COMMON_CHAT_TOOL_CHOICE_NONE;
}

static const common_json &find_tool(const common_json &tools, const std::string &name)
{
    for (size_t i = 0; i < tools.size(); i++)
        if (tools.at(i).at("function").at("name").get<std::string>() == name) return tools.at(i);
    throw refusal{HEARTH_INVALID, "tool_choice", "names a tool that is not among the tools"};
}

/* The prompt shows all tools, but these alone may be called. */
static void leave_only(autoparser::generation_params &params, const char *names_json)
{
    common_json names = parse_json(names_json, "tool_choice"), left = common_json::array();
    if (!names.is_array()) throw refusal{HEARTH_INVALID, "tool_choice", "must name tools in an array"};
    for (size_t i = 0; i < names.size(); i++) left.push_back(find_tool(params.tools, names.at(i).get<std::string>()));
    params.tools = left;
}

/* Where llama.cpp can make no parser: what the template itself refuses is thrown again. */
static common_chat_params without_parser(const chat_template &template_, const autoparser::generation_params &params)
{
    common_chat_params result;
    prompt_of(template_, params);
    if (has_tools(params))
        throw refusal{HEARTH_UNSUPPORTED, "tools", "calls of tools cannot be read with this model's chat template"};
    if (!params.json_schema.is_null()) result.grammar = schema_grammar(params.json_schema, "json_schema");
    return result;
}

/* llama.cpp lets a model talk before the call that it must make, and a small one may never come to it: in the rule of
 * the whole reply, text up to a marker that may be left out is left out. */
static void call_at_once(std::string &grammar)
{
    size_t line = grammar.compare(0, 9, "root ::= ") == 0 ? 0 : grammar.find("\nroot ::= ");
    if (line == std::string::npos) return;
    size_t at = line;
    while ((at = grammar.find(" until-", at)) < grammar.find('\n', line + 1)) {
        size_t end = grammar.find_first_not_of("0123456789", at + 7);
        if (end != std::string::npos && grammar[end] == '?')
            grammar.erase(at, end + 1 - at);
        else
            at++;
    }
}

/* Nor does it always end a reply after the one call that may be made. */
static void call_once(std::string &grammar)
{
    static const std::string begin = "\ntool-calls ::= (", end = ")+\n";
    size_t at = grammar.find(begin);
    if (at == std::string::npos) return;
    size_t stop = grammar.find('\n', at + 1);
    if (stop == std::string::npos || grammar.compare(stop + 1 - end.size(), end.size(), end) != 0) return;
    grammar.erase(stop - 2, 2);
    grammar.erase(at + begin.size() - 1, 1);
}

static std::unique_ptr<reply_format> make(const chat_template &template_, const chat_request &request,
                                          autoparser::generation_params params)
{
    auto result = std::make_unique<reply_format>();
    if (request.tools_json != nullptr) check_parameters(read_tools(request.tools_json));
    if (request.allowed_tools_json != nullptr) leave_only(params, request.allowed_tools_json);
    try {
        autoparser::generation_params scratch = params; /* some handlers change it */
        result->made = apply_template(template_, scratch);
        if (!result->made.parser.empty()) result->parser.load(result->made.parser);
    } catch (const std::exception &) {
        result->parser = common_peg_arena();
        result->made = without_parser(template_, params);
    }
    if (has_tools(params) && request.tool_choice == HEARTH_TOOLS_REQUIRED) call_at_once(result->made.grammar);
    if (has_tools(params) && !params.parallel_tool_calls) call_once(result->made.grammar);
    result->made.parser.clear();
    result->made.prompt.clear();
    result->user_grammar = request.grammar == nullptr ? "" : request.grammar;
    result->continues = params.has_continuation();
    result->show();
    return result;
}

static const chat_format *open_format(const chat_template &template_, const chat_request &request,
                                      const chat_prompt *prompt)
{
    performance rehearsal(request.now);
    autoparser::generation_params params = read_request(template_, request);
    std::string key = key_of(template_, request, params, prompt);
    const chat_format *known = template_.formats->find(key);
    if (known != nullptr) return known;
    const chat_format *made = make(template_, request, params).release();
    template_.formats->keep(key, made);
    return made;
}

} // namespace chat

int chat_format_open(const struct chat_template *template_, const struct chat_request *request,
                     const struct chat_prompt *prompt, const struct chat_format **format, hearth_error *error)
{
    *format = nullptr;
    return chat::guarded(error, "messages", chat::render_fault,
                         [&] { *format = chat::open_format(*template_, *request, prompt); });
}

const struct chat_format *chat_format_ref(const struct chat_format *format)
{
    chat::whole(format)->holders++;
    return format;
}

void chat_format_unref(const struct chat_format *format)
{
    if (format != nullptr && --chat::whole(format)->holders == 0) delete chat::whole(format);
}
