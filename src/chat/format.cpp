/* Makes the formats of replies, mends their grammars, and caches them: see format.hpp.
 *
 * The cache compares a long key of everything that a format depends on. It has the tools and all else that the request
 * says of its reply, and the generation prompt, which some templates choose by the messages. */
#include "chat/format.hpp"

#include "chat/fields.hpp"
#include "chat/request.hpp"
#include "chat/schema.hpp"
#include "chat/template.hpp"

#include "json-schema-to-grammar.h"

extern "C" {
#include "base/json_text.h"
}

#include <algorithm>
#include <cassert>
#include <cctype>
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

/* A request's own grammar constrains what the model writes; one of llama.cpp's matches the generation prompt first. */
void reply_format::fill_c_members()
{
    bool own = !user_grammar.empty();
    const std::string &text = own ? user_grammar : params.grammar;
    for (const auto &trigger : params.grammar_triggers) {
        auto how = trigger.type == COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN        ? chat_trigger::CHAT_TRIGGER_PATTERN
                   : trigger.type == COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN_FULL ? chat_trigger::CHAT_TRIGGER_WHOLE
                                                                              : chat_trigger::CHAT_TRIGGER_WORD;
        trigger_list.push_back({how, trigger.value.c_str()});
    }
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

static std::string key_of(const chat_template &template_, const chat_request &request,
                          const autoparser::generation_params &params, const chat_prompt *prompt)
{
    std::string key, begin; /* begin: the generation prompt, or all messages where it cannot be found */
    try {
        begin = generation_prompt_of(template_, params, prompt);
    } catch (const std::exception &) {
        begin = json_of(request.messages);
    }
    for (int number : {static_cast<int>(request.tool_choice), static_cast<int>(params.parallel_tool_calls),
                       static_cast<int>(params.continue_final_message), static_cast<int>(request.reasoning_in_text),
                       static_cast<int>(params.add_generation_prompt), static_cast<int>(params.enable_thinking)})
        key += std::to_string(number) + ",";
    for (const json_t *tree : {request.tools, request.allowed_tools, request.json_schema, request.kwargs})
        add_part(key, tree);
    add_part(key, request.grammar);
    add_part(key, params.continue_msg.render_content());
    add_part(key, params.continue_msg.reasoning_content);
    add_part(key, begin);
    return key;
}

/* ---- Grammars of calls ---- */

/* llama.cpp's grammars of replies are made to say what its parsers take and what was asked for: they are text, and are
 * changed as text. */

/* Whether a rule of calls follows there, perhaps after white space. */
static bool calls_follow(const std::string &grammar, size_t at)
{
    static const std::string space = " space";
    if (grammar.compare(at, space.size() + 1, space + " ") == 0) at += space.size();
    return grammar.substr(at + 1, grammar.find_first_of(" \n", at + 1) - at - 1).find("tool") != std::string::npos;
}

/* Makes a required call the first thing that the model writes, but for its reasoning. llama.cpp allows text before it,
 * and a small model may never come to the call; where the text looks like the beginning of a call, none is read. This
 * removes the text from the root rule. Throws refusal where the template has no form of calls. */
static void require_call(std::string &grammar)
{
    if (grammar.empty())
        throw refusal{HEARTH_UNSUPPORTED, "tool_choice",
                      "requires a call, and this model's chat template has no form of calls: leave it out"};
    size_t line = grammar.compare(0, 9, "root ::= ") == 0 ? 0 : grammar.find("\nroot ::= "), at = line;
    while (line != std::string::npos && (at = grammar.find(" until-", at)) < grammar.find('\n', line + 1)) {
        size_t end = grammar.find_first_not_of("0123456789", at + 7);
        if (end != std::string::npos && grammar[end] == '?')
            grammar.erase(at, end + 1 - at);
        else if (end != std::string::npos && calls_follow(grammar, end))
            grammar.erase(at, end - at);
        else
            at++;
    }
    /* Functionary's calls may follow a message, in llama.cpp's grammar without what its parser wants between the two.
     */
    size_t begin = grammar.find("(\"all\\n\" "), end = grammar.find(" | tools)", begin);
    if (begin != std::string::npos && end < grammar.find('\n', begin)) grammar.replace(begin, end + 9 - begin, "tools");
}

/* Some of llama.cpp's parsers do without the end of the reasoning, and take what the grammar lets follow for more of
 * it. A grammar that holds from the beginning wants the end. */
static void mend(common_chat_params &made)
{
    if (!made.grammar_lazy && !made.thinking_end_tags.empty()) {
        std::string first = gbnf_format_literal(made.thinking_end_tags[0]);
        replace_all(made.grammar, first + "?", first);
        for (const auto &tag : made.thinking_end_tags) {
            std::string end = gbnf_format_literal(tag);
            replace_all(made.grammar, "(" + end + " | )", end);
        }
    }
    mend_grammar(made.grammar);
}

static bool is_of_name(char c)
{
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
}

/* The grammar with `prefix` before the names of all of its rules. */
static std::string with_prefix(const std::string &grammar, const std::string &prefix)
{
    /* Quoted text, a set of characters, a token, a count and a comment hold no names. */
    static const std::string begins = "\"[<{#", ends = "\"]>}\n";
    std::string result;
    for (size_t at = 0; at < grammar.size();) {
        size_t end = at, kind = begins.find(grammar[at]);
        if (kind != std::string::npos) {
            for (end++; end < grammar.size() && grammar[end] != ends[kind];)
                end += grammar[end] == '\\' && kind < 2 ? 2 : 1;
            end = std::min(end + 1, grammar.size());
        }
        bool is_name = end == at && is_of_name(grammar[at]);
        while (is_name && end < grammar.size() && is_of_name(grammar[end])) end++;
        if (is_name) result += prefix;
        end = std::max(end, at + 1);
        result.append(grammar, at, end - at);
        at = end;
    }
    return result;
}

/* ---- Schemas that a template's handler takes no notice of ---- */

/* Whether the reply is to be JSON of a schema, and nothing that llama.cpp made of the request sees to it. */
static bool lacks_json_grammar(const common_chat_params &made, const autoparser::generation_params &params)
{
    return !params.json_schema.is_null() && made.grammar.empty();
}

static bool is_content(const common_peg_parser_variant &node)
{
    const auto *tag = std::get_if<common_peg_tag_parser>(&node);
    return tag != nullptr && tag->tag == common_chat_peg_builder::CONTENT;
}

/* Makes a parser one of replies without text before the content that has marks around it, which some templates allow:
 * the schema is of one of the two. */
static void take_last_content(common_peg_arena &parser)
{
    for (common_peg_parser_id id = 0; id < parser.size(); id++) {
        auto *sequence = std::get_if<common_peg_sequence_parser>(&parser.get(id));
        bool found = false;
        for (size_t i = sequence == nullptr ? 0 : sequence->children.size(); i-- > 0;) {
            common_peg_parser_variant &child = parser.get(sequence->children[i]);
            if (!is_content(child)) continue;
            if (found) child = common_peg_epsilon_parser{};
            found = true;
        }
    }
}

/* The parameters that llama.cpp makes of the request without its tools, with a grammar by which the content is JSON of
 * the schema. The grammar is that of its parser of replies without calls, with the schema in the place of the
 * content. */
static common_chat_params json_reply(const chat_template &template_, autoparser::generation_params params)
{
    params.tools = common_json::array();
    params.tool_choice = COMMON_CHAT_TOOL_CHOICE_NONE;
    const common_json schema = params.json_schema;
    params.json_schema = common_json();
    autoparser::generation_params scratch = params, apart = params; /* some handlers modify it */
    common_chat_params result = apply_template(template_, scratch);
    apart.reasoning_format = COMMON_REASONING_FORMAT_DEEPSEEK; /* else reasoning is content, too */
    common_peg_arena arena;
    arena.load(apply_template(template_, apart).parser);
    common_chat_schema_document document = common_chat_schema_from_json(schema);
    result.grammar = build_grammar([&](const common_grammar_builder &builder) {
        std::string rule = builder.add_schema("response-format", *document.root);
        take_last_content(arena);
        for (common_peg_parser_id id = 0; id < arena.size(); id++) {
            auto *optional = std::get_if<common_peg_repetition_parser>(&arena.get(id));
            if (optional != nullptr && is_content(arena.get(optional->child))) optional->min_count = 1;
        }
        for (common_peg_parser_id id = 0; id < arena.size(); id++) {
            common_peg_parser_variant &node = arena.get(id);
            if (is_content(node)) node = common_peg_gbnf_parser{std::get<common_peg_tag_parser>(node).child, rule};
        }
        arena.build_grammar(builder, false);
    });
    return result;
}

/* ---- Making ---- */

static bool has_tools(const autoparser::generation_params &params)
{
    return params.tools.is_array() && !params.tools.empty() && params.tool_choice != COMMON_CHAT_TOOL_CHOICE_NONE;
}

/* The prompt lists all tools, but only these may be called. */
static void keep_allowed_tools(autoparser::generation_params &params, const json_t *names)
{
    common_json left = common_json::array();
    size_t i;
    json_t *name;
    if (!json_is_array(names)) throw refusal{HEARTH_INVALID, "tool_choice", "must name tools in an array"};
    json_array_foreach(names, i, name)
    {
        const std::string wanted = string_of(name);
        size_t at = 0;
        while (at < params.tools.size() && params.tools.at(at).at("function").at("name").get<std::string>() != wanted)
            at++;
        if (at == params.tools.size())
            throw refusal{HEARTH_INVALID, "tool_choice", "names a tool that is not among the tools"};
        left.push_back(params.tools.at(at));
    }
    params.tools = left;
}

/* Tries again without the schemas of tools that llama.cpp does not take. If it still fails, the format has no
 * parser. */
static void apply_or_go_without(reply_format &format, const chat_template &template_,
                                autoparser::generation_params &params)
{
    for (bool again = true; again;) {
        try {
            autoparser::generation_params scratch = params; /* some handlers modify it */
            format.params = apply_template(template_, scratch);
            if (lacks_json_grammar(format.params, params)) format.params = json_reply(template_, params);
            if (!format.params.parser.empty()) format.parser.load(format.params.parser);
            return;
        } catch (const std::exception &) {
            format.parser = common_peg_arena();
            again = has_tools(params) && free_unconvertible(params.tools, format.unenforced_parts);
        }
    }
    prompt_of(template_, params); /* throws what the template itself refuses */
    if (has_tools(params))
        throw refusal{HEARTH_UNSUPPORTED, "tools", "tool calls cannot be parsed with this model's chat template"};
    format.params = common_chat_params();
    if (!params.json_schema.is_null()) format.params.grammar = schema_grammar(params.json_schema, "json_schema");
}

/* Text, calls, or whichever the model chooses where nothing binds its text. */
static void make_way(reply_format &format, const chat_template &template_, autoparser::generation_params params)
{
    apply_or_go_without(format, template_, params);
    std::string &grammar = format.params.grammar;
    if (has_tools(params) && params.tool_choice == COMMON_CHAT_TOOL_CHOICE_REQUIRED) require_call(grammar);
    /* llama.cpp does not always end a reply after the one call that is allowed. */
    static const std::string end_of_many = ")+\n";
    bool is_one = has_tools(params) && !params.parallel_tool_calls;
    for (const std::string begin : {"\ntool-calls ::= (", "\ntools ::= ("}) {
        size_t at = is_one ? grammar.find(begin) : std::string::npos;
        size_t stop = at == std::string::npos ? at : grammar.find('\n', at + 1);
        if (stop == std::string::npos) continue;
        if (grammar.compare(stop + 1 - end_of_many.size(), end_of_many.size(), end_of_many) != 0) continue;
        grammar.erase(stop - 2, 2);
        grammar.erase(at + begin.size() - 1, 1);
    }
    mend(format.params);
    /* Where nothing but the end of a call closes its arguments, llama.cpp's parser wants it right behind them, and its
     * grammar allows white space. */
    const autoparser::analyze_tools &tools = template_.analysis.tools;
    bool is_tight = !template_.has_handler && tools.format.mode == autoparser::tool_format::TAG_WITH_TAGGED &&
                    tools.function.close.empty() && !tools.format.per_call_end.empty() &&
                    !tools.arguments.tolerate_intertag_whitespace;
    std::string end = gbnf_format_literal(tools.format.per_call_end);
    if (is_tight) replace_all(grammar, " space " + end, " " + end);
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

/* A call, or text of the schema: llama.cpp takes no notice of tools beside a schema. The grammars of both bind the text
 * that is written; the reader takes whichever comes. */
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
    /* A grammar of what either of two grammars matches. */
    format.params.grammar = "root ::= first-root | second-root\n" + with_prefix(calls.params.grammar, "first-") + "\n" +
                            with_prefix(text, "second-");
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
    render_scope scope(asked.now, asked.stop);
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
    assert(template_ != nullptr && request != nullptr && format != nullptr);
    *format = nullptr;
    return chat::guarded(error, "messages", chat::render_error_message,
                         [&] { *format = chat::open_format(*template_, *request, prompt); });
}

const struct chat_format *chat_format_ref(const struct chat_format *format)
{
    assert(format != nullptr && chat::as_reply_format(format)->references > 0);
    chat::as_reply_format(format)->references++;
    return format;
}

void chat_format_unref(const struct chat_format *format)
{
    if (format != nullptr && --chat::as_reply_format(format)->references == 0) delete chat::as_reply_format(format);
}
