/* Makes the formats of replies and caches them: see format.hpp.
 *
 * The cache compares a long key of everything that a format depends on: the tools and whatever else the request says of
 * its reply, and the generation prompt, which some templates choose by the messages. */
#include "chat/format.hpp"

#include "chat/errors.hpp"
#include "chat/fields.hpp"
#include "chat/json_reply.hpp"
#include "chat/patience.hpp"
#include "chat/request.hpp"
#include "chat/schema.hpp"
#include "chat/template.hpp"
#include "chat/tools.hpp"

#include "json-schema-to-grammar.h"

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

static void add_part(std::string &key, const char *part)
{
    part == nullptr ? add_part(key, std::string("-")) : add_part(key, "+" + std::string(part));
}

/* The generation prompt, or all messages where it cannot be found. */
static std::string generation_prompt_or_messages(const chat_template &template_, const chat_request &request,
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
    add_part(key, generation_prompt_or_messages(template_, request, params, prompt));
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
static void keep_allowed_tools(autoparser::generation_params &params, const char *names_json)
{
    common_json names = parse_json(names_json, "tool_choice"), left = common_json::array();
    if (!names.is_array()) throw refusal{HEARTH_INVALID, "tool_choice", "must name tools in an array"};
    for (size_t i = 0; i < names.size(); i++) left.push_back(find_tool(params.tools, names.at(i).get<std::string>()));
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

/* Whether a rule of calls follows there, perhaps after white space. */
static bool calls_follow(const std::string &grammar, size_t at)
{
    static const std::string space = " space";
    if (grammar.compare(at, space.size() + 1, space + " ") == 0) at += space.size();
    return grammar.substr(at + 1, grammar.find_first_of(" \n", at + 1) - at - 1).find("tool") != std::string::npos;
}

/* llama.cpp allows text before a required call, and a small model may never come to the call; where the text looks like
 * the beginning of a call, none is read. This removes the text from the root rule. */
static void drop_text_before_call(std::string &grammar)
{
    size_t line = grammar.compare(0, 9, "root ::= ") == 0 ? 0 : grammar.find("\nroot ::= ");
    if (line == std::string::npos) return;
    size_t at = line;
    while ((at = grammar.find(" until-", at)) < grammar.find('\n', line + 1)) {
        size_t end = grammar.find_first_not_of("0123456789", at + 7);
        if (end != std::string::npos && grammar[end] == '?')
            grammar.erase(at, end + 1 - at);
        else if (end != std::string::npos && calls_follow(grammar, end))
            grammar.erase(at, end - at);
        else
            at++;
    }
}

/* Functionary's calls may follow a message, in llama.cpp's grammar without what its parser wants between the two. */
static void drop_message_before_call(std::string &grammar)
{
    size_t begin = grammar.find("(\"all\\n\" "), end = grammar.find(" | tools)", begin);
    if (begin != std::string::npos && end < grammar.find('\n', begin)) grammar.replace(begin, end + 9 - begin, "tools");
}

static void require_call(common_chat_params &params)
{
    if (params.grammar.empty())
        throw refusal{HEARTH_UNSUPPORTED, "tool_choice",
                      "requires a call, and this model's chat template has no form of calls: leave it out"};
    drop_text_before_call(params.grammar);
    drop_message_before_call(params.grammar);
}

/* Some of llama.cpp's parsers do without the end of the reasoning, and take what the grammar lets follow for more of
 * it. A grammar that holds from the beginning wants the end. */
static void close_reasoning(common_chat_params &params)
{
    if (params.grammar_lazy || params.thinking_end_tags.empty()) return;
    std::string first = gbnf_format_literal(params.thinking_end_tags[0]);
    replace_all(params.grammar, first + "?", first);
    for (const auto &tag : params.thinking_end_tags) {
        std::string end = gbnf_format_literal(tag);
        replace_all(params.grammar, "(" + end + " | )", end);
    }
}

/* llama.cpp does not always end a reply after the one call that is allowed. */
static void limit_to_one_call(std::string &grammar)
{
    static const std::string end = ")+\n";
    for (const std::string begin : {"\ntool-calls ::= (", "\ntools ::= ("}) {
        size_t at = grammar.find(begin);
        if (at == std::string::npos) continue;
        size_t stop = grammar.find('\n', at + 1);
        if (stop == std::string::npos || grammar.compare(stop + 1 - end.size(), end.size(), end) != 0) continue;
        grammar.erase(stop - 2, 2);
        grammar.erase(at + begin.size() - 1, 1);
    }
}

/* Where nothing but the end of a call closes its arguments, llama.cpp's parser wants it right behind them, and its
 * grammar allows white space. */
static void close_calls_tightly(const chat_template &template_, std::string &grammar)
{
    if (!template_.analysis) return;
    const autoparser::analyze_tools &tools = template_.analysis->tools;
    if (tools.format.mode != autoparser::tool_format::TAG_WITH_TAGGED || !tools.function.close.empty()) return;
    if (tools.format.per_call_end.empty() || tools.arguments.tolerate_intertag_whitespace) return;
    std::string end = gbnf_format_literal(tools.format.per_call_end);
    replace_all(grammar, " space " + end, " " + end);
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
            again = has_tools(params) && free_unconvertible(params.tools);
        }
    }
    format.params = without_parser(template_, params);
}

static std::unique_ptr<reply_format> make_format(const chat_template &template_, const chat_request &request,
                                                 autoparser::generation_params params)
{
    auto result = std::make_unique<reply_format>();
    if (request.allowed_tools_json != nullptr) keep_allowed_tools(params, request.allowed_tools_json);
    if (has_tools(params)) lower_parameters(params.tools);
    apply_or_go_without(*result, template_, params);
    if (has_tools(params) && request.tool_choice == HEARTH_TOOLS_REQUIRED) require_call(result->params);
    close_reasoning(result->params);
    if (has_tools(params) && !params.parallel_tool_calls) limit_to_one_call(result->params.grammar);
    mend_grammar(result->params.grammar);
    close_calls_tightly(template_, result->params.grammar);
    result->params.parser.clear();
    result->params.prompt.clear();
    result->user_grammar = request.grammar == nullptr ? "" : request.grammar;
    result->writes_json = request.json_schema != nullptr;
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
    const chat_format *opened = make_format(template_, request, params).release();
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
