/* Checks JSON schemas and converts them to grammars: see schema.hpp. */
#include "chat/schema.hpp"

#include "chat/chat.h"
#include "chat/fields.hpp"

#include "json-schema-to-grammar.h"

extern "C" {
#include "base/memory.h"
}

#include <algorithm>
#include <exception>
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
 * names behind: with the cube of their number. The limit takes about a second; it is reached by 436 names of 20 bytes.
 */
static const size_t max_copied = (size_t)4 << 30, name_overhead = 32;

/* The optional properties that come together in one object. */
struct optional_names {
    size_t n = 0, bytes = 0;

    void add_of(const common_json &object, const std::set<std::string> &required)
    {
        if (!object.is_object() || !object.contains("properties") || !object.at("properties").is_object()) return;
        for (const auto &named : object.at("properties").items()) {
            if (required.count(named.key()) != 0) continue;
            n++;
            bytes += named.key().size() + name_overhead;
        }
    }

    void check(const std::string &param) const
    {
        if (n * n * bytes > max_copied)
            throw refusal{HEARTH_INVALID, param,
                          "has an object with " + std::to_string(n) +
                              " optional properties, which are too many: require them, or nest them"};
    }
};

static std::set<std::string> required_names(const common_json &object)
{
    std::set<std::string> names;
    if (!object.contains("required") || !object.at("required").is_array()) return names;
    for (size_t i = 0; i < object.at("required").size(); i++)
        if (object.at("required").at(i).is_string()) names.insert(object.at("required").at(i).get<std::string>());
    return names;
}

/* References that may lead to one another. */
static const size_t max_references = 32;

/* The schema behind references; NULL: there is none. Refuses those that go round in circles, which llama.cpp would
 * follow for ever in the parts of an allOf. */
static const common_json *resolved(const common_json &root, const common_json *value, const std::string &param)
{
    for (size_t i = 0; value != nullptr; i++) {
        if (!value->is_object() || !value->contains("$ref") || !value->at("$ref").is_string()) return value;
        if (i == max_references)
            throw refusal{HEARTH_INVALID, param, "has an allOf whose references lead to too many others"};
        value = target_of(root, value->at("$ref").get<std::string>());
    }
    return nullptr;
}

/* llama.cpp makes one object of allOf: what its parts have is required, and what their alternatives have is optional,
 * as often as it is referred to. */
static void check_parts(const common_json &root, const common_json &parts, const std::string &param)
{
    optional_names names;
    for (size_t i = 0; parts.is_array() && i < parts.size(); i++) {
        const common_json &part = parts.at(i);
        if (!part.is_object()) continue;
        resolved(root, &part, param);
        for (const char *key : {"oneOf", "anyOf"}) {
            if (!part.contains(key) || !part.at(key).is_array()) continue;
            for (size_t k = 0; k < part.at(key).size(); k++) {
                const common_json *alternative = resolved(root, &part.at(key).at(k), param);
                if (alternative != nullptr) names.add_of(*alternative, {});
                names.check(param);
            }
        }
        if (part.contains("type") && part.at("type").is_array()) names.add_of(part, {});
    }
    names.check(param);
}

/* llama.cpp reads the whole schema once more for each entry of a list of types. */
static void check_types(const common_json &types, const std::string &param)
{
    std::set<std::string> names;
    for (size_t i = 0; types.is_array() && i < types.size(); i++)
        if (types.at(i).is_string() && !names.insert(types.at(i).get<std::string>()).second)
            throw refusal{HEARTH_INVALID, param,
                          "has a list of types with '" + one_line(types.at(i).get<std::string>()) + "' twice"};
}

/* llama.cpp would confuse two definitions with the same rule name. */
static void check_definitions(const common_json &definitions, const std::string &param)
{
    std::set<std::string> names;
    for (const auto &named : definitions.items())
        if (!names.insert(rule_name(named.key())).second)
            throw refusal{HEARTH_INVALID, param,
                          "has two $defs that differ only in punctuation: rename '" + one_line(named.key()) + "'"};
}

void schema_names::add_named(const std::string &key, const common_json &value)
{
    if (!value.is_object() || (key != "properties" && key != "$defs" && key != "definitions")) return;
    if (key != "properties") check_definitions(value, param);
    for (const auto &named : value.items()) add(named.key());
}

void schema_names::walk(const common_json &root, const common_json &value, bool is_part)
{
    if (value.is_array())
        for (size_t i = 0; i < value.size(); i++) walk(root, value.at(i), is_part);
    if (!value.is_object()) return;
    for (const auto &entry : value.items()) {
        add_named(entry.key(), entry.value());
        if (entry.key() == "$ref" && entry.value().is_string() && entry.value().get<std::string>().size() > max_name)
            throw refusal{HEARTH_INVALID, param, "has a $ref longer than " + std::to_string(max_name) + " bytes"};
        if (entry.key() == "type") check_types(entry.value(), param);
        if (entry.key() == "allOf") check_parts(root, entry.value(), param);
        walk(root, entry.value(), entry.key() == "allOf");
    }
    optional_names names;
    if (!is_part) names.add_of(value, required_names(value));
    names.check(param);
}

void schema_names::add_all(const common_json &schema)
{
    walk(schema, schema, false);
}

/* ---- Grammars ---- */

std::string schema_grammar(const common_json &schema, const std::string &param)
{
    static const std::string introduction = "JSON schema conversion failed:\n";
    if (!schema.is_object()) throw refusal{HEARTH_INVALID, param, "must be an object"};
    check_depth(schema, param);
    schema_names(param).add_all(schema);
    try {
        return json_schema_to_grammar(schema);
    } catch (const std::exception &exception) {
        std::string what = exception.what();
        if (what.compare(0, introduction.size(), introduction) == 0) what = what.substr(introduction.size());
        throw refusal{HEARTH_INVALID, param, "is a JSON schema that cannot be used: " + one_line(what)};
    }
}

/* ---- Patterns ---- */

/* Expands the character classes that have a letter, which llama.cpp does not support. */
static std::string expand_classes(const std::string &pattern)
{
    static const struct {
        char letter;
        const char *inside, *outside;
    } classes[] = {{'d', "0-9", "[0-9]"},
                   {'w', "a-zA-Z0-9_", "[a-zA-Z0-9_]"},
                   {'s', " \\t\\n\\r", "[ \\t\\n\\r]"},
                   {'D', nullptr, "[^0-9]"},
                   {'W', nullptr, "[^a-zA-Z0-9_]"},
                   {'S', nullptr, "[^ \\t\\n\\r]"},
                   {'/', "/", "/"},
                   {'-', "\\-", "-"}};
    std::string result;
    bool in_class = false;
    for (size_t i = 0; i < pattern.size(); i++) {
        bool escapes = pattern[i] == '\\' && i + 1 < pattern.size();
        const char *spelled = nullptr;
        for (const auto &known : classes)
            if (escapes && known.letter == pattern[i + 1]) spelled = in_class ? known.inside : known.outside;
        if (pattern[i] == '[' || pattern[i] == ']') in_class = pattern[i] == '[';
        result += spelled != nullptr ? spelled : pattern.substr(i, escapes ? 2 : 1);
        i += escapes;
    }
    return result;
}

/* Keywords whose value is a literal, not a schema. */
static bool is_literal_keyword(const std::string &key)
{
    return key == "const" || key == "enum" || key == "default" || key == "examples";
}

common_json with_expanded_classes(const common_json &schema)
{
    common_json plain = schema;
    if (schema.is_array())
        for (size_t i = 0; i < schema.size(); i++) plain[i] = with_expanded_classes(schema.at(i));
    if (!schema.is_object()) return plain;
    for (const auto &entry : schema.items())
        if (!is_literal_keyword(entry.key()))
            plain[entry.key()] = entry.key() == "pattern" && entry.value().is_string()
                                     ? common_json(expand_classes(entry.value().get<std::string>()))
                                     : with_expanded_classes(entry.value());
    return plain;
}

/* Whether llama.cpp would ignore the pattern: it takes one that it cannot convert for any string. */
static bool is_unsupported_pattern(const common_json &pattern)
{
    static const std::string any = json_schema_to_grammar(common_json{{"type", "string"}, {"pattern", "no anchors"}});
    try {
        return json_schema_to_grammar(common_json{{"type", "string"}, {"pattern", pattern}}) == any;
    } catch (const std::exception &) {
        return false; /* reported when the whole schema is converted */
    }
}

static void check_patterns(const common_json &value, const std::string &param)
{
    if (value.is_array())
        for (size_t i = 0; i < value.size(); i++) check_patterns(value.at(i), param);
    if (!value.is_object()) return;
    for (const auto &entry : value.items()) {
        if (is_literal_keyword(entry.key())) continue;
        if (entry.key() == "pattern" && entry.value().is_string() && is_unsupported_pattern(entry.value()))
            throw refusal{HEARTH_INVALID, param,
                          "has a pattern that cannot be kept: " + one_line(entry.value().get<std::string>()) +
                              " (from ^ to $, without looking around or back)"};
        check_patterns(entry.value(), param);
    }
}

std::string reply_schema_grammar(const common_json &schema)
{
    std::string grammar = schema_grammar(schema, "json_schema");
    check_patterns(schema, "json_schema");
    return grammar;
}

} // namespace chat

char *chat_schema_grammar(const char *json_schema, hearth_error *error)
{
    char *grammar = nullptr;
    chat::guarded(error, "json_schema", chat::one_line, [&] {
        common_json schema = chat::with_expanded_classes(chat::parse_json(json_schema, "json_schema"));
        grammar = mem_strdup(chat::reply_schema_grammar(schema).c_str());
    });
    return grammar;
}
