/* Checks JSON schemas and converts them to grammars: see schema.hpp. */
#include "chat/schema.hpp"

#include "chat/chat.h"
#include "chat/fields.hpp"
#include "chat/pattern.hpp"
#include "chat/schema_log.h"
#include "chat/schema_parts.hpp"

#include "json-schema-to-grammar.h"

extern "C" {
#include "base/memory.h"
}

#include <algorithm>
#include <cassert>
#include <cstring>
#include <exception>
#include <mutex>
#include <vector>

namespace chat
{

/* ---- Mending ---- */

void replace_all(std::string &text, const std::string &from, const std::string &to)
{
    size_t at = text.find(from), done = 0;
    if (at == std::string::npos) return;
    std::string result;
    for (; at != std::string::npos; at = text.find(from, done)) {
        result.append(text, done, at - done).append(to);
        done = at + from.size();
    }
    text = result.append(text, done, std::string::npos);
}

#define HEX "[0-9a-fA-F]"
/* No half of a surrogate pair, which no character is. */
#define WHOLE "([0-9a-cA-CefEF] " HEX "{3} | [dD] [0-7] " HEX "{2})"

void mend_grammar(std::string &grammar)
{
    /* In keys that are no property's, what follows where they differ may be anything but a quote. */
    static const std::string key = " ::= [\"] ( ", loose_key = " | [^\"", strict_key = " | [^\"\\\\\\x00-\\x1F";
    std::string result;
    size_t done = 0;
    for (size_t at = 0; (at = grammar.find(key, done)) != std::string::npos;) {
        size_t stop = std::min(grammar.find('\n', at), grammar.size());
        std::string line = grammar.substr(at, stop - at);
        replace_all(line, loose_key, strict_key);
        result.append(grammar, done, at - done).append(line);
        done = stop;
    }
    if (done > 0) grammar = result.append(grammar, done, std::string::npos);
    /* Strings whose patterns are numbers' have no quotes. Each is a rule of its own, which is a line. */
    static const std::string begin = "\"\\\"\" (\"" NUMBER_MARK "\" ", end = ") \"\\\"\"";
    for (size_t at = 0; (at = grammar.find(begin, at)) != std::string::npos;) {
        size_t stop = std::min(grammar.find('\n', at), grammar.size());
        grammar.erase(stop - end.size(), end.size());
        grammar.erase(at, begin.size());
    }
    replace_all(grammar, "| [\\\\] ([\"\\\\bfnrt] | \"u\" " HEX "{4})", "| [\\\\] ([\"\\\\bfnrt] | \"u\" " WHOLE ")");
    for (const char *quote : {"\"", "'"}) {
        std::string loose = "( [^@\\\\] | \"\\\\\" ( [@\\\\/ bfnrt] | \"u\" " HEX "{4} ) )*";
        std::string tight = "( [^@\\\\\\x00-\\x1F] | \"\\\\\" ( [@\\\\/bfnrt] | \"u\" " WHOLE " ) )*";
        replace_all(loose, "@", quote);
        replace_all(tight, "@", quote);
        replace_all(grammar, loose, tight);
    }
    replace_all(grammar, "([eE] [-+]? integral-part)?", "([eE] [-+]? [0-9]{1,2})?");
    replace_all(grammar, "[1-9] [0-9]*) (\".\" [0-9]+)? ((\"e\" | \"E\") [+-]? [0-9]+)?",
                "[1-9] [0-9]{0,15}) (\".\" [0-9]{1,16})? ((\"e\" | \"E\") [+-]? [0-9]{1,2})?");
}

/* ---- Grammars ---- */

std::string schema_grammar(const common_json &schema, const std::string &param)
{
    static const std::string introduction = "JSON schema conversion failed:\n";
    try {
        std::string grammar = json_schema_to_grammar(schema);
        mend_grammar(grammar);
        return grammar;
    } catch (const std::exception &exception) {
        std::string what = exception.what();
        if (what.compare(0, introduction.size(), introduction) == 0) what = what.substr(introduction.size());
        throw refusal{HEARTH_INVALID, param, "is a JSON schema that cannot be used: " + one_line(what)};
    }
}

bool is_convertible(const common_json &schema, std::string &reason)
{
    try {
        schema_grammar(schema, "tools");
        return true;
    } catch (const refusal &fault) {
        reason = fault.message;
        return false;
    }
}

/* ---- Replies ---- */

/* Keywords that were named in the log. Text of requests is among them, so that there is a limit. */
static void name_unenforced(const std::set<std::string> &keywords)
{
    static std::mutex lock;
    static std::set<std::string> known;
    static const size_t max_known = 200;
    std::lock_guard<std::mutex> hold(lock);
    for (const auto &keyword : keywords)
        if (known.size() < max_known && known.insert(keyword).second) schema_log_unenforced(keyword.c_str());
}

static std::string described(const lowered_schema::fault &fault)
{
    static const size_t max_pointer = 200;
    std::string pointer = one_line(fault.pointer);
    if (pointer.size() > max_pointer) pointer = pointer.substr(0, max_pointer) + "...";
    return "is a JSON schema that cannot be used: #" + pointer + " " + fault.reason;
}

common_json reply_schema(const common_json &schema, std::set<std::string> &unenforced)
{
    static const std::string param = "json_schema";
    if (!schema.is_object()) throw refusal{HEARTH_INVALID, param, "must be an object"};
    schema_budget budget;
    lowered_schema lowered;
    try {
        lowered = lower_schema(schema, "d", false, budget);
        if (!lowered.faults.empty()) throw refusal{HEARTH_INVALID, param, described(lowered.faults[0])};
        spend_conversion(lowered.schema, "", budget);
    } catch (const schema_too_large &reached) {
        throw refusal{HEARTH_INVALID, param, described({reached.pointer, reached.reason})};
    }
    name_unenforced(lowered.unenforced);
    unenforced.insert(lowered.unenforced.begin(), lowered.unenforced.end());
    return lowered.schema;
}

std::string lines_of(const std::set<std::string> &names)
{
    std::string lines;
    for (const auto &name : names) lines += (lines.empty() ? "" : "\n") + one_line(name);
    return lines;
}

/* ---- Tools ---- */

/* A part of a tool's parameters that takes any value: in the log, and as a JSON pointer. */
static void note_freed(std::set<std::string> &unenforced, const std::string &tool, const std::string &pointer,
                       const std::string &reason)
{
    schema_log_freed(tool.c_str(), pointer.c_str(), reason.c_str());
    unenforced.insert(tool + "#" + pointer);
}

common_json freed_arguments(const std::string &tool, const std::string &why, std::set<std::string> &unenforced)
{
    note_freed(unenforced, tool, "", why);
    return of_type("object");
}

/* Whether the budget is enough for its conversion, which then is spent; else why not. */
static bool is_affordable(const common_json &schema, const std::string &tool, schema_budget &budget,
                          std::string &reason)
{
    const schema_budget::amounts before = budget.left();
    try {
        spend_conversion(schema, tool, budget);
        return true;
    } catch (const schema_too_large &reached) {
        budget.set_left(before);
        reason = reached.reason;
        return false;
    }
}

/* The names of properties that by themselves take more than a quarter of what a schema may cost, as far as they are
 * found for the cost of one schema. */
static std::vector<std::string> dear_properties(const common_json &schema, const std::string &tool)
{
    static const size_t quarter = 4;
    schema_budget trials;
    std::vector<std::string> dear;
    for (const auto &entry : schema.at("properties").items()) {
        common_json alone = of_type("object");
        alone["properties"][entry.k] = entry.v;
        if (schema.contains("$defs")) alone["$defs"] = schema.at("$defs");
        const schema_budget::amounts before = trials.lend(quarter);
        if (trials.left().nanoseconds == before.nanoseconds) break; /* the last quarter is none to try with */
        try {
            trials.values(values_in(alone));
            spend_conversion(alone, tool, trials);
        } catch (const schema_too_large &) {
            dear.push_back(entry.k);
        }
        trials.give_back(before);
    }
    return dear;
}

/* Frees properties that are too much by themselves; else all of them, then even their names. */
static common_json freed(const common_json &schema, const std::string &tool, schema_budget &budget, std::string reason,
                         std::set<std::string> &unenforced)
{
    common_json result = schema;
    if (!schema.contains("properties")) return freed_arguments(tool, reason, unenforced);
    std::vector<std::string> dear = dear_properties(schema, tool);
    for (const auto &name : dear) result["properties"][name] = common_json::object();
    if (!dear.empty() && is_affordable(result, tool, budget, reason)) {
        for (const auto &name : dear) note_freed(unenforced, tool, pointer_step(name), reason);
        return result;
    }
    note_freed(unenforced, tool, "", reason);
    for (const auto &entry : result.at("properties").items()) entry.v = common_json::object();
    return is_affordable(result, tool, budget, reason) ? result : of_type("object");
}

common_json tool_schema(const common_json &parameters, const std::string &tool, const std::string &prefix,
                        schema_budget &all, std::set<std::string> &unenforced)
{
    static const size_t max_logged = 8;
    common_json schema = of_type("object");
    const schema_budget::amounts before = all.lend(1);
    try {
        std::string reason;
        lowered_schema lowered = lower_schema(parameters, prefix, true, all);
        for (size_t i = 0; i < lowered.faults.size() && i < max_logged; i++)
            note_freed(unenforced, tool, lowered.faults[i].pointer, lowered.faults[i].reason);
        name_unenforced(lowered.unenforced);
        unenforced.insert(lowered.unenforced.begin(), lowered.unenforced.end());
        bool has_definitions_alone = lowered.schema.size() == 1 && lowered.schema.contains("$defs");
        bool takes_anything = lowered.schema.empty() || has_definitions_alone;
        if (!takes_anything && is_affordable(lowered.schema, tool, all, reason))
            schema = lowered.schema;
        else if (!takes_anything)
            schema = freed(lowered.schema, tool, all, reason, unenforced);
    } catch (const schema_too_large &reached) {
        schema = freed_arguments(tool, reached.reason, unenforced);
    }
    all.give_back(before);
    return schema;
}

} // namespace chat

char *chat_pattern_grammar(const char *pattern, hearth_error *error)
{
    assert(pattern != nullptr);
    static const size_t max_pattern = (size_t)64 << 10;
    char *grammar = nullptr;
    chat::guarded(error, "regex", chat::one_line, [&] {
        if (std::strlen(pattern) > max_pattern) throw chat::pattern_fault("it is longer than 64 KiB");
        grammar = mem_strdup(chat::pattern_grammar(pattern).c_str());
    });
    return grammar;
}

char *chat_schema_grammar(const json_t *json_schema, char **unenforced, hearth_error *error)
{
    assert(json_schema != nullptr);
    char *grammar = nullptr;
    chat::guarded(error, "json_schema", chat::one_line, [&] {
        std::set<std::string> keywords;
        common_json given = chat::read_tree(json_schema, chat::wide_numbers::nearest, "json_schema");
        common_json schema = chat::reply_schema(given, keywords);
        grammar = mem_strdup(chat::schema_grammar(schema, "json_schema").c_str());
        if (unenforced != nullptr && !keywords.empty()) *unenforced = mem_strdup(chat::lines_of(keywords).c_str());
    });
    return grammar;
}
