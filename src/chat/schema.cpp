/* Checks JSON schemas and converts them to grammars: see schema.hpp. */
#include "chat/schema.hpp"

#include "chat/chat.h"
#include "chat/fields.hpp"
#include "chat/schema_log.h"
#include "chat/schema_lower.hpp"
#include "chat/schema_walk.hpp"

#include "json-schema-to-grammar.h"

extern "C" {
#include "base/memory.h"
}

#include <algorithm>
#include <exception>
#include <mutex>
#include <vector>

namespace chat
{

/* ---- Depth ---- */

/* llama.cpp visits the target of a reference once, where it meets the reference first: however references are chained,
 * it recurses no deeper than all targets together. A level takes about a kilobyte of stack. */
static const size_t max_total_depth = 1500;

/* The depth of a schema without following references, which are collected. */
static size_t depth_of(const common_json &value, std::vector<std::string> &references)
{
    if (!value.is_object() && !value.is_array()) return 0;
    size_t deepest = 0;
    if (value.is_array()) {
        for (size_t i = 0; i < value.size(); i++) deepest = std::max(deepest, depth_of(value.at(i), references));
        return deepest + 1;
    }
    for (const auto &entry : value.items()) {
        if (entry.key() == "$ref" && entry.value().is_string()) references.push_back(entry.value().get<std::string>());
        deepest = std::max(deepest, depth_of(entry.value(), references));
    }
    return deepest + 1;
}

/* The target of a reference like "#/a/b/0"; NULL where there is none, which llama.cpp reports best. */
static const common_json *target_of(const common_json &root, const std::string &reference)
{
    const common_json *value = &root;
    if (reference.compare(0, 2, "#/") != 0) return nullptr;
    for (size_t from = 2, end; from <= reference.size(); from = end + 1) {
        end = std::min(reference.find('/', from), reference.size());
        std::string key = reference.substr(from, end - from);
        bool is_index = !key.empty() && key.size() < 7 && key.find_first_not_of("0123456789") == std::string::npos;
        if (value->is_object() && value->contains(key))
            value = &value->at(key);
        else if (value->is_array() && is_index && std::stoul(key) < value->size())
            value = &value->at(std::stoul(key));
        else
            return nullptr;
    }
    return value;
}

static void check_depth(const common_json &schema, const std::string &param)
{
    std::vector<std::string> all;
    size_t total = depth_of(schema, all);
    std::set<std::string> different(all.begin(), all.end());
    for (auto reference = different.begin(); reference != different.end() && total <= max_total_depth; ++reference) {
        const common_json *target = different.size() > max_total_depth ? nullptr : target_of(schema, *reference);
        total += 1 + (target == nullptr ? 0 : depth_of(*target, all));
    }
    if (total > max_total_depth) throw refusal{HEARTH_INVALID, param, "is nested too deeply, or refers too often"};
}

/* ---- Names ---- */

/* llama.cpp makes a rule's name of each property's with a regular expression that recurses once a letter, and then
 * searches for a free name. */
static const size_t max_name = 1024, max_names = 1000, max_alike = 200;

/* The rule name that llama.cpp makes of a name: runs of other characters than these become one '_'. */
static std::string rule_name(const std::string &name)
{
    std::string result;
    for (char c : name) {
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
        if (plain || result.empty() || result.back() != '_') result += plain ? c : '_';
    }
    return result;
}

void schema_names::add(const std::string &name)
{
    if (name.size() > max_name)
        throw refusal{HEARTH_INVALID, param, "has a name longer than " + std::to_string(max_name) + " bytes"};
    std::set<std::string> &same = alike[rule_name(name)];
    same.insert(name);
    if (++n > max_names || same.size() > max_alike)
        throw refusal{HEARTH_INVALID, param, "has too many names of properties"};
}

/* For every run of optional properties up to the last one llama.cpp makes a rule, and for each of these it copies the
 * names behind: with the cube of their number. The limit, of all objects together, takes about a second; it is reached
 * by 436 names of 20 bytes. */
static const size_t max_copied = (size_t)4 << 30, name_overhead = 32;

static size_t optional_cost(const common_json &object)
{
    std::set<std::string> required;
    size_t n = 0, bytes = 0;
    if (!object.contains("properties")) return 0;
    for (size_t i = 0; object.contains("required") && i < object.at("required").size(); i++)
        required.insert(object.at("required").at(i).get<std::string>());
    for (const auto &named : object.at("properties").items()) {
        if (required.count(named.key()) != 0) continue;
        n++;
        bytes += named.key().size() + name_overhead;
    }
    return n * n * bytes;
}

void schema_names::walk(const common_json &schema)
{
    if (!schema.is_object()) return;
    for (const char *key : {"properties", "$defs"})
        if (schema.contains(key))
            for (const auto &named : schema.at(key).items()) add(named.key());
    optional += optional_cost(schema);
    if (optional > max_copied)
        throw refusal{
            HEARTH_INVALID, param,
            "has objects with so many optional properties that they are too many: require them, or nest them"};
    each_subschema(schema, [this](const std::string &, const common_json &within) { walk(within); });
}

/* ---- Mending ---- */

void replace_all(std::string &text, const std::string &from, const std::string &to)
{
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
        text.replace(at, from.size(), to);
}

#define HEX "[0-9a-fA-F]"
/* No half of a surrogate pair, which no character is. */
#define WHOLE "([0-9a-cA-CefEF] " HEX "{3} | [dD] [0-7] " HEX "{2})"

/* In keys that are no property's, what follows where they differ may be anything but a quote. */
static void mend_keys(std::string &grammar)
{
    static const std::string begin = " ::= [\"] ( ", loose = " | [^\"", strict = " | [^\"\\\\\\x00-\\x1F";
    for (size_t at = 0; (at = grammar.find(begin, at)) != std::string::npos;) {
        size_t end = std::min(grammar.find('\n', at), grammar.size());
        std::string line = grammar.substr(at, end - at);
        replace_all(line, loose, strict);
        grammar.replace(at, end - at, line);
        at += line.size();
    }
}

void mend_grammar(std::string &grammar)
{
    mend_keys(grammar);
    replace_all(grammar, "| [\\\\] ([\"\\\\bfnrt] | \"u\" " HEX "{4})", "| [\\\\] ([\"\\\\bfnrt] | \"u\" " WHOLE ")");
    for (const char *quote : {"\"", "'"}) {
        std::string loose = "( [^@\\\\] | \"\\\\\" ( [@\\\\/ bfnrt] | \"u\" " HEX "{4} ) )*";
        std::string tight = "( [^@\\\\\\x00-\\x1F] | \"\\\\\" ( [@\\\\/bfnrt] | \"u\" " WHOLE " ) )*";
        replace_all(loose, "@", quote);
        replace_all(tight, "@", quote);
        replace_all(grammar, loose, tight);
    }
    replace_all(grammar, "([eE] [-+]? integral-part)?", "([eE] [-+]? [0-9]{1,2})?");
}

/* ---- Grammars ---- */

std::string schema_grammar(const common_json &schema, const std::string &param)
{
    static const std::string introduction = "JSON schema conversion failed:\n";
    check_depth(schema, param);
    schema_names(param).walk(schema);
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
    return "is a JSON schema that cannot be used: #" + one_line(fault.pointer) + " " + fault.reason;
}

common_json reply_schema(const common_json &schema)
{
    static const std::string param = "json_schema";
    if (!schema.is_object()) throw refusal{HEARTH_INVALID, param, "must be an object"};
    check_depth(schema, param);
    lowered_schema lowered = lower_schema(schema, "d", false);
    if (!lowered.faults.empty()) throw refusal{HEARTH_INVALID, param, described(lowered.faults[0])};
    schema_grammar(lowered.schema, param);
    name_unenforced(lowered.unenforced);
    return lowered.schema;
}

/* ---- Tools ---- */

static common_json free_arguments()
{
    common_json any = common_json::object();
    any["type"] = "object";
    return any;
}

/* Whether the schema costs too much, or more than llama.cpp takes; and why. */
static bool is_convertible(const common_json &schema, std::string &reason)
{
    try {
        schema_grammar(schema, "tools");
        return true;
    } catch (const refusal &fault) {
        reason = fault.message;
        return false;
    }
}

/* Frees each property that is too much by itself, then all of them, then even their names. */
static common_json freed(const common_json &schema, const std::string &tool, const std::string &why)
{
    common_json result = schema;
    std::string reason = why;
    if (!schema.contains("properties")) {
        schema_log_freed(tool.c_str(), "", why.c_str());
        return free_arguments();
    }
    for (const auto &entry : schema.at("properties").items()) {
        common_json alone = free_arguments();
        alone["properties"][entry.key()] = entry.value();
        if (schema.contains("$defs")) alone["$defs"] = schema.at("$defs");
        if (is_convertible(alone, reason)) continue;
        schema_log_freed(tool.c_str(), pointer_step(entry.key()).c_str(), reason.c_str());
        result["properties"][entry.key()] = common_json::object();
    }
    if (is_convertible(result, reason)) return result;
    schema_log_freed(tool.c_str(), "", reason.c_str());
    for (const auto &entry : schema.at("properties").items()) result["properties"][entry.key()] = common_json::object();
    return is_convertible(result, reason) ? result : free_arguments();
}

common_json tool_schema(const common_json &parameters, const std::string &tool, const std::string &prefix)
{
    static const size_t max_logged = 8;
    lowered_schema lowered;
    std::string reason;
    try {
        check_depth(parameters, "tools");
        lowered = lower_schema(parameters, prefix, true);
    } catch (const refusal &fault) {
        schema_log_freed(tool.c_str(), "", fault.message.c_str());
        return free_arguments();
    }
    for (size_t i = 0; i < lowered.faults.size() && i < max_logged; i++)
        schema_log_freed(tool.c_str(), lowered.faults[i].pointer.c_str(), lowered.faults[i].reason.c_str());
    name_unenforced(lowered.unenforced);
    bool takes_anything = lowered.schema.empty() || (lowered.schema.size() == 1 && lowered.schema.contains("$defs"));
    if (takes_anything) return free_arguments();
    return is_convertible(lowered.schema, reason) ? lowered.schema : freed(lowered.schema, tool, reason);
}

} // namespace chat

char *chat_schema_grammar(const char *json_schema, hearth_error *error)
{
    char *grammar = nullptr;
    chat::guarded(error, "json_schema", chat::one_line, [&] {
        common_json schema = chat::reply_schema(chat::parse_json(json_schema, "json_schema"));
        grammar = mem_strdup(chat::schema_grammar(schema, "json_schema").c_str());
    });
    return grammar;
}
