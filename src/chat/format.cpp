/* Makes the formats of replies and caches them: see format.hpp.
 *
 * The cache compares a long key of everything that a format depends on: the tools and whatever else the request says of
 * its reply, and what the prompt ends with: some templates choose the generation prompt by the messages. */
#include "chat/format.hpp"

#include "chat/call_grammar.hpp"
#include "chat/errors.hpp"
#include "chat/fields.hpp"
#include "chat/json_reply.hpp"
#include "chat/patience.hpp"
#include "chat/request.hpp"
#include "chat/schema.hpp"
#include "chat/template.hpp"
#include "chat/tools.hpp"

#include "json-schema-to-grammar.h"

extern "C" {
#include "base/json_text.h"
}

#include <cstdlib>
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

/* A request's own grammar constrains what the model writes; one of llama.cpp's matches the generation prompt first. */
void reply_format::fill_c_members()
{
    bool own = !user_grammar.empty();
    const std::string &text = own ? user_grammar : params.grammar;
    for (const auto &trigger : params.grammar_triggers) trigger_list.push_back(trigger_of(trigger));
    preserved_list = pointers(params.preserved_tokens);
    stop_list = pointers(params.additional_stops);
    end_list = pointers(params.thinking_end_tags);
    grammar = text.empty() ? nullptr : text.c_str();
    grammar_lazy = !own && params.grammar_lazy;
    grammar_prefilled = !own && !params.grammar.empty() && !params.grammar_lazy && !parser.empty();
    triggers = trigger_list.data();
    n_triggers = own ? 0 : trigger_list.size();
    preserved = preserved_list.data();
    n_preserved = preserved_list.size();
    stops = stop_list.data();
    n_stops = stop_list.size();
    prefill = params.generation_prompt.c_str();
    thinking_start = params.thinking_start_tag.empty() ? nullptr : params.thinking_start_tag.c_str();
    thinking_ends = end_list.data();
    n_thinking_ends = end_list.size();
    unenforced_lines = lines_of(unenforced_parts);
    unenforced = unenforced_lines.empty() ? nullptr : unenforced_lines.c_str();
}

/* ---- Remembering ---- */

static const size_t max_cached = 32;

format_cache::~format_cache()
{
    for (const auto &entry : recent) chat_format_unref(entry.format);
}

const chat_format *format_cache::find(const std::string &key)
{
    std::lock_guard<std::mutex> hold(lock);
    for (auto entry = recent.begin(); entry != recent.end(); ++entry) {
        if (entry->key != key) continue;
        recent.splice(recent.begin(), recent, entry);
        return chat_format_ref(entry->format);
    }
    return nullptr;
}

/* Two threads may have made the same format: the later one is found first, the other ages out. */
void format_cache::insert(const std::string &key, const chat_format *format)
{
    std::lock_guard<std::mutex> hold(lock);
    recent.push_front({key, chat_format_ref(format)});
    if (recent.size() <= max_cached) return;
    chat_format_unref(recent.back().format);
    recent.pop_back();
}

/* Every part is prefixed by its length, so that different parts cannot give the same key. */
static void add_part(std::string &key, const std::string &part)
{
    key += std::to_string(part.size()) + ":" + part;
}

static std::string json_of(const json_t *tree)
{
    char *text = json_text_of(tree);
    std::string copy = text;
    std::free(text);
    return copy;
}

static void add_part(std::string &key, const json_t *part)
{
    part == nullptr ? add_part(key, std::string("-")) : add_part(key, "+" + json_of(part));
}

static void add_part(std::string &key, const char *part)
{
    part == nullptr ? add_part(key, std::string("-")) : add_part(key, "+" + std::string(part));
}

/* The words of the template's behind the last text of the request's. */
static std::string end_of(const chat_prompt &prompt)
{
    size_t from = 0;
    for (size_t i = 0; i < prompt.n_parts; i++)
        if (prompt.parts[i].is_input) from = prompt.parts[i].offset + prompt.parts[i].len;
    return {prompt.text + from, prompt.len - from};
}

/* Of more bytes it is not the end of a turn: jinja has lost track of whose text it is, and it differs each time. */
static const size_t max_end = 512;

/* What stands for the generation prompt, or for all messages where that cannot be found. Finding it takes renderings of
 * the conversation, so the end of the prompt stands for it, which has it at its end, with the role of who spoke last.
 */
static std::string opening_of(const chat_template &template_, const chat_request &request,
                              const autoparser::generation_params &params, const chat_prompt *prompt)
{
    if (prompt != nullptr && prompt->generation_prompt != nullptr) return prompt->generation_prompt;
    bool opens = prompt != nullptr && params.add_generation_prompt && !params.has_continuation();
    std::string end = opens ? end_of(*prompt) : "";
    if (opens && end.size() <= max_end) return params.messages.back().at("role").get<std::string>() + ":" + end;
    try {
        return generation_prompt_of(template_, params);
    } catch (const std::exception &) {
        return json_of(request.messages);
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
    for (const json_t *tree : {request.tools, request.allowed_tools, request.json_schema, request.kwargs})
        add_part(key, tree);
    add_part(key, request.grammar);
    add_part(key, params.continue_msg.render_content());
    add_part(key, params.continue_msg.reasoning_content);
    add_part(key, opening_of(template_, request, params, prompt));
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

/* The prompt lists all tools, but only these may be called. */
static void keep_allowed_tools(autoparser::generation_params &params, const json_t *names)
{
    common_json left = common_json::array();
    size_t i;
    json_t *name;
    if (!json_is_array(names)) throw refusal{HEARTH_INVALID, "tool_choice", "must name tools in an array"};
    json_array_foreach(names, i, name) left.push_back(find_tool(params.tools, string_of(name)));
    params.tools = left;
}

/* For templates for which llama.cpp can make no parser. Rendering first throws what the template itself refuses. */
static common_chat_params without_parser(const chat_template &template_, const autoparser::generation_params &params)
{
    common_chat_params result;
    prompt_of(template_, params);
    if (has_tools(params))
        throw refusal{HEARTH_UNSUPPORTED, "tools", "tool calls cannot be parsed with this model's chat template"};
    if (!params.json_schema.is_null()) result.grammar = schema_grammar(params.json_schema, "json_schema");
    return result;
}

static void apply(reply_format &format, const chat_template &template_, const autoparser::generation_params &params)
{
    autoparser::generation_params scratch = params; /* some handlers modify it */
    format.params = apply_template(template_, scratch);
    if (lacks_json_grammar(format.params, params)) format.params = json_reply(template_, params);
    if (!format.params.parser.empty()) format.parser.load(format.params.parser);
}

/* Once more where it fails for a tool's schema; what fails then has no parser. */
static void apply_or_go_without(reply_format &format, const chat_template &template_,
                                autoparser::generation_params &params)
{
    for (bool again = true; again;) {
        try {
            return apply(format, template_, params);
        } catch (const std::exception &) {
            format.parser = common_peg_arena();
            again = has_tools(params) && free_unconvertible(params.tools, format.unenforced_parts);
        }
    }
    format.params = without_parser(template_, params);
}

static void mend(common_chat_params &made)
{
    close_reasoning(made);
    mend_grammar(made.grammar);
}

/* Text, calls, or whichever the model chooses where nothing binds its text. */
static void make_way(reply_format &format, const chat_template &template_, autoparser::generation_params params)
{
    apply_or_go_without(format, template_, params);
    if (has_tools(params) && params.tool_choice == COMMON_CHAT_TOOL_CHOICE_REQUIRED) require_call(format.params);
    if (has_tools(params) && !params.parallel_tool_calls) limit_to_one_call(format.params.grammar);
    mend(format.params);
    close_calls_tightly(template_, format.params.grammar);
}

/* Text of the schema, and how it is read where the parser of calls leaves marks in it. */
static common_chat_params text_way(reply_format &format, const chat_template &template_,
                                   autoparser::generation_params params)
{
    params.tools = common_json::array();
    params.tool_choice = COMMON_CHAT_TOOL_CHOICE_NONE;
    common_chat_params made;
    if (template_.has_handler) {
        autoparser::generation_params scratch = params; /* some handlers modify it */
        made = apply_template(template_, scratch);
    }
    bool by_handler = template_.has_handler && !lacks_json_grammar(made, params);
    if (!by_handler) made = json_reply(template_, params);
    bool is_wrapped = !template_.has_handler && template_.analysis.content.is_always_wrapped();
    if (by_handler || is_wrapped) format.text_parser.load(made.parser);
    if (is_wrapped) take_last_content(format.text_parser);
    mend(made);
    return made;
}

/* A call, or text of the schema: llama.cpp takes no notice of tools beside a schema. What is written is bound by the
 * grammars of either; what is read is whatever comes. */
static void make_either_way(reply_format &format, const chat_template &template_,
                            const autoparser::generation_params &params)
{
    autoparser::generation_params by_call = params;
    by_call.json_schema = common_json();
    make_way(format, template_, by_call);
    reply_format calls;
    by_call.tool_choice = COMMON_CHAT_TOOL_CHOICE_REQUIRED;
    make_way(calls, template_, by_call);
    const std::string text = text_way(format, template_, params).grammar;
    format.params.grammar = either_grammar(calls.params.grammar, text);
    format.params.grammar_lazy = false;
    format.params.grammar_triggers.clear();
}

/* A required call leaves no place for text of a schema. */
static std::unique_ptr<reply_format> make_format(const chat_template &template_, const chat_request &request,
                                                 const chat_parsed &parsed, autoparser::generation_params params)
{
    auto result = std::make_unique<reply_format>();
    if (request.allowed_tools != nullptr) keep_allowed_tools(params, request.allowed_tools);
    if (has_tools(params)) lower_parameters(params.tools, result->unenforced_parts);
    bool must_call = has_tools(params) && params.tool_choice == COMMON_CHAT_TOOL_CHOICE_REQUIRED;
    if (must_call)
        params.json_schema = common_json();
    else
        result->unenforced_parts.insert(parsed.unenforced.begin(), parsed.unenforced.end());
    if (has_tools(params) && !params.json_schema.is_null())
        make_either_way(*result, template_, params);
    else
        make_way(*result, template_, params);
    result->params.parser.clear();
    result->params.prompt.clear();
    result->user_grammar = request.grammar == nullptr ? "" : request.grammar;
    result->writes_json = !params.json_schema.is_null();
    result->mixes_reasoning = request.reasoning_in_text;
    result->continues = params.has_continuation();
    result->fill_c_members();
    return result;
}

static const chat_format *open_format(const chat_template &template_, const chat_request &asked,
                                      const chat_prompt *prompt)
{
    render_scope scope(asked.now);
    chat_request request = asked;
    request.plain = request.plain || (prompt != nullptr && prompt->plain);
    std::optional<chat_parsed> own;
    const chat_parsed &parsed = parsed_of(request, own);
    autoparser::generation_params params = read_request(template_, request, parsed);
    std::string key = key_of(template_, request, params, prompt);
    const chat_format *known = template_.format_cache->find(key);
    if (known != nullptr) return known;
    const chat_format *opened = make_format(template_, request, parsed, params).release();
    template_.format_cache->insert(key, opened);
    return opened;
}

} // namespace chat

int chat_format_open(const struct chat_template *template_, const struct chat_request *request,
                     const struct chat_prompt *prompt, const struct chat_format **format, hearth_error *error)
{
    *format = nullptr;
    chat::patience patience(request->stop);
    return chat::guarded(error, "messages", chat::render_error_message,
                         [&] { *format = chat::open_format(*template_, *request, prompt); });
}

const struct chat_format *chat_format_ref(const struct chat_format *format)
{
    chat::as_reply_format(format)->references++;
    return format;
}

void chat_format_unref(const struct chat_format *format)
{
    if (format != nullptr && --chat::as_reply_format(format)->references == 0) delete chat::as_reply_format(format);
}
